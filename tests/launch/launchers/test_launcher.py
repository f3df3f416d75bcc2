"""The launcher protocol and the registry: what launchers declare, and a launcher of the user's own."""

import pathlib
import re

import pytest
import yaml

from callboard.cli.train import main as train_command
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.hosts.launcher import HostsLauncher
from callboard.launch.launchers.launcher import LocalNodes
from callboard.launch.launchers.local_launchers import ProcessesLauncher, ThreadsLauncher
from callboard.launch.launchers.ray.launcher import RayLauncher

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "guides" / "launcher.md"


@pytest.fixture
def own_launcher(tmp_path, monkeypatch):
    """The name of the launcher that the guide builds."""
    (code,) = re.findall(r"```python\n(# plain_threads\.py\n.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "plain_threads.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return "plain_threads:PlainThreads"


@pytest.mark.slow
def test_a_launcher_of_the_users_own_trains(own_launcher, tmp_path, capsys):
    path = tmp_path / "run"
    settings = ["--actors", "1", "--envs-per-actor", "8", "--evaluation-episodes", "5", "--max-steps", "2000"]
    options = ["--launcher", own_launcher, "--end-seconds", "20", "--run-dir", str(path)]
    assert train_command(["impala", "--env", "CartPole-v1", *options, *settings]) == 0
    shown = capsys.readouterr().out
    assert "reached max_steps (2,00" in shown and "Score: " in shown and "Not evaluated" not in shown
    assert list((path / "checkpoints").glob("0*"))
    assert not (path / "lock").exists() and not (path / "tmp").exists()


def test_its_options_are_declared_by_its_fields(own_launcher, capsys):
    base = ["impala", "--env", "CartPole-v1", "--launcher", own_launcher]
    for options, message in (
        (["--end-seconds", "long"], "end_seconds must be a number above 0, not 'long'"),
        (["--end-seconds", "-1"], "end_seconds must be a number above 0, not -1"),
        (["--end-secs", "1"], "unknown option '--end-secs'; did you mean '--end-seconds'?"),
        (["--ray-wait", "5"], "--ray-wait is an option of --launcher ray"),
        (["--learners", "2"], "the plain_threads launcher has one process"),
    ):
        with pytest.raises(CallboardError, match=re.escape(message)):
            train_command([*base, *options])
    assert train_command(["--launcher", own_launcher, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--end-seconds: a number above 0 (10.0)\n      seconds that nodes have to end." in text
    assert "--ray-cpus" in text and "--cluster: a path (needed)" in text


@pytest.mark.parametrize(
    "launcher, settings, message",
    [
        (ThreadsLauncher(), {"learners": 2}, "each of 2 learners needs its own"),
        (ProcessesLauncher(), {"run_dir": "s3://bucket/run"}, "needs a run directory that is a path"),
    ],
)
def test_an_experiment_that_a_launcher_cannot_run_is_refused(launcher, settings, message):
    with pytest.raises(CallboardError, match=re.escape(message)):
        launcher.check(Experiment(**{"agent": None, "env": "CartPole-v1", **settings}))


def test_every_machine_checks_the_part_of_the_run_that_it_has(tmp_path):
    cluster = tmp_path / "cluster.yaml"
    nodes = {"learner": ["a", "b"], "replay": ["a", "b", "b"], "actor": {"a": 1, "c": 4}}
    cluster.write_text(yaml.safe_dump({"hosts": dict.fromkeys("abc", "127.0.0.1"), "ports": "23000-23099", **nodes}))
    hosts = {host: HostsLauncher(cluster, host) for host in "abc"}
    experiment = hosts["a"].fit(Experiment(None, "CartPole-v1"))
    assert (experiment.learners, experiment.replay_shards, experiment.actors) == (2, 3, 5)
    assert hosts["a"].local_nodes(experiment) == LocalNodes(1, [0], checkpoints=True)
    assert hosts["b"].local_nodes(experiment) == LocalNodes(1, [1, 2], checkpoints=False, coordinator=False)
    assert hosts["c"].local_nodes(experiment) == LocalNodes(0, [], checkpoints=False, coordinator=False)
    assert ProcessesLauncher().local_nodes(experiment) == LocalNodes(2, range(3))
    assert RayLauncher().local_nodes(experiment) == LocalNodes(0, range(3), coordinator=False)
    with pytest.raises(CallboardError, match="actors is 2, and .* places 5; leave it out"):
        hosts["a"].fit(Experiment(None, "CartPole-v1"), given=["actors"])
