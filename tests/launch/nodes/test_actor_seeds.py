"""A run that is resumed sees new episodes with new noise, and inline it stays reproducible."""

import os
import shutil
import signal

import numpy as np
import pytest

from callboard.agents.impala import Impala
from callboard.environments import environment_seeds
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.acting import acting_environments, policy_actors
from callboard.launch.run import run
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import RunDirectory
from callboard.settings.nested_settings import from_values


class Silent:
    def status(self, status):
        pass

    def notify(self, text):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["local", "central"])
def test_a_resumed_run_has_new_seeds_that_repeat_when_the_same_checkpoint_is_resumed_again(
    inference, tmp_path, monkeypatch
):
    seeds = []

    def make(env, count, of_environments, *arguments, **named):
        seeds.append(("environments", *of_environments))
        return make_environments(env, count, of_environments, *arguments, **named)

    def policy_seed(*arguments):
        seeds.append(("policy", arguments[0], *arguments[2:]))
        return make_policy_seed(*arguments)

    make_environments, make_policy_seed = acting_environments.make, policy_actors.policy_seed
    monkeypatch.setattr(acting_environments, "make", make)
    for module in ("callboard.agents.policies.acting", "callboard.launch.nodes.acting.policy_actors"):
        monkeypatch.setattr(f"{module}.policy_seed", policy_seed)

    def play(name, max_steps, resume=False):
        """The seeds of a run, and the weights that it ends with."""
        seeds.clear()
        experiment = Experiment(
            agent=from_values(Impala, {"batch_size": 4, "network.hidden_sizes": (8,)}),
            env="CartPole-v1",
            actors=1,
            envs_per_actor=4,
            inference=inference,
            evaluator=False,
            max_steps=max_steps,
            run_dir=tmp_path / name,
        )
        outcome = run(experiment, "inline", Silent(), resume=resume)
        assert outcome.exit_code == 0, outcome
        latest = Checkpoints(RunDirectory(tmp_path / name)).latest()
        with np.load(latest / "policy.npz") as file:
            return list(seeds), {key: file[key].tobytes() for key in file.files if key != "names"}, latest.name

    fresh, _, _ = play("run", 400)
    assert {kind for kind, *_ in fresh} == {"environments", "policy"}
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    resumed, *ended = play("run", 800, resume=True)
    assert not set(resumed) & set(fresh)
    assert play("copy", 800, resume=True) == (resumed, *ended)


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["local", "central"])
def test_an_actor_that_is_started_again_has_new_seeds(train, tmp_path, inference):
    env = "broken_environments:NotesItsSeed"
    settings = [
        "--inference",
        inference,
        "--actors",
        1,
        "--envs-per-actor",
        2,
        "--evaluator",
        "false",
        "--check-env",
        "false",
    ]
    run = train("--env", env, *settings, "--max-steps", 10_000_000, recipe=None)

    def seeds():
        file = tmp_path / "seeds.txt"
        return file.read_text().split() if file.exists() else []

    run.wait_until(lambda: len(seeds()) == 2)
    assert seeds() == [str(seed) for seed in environment_seeds(1, "actor", 0, 2)]
    run.wait_for_steps(1)
    for incarnation in (1, 2):
        os.kill(run.pid_of("actor/0"), signal.SIGKILL)
        run.wait_until(lambda expected=2 * incarnation + 2: len(seeds()) == expected)
    run.interrupt()
    assert run.wait() == 130
    assert len(set(seeds())) == 6
