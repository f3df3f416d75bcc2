"""Running an experiment: a start that is refused leaves nothing, and functions without a name run in this process."""

import dataclasses

import gymnasium
import pytest
import yaml

from callboard.agents.impala import Impala
from callboard.cli.train import main as train_command
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.hosts.launcher import HostsLauncher
from callboard.launch.launchers.ray.launcher import RayLauncher
from callboard.launch.run import make_run, run
from callboard.launch.session import Session
from callboard.settings.nested_settings import from_values


def test_a_refused_start_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run"
    experiment = Experiment(agent=Impala(), env="CartPole-v1", run_dir=path)
    # Each is refused at a later point of the start than the one before.
    refused = [
        (
            dataclasses.replace(experiment, agent=from_values(Impala, {"network.torso": "no_module:torso"})),
            "inline",
            "cannot be imported",
        ),
        (
            dataclasses.replace(experiment, env_options={"render_mode": object()}),
            "inline",
            "cannot be written to a file",
        ),
        (experiment, "threads", "no free port"),
        (experiment, "processes", "no free port"),
    ]

    def no_port(*_):
        raise CallboardError("there is no free port")

    for module in ("threads", "processes"):
        monkeypatch.setattr(f"callboard.launch.launchers.{module}.reserved_ports", no_port)
    for wrong, launcher, message in refused:
        with pytest.raises(CallboardError, match=message):
            run(wrong, launcher)
        assert not list(tmp_path.iterdir()), (launcher, message)
    with pytest.raises(CallboardError, match="no Ray cluster answers at"):
        run(experiment, RayLauncher("127.0.0.1:1"))
    assert not list(tmp_path.iterdir())
    cluster = tmp_path / "cluster.yaml"
    nodes = {"learner": "a", "replay": "a", "evaluator": "a", "actor": {"a": 4}}
    cluster.write_text(yaml.safe_dump({"hosts": {"a": "127.0.0.1"}, "ports": "23000-23001", **nodes}))
    with pytest.raises(CallboardError, match="need 10 ports"):
        run(experiment, HostsLauncher(cluster, "a"))
    assert list(tmp_path.iterdir()) == [cluster]


def test_a_run_for_launchpad_is_checked_and_writes_nothing_yet(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1", actors=3, run_dir=tmp_path / "run")
    made = make_run(experiment)
    assert made.experiment == experiment and made.layout.actors == 3
    assert made.directory.path == tmp_path / "run" and not made.directory.path.exists()
    with pytest.raises(CallboardError, match="there is no run to resume"):
        make_run(experiment, resume=True)
    with pytest.raises(CallboardError, match="did you mean 'CartPole-v1'"):
        make_run(dataclasses.replace(experiment, env="CartPol-v1"))


@pytest.mark.slow("daily")
def test_a_function_without_a_name_runs_in_this_process_and_is_resumed_from_its_program(tmp_path, capsys):
    def make_short(index, actor, limit):
        assert actor is None or index // 2 == actor
        return gymnasium.make("CartPole-v1", max_episode_steps=limit)

    experiment = Experiment(
        from_values(Impala, {"network.hidden_sizes": (4,), "unroll_length": 4, "batch_size": 2}),
        env=[{"name": make_short, "options": {"limit": 6}}, {"name": "CartPole-v1", "weight": 2}],
        actors=2,
        envs_per_actor=2,
        evaluator=False,
        max_steps=40,
        run_dir=tmp_path / "run",
    )
    assert run(experiment, "inline").exit_code == 0
    assert "The run is over: reached max_steps" in capsys.readouterr().out
    assert make_run(experiment, resume=True).layout.actors == 2
    with pytest.raises(CallboardError, match="make_short' cannot be imported: .* continue its run from the program"):
        train_command(["--resume", "--run-dir", str(tmp_path / "run"), "--launcher", "inline"])


class Raises(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 500:
            raise ValueError("out of steps")
        return super().step(action)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("run", [run, lambda *arguments: Session(*arguments).run()], ids=["run", "session"])
def test_a_program_that_looks_at_no_outcome_shows_a_failure(run, tmp_path, capsys):
    experiment = Experiment("a2c", env=Raises, actors=1, envs_per_actor=1, evaluator=False, run_dir=tmp_path)
    assert run(experiment, "inline").exit_code == 1
    printed = capsys.readouterr().err
    assert "actor/0 failed:" in printed and "out of steps" in printed
