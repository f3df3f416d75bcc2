"""The definition of a run: its defaults, ranges and contradictions, and its layout."""

import dataclasses
import functools
import sys

import gymnasium
import pytest

import callboard
from callboard.agents.apex import Apex
from callboard.agents.drq import DrQ
from callboard.agents.impala import Impala
from callboard.agents.sac import Sac
from callboard.agents.settings.bonus_settings import OffPolicyBonusSettings
from callboard.environments import python_factory
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment, check_settings
from callboard.launch.experiments.settings import read_experiment, write_experiment

CURIOUS = Apex(bonus=OffPolicyBonusSettings(name="rnd"))


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"actors": 0, "dataset": "recorded", "max_learner_steps": 1, "agent": CURIOUS},
            "agent.bonus is for actors, and",
        ),
        ({"actors": 0}, "a run without actors learns from recorded episodes: name a dataset, or set actors to 1"),
        ({"evaluation_envs": 30}, "evaluation_episodes (100) must be a multiple of evaluation_envs (30)"),
        ({"seed": -1}, "seed must be a whole number from 0 to 2,147,483,647, not -1"),
        ({"evaluator": False, "stop_return": 1.0}, "stop_return needs the evaluator"),
        ({"env": "CartPol-v1"}, "did you mean 'CartPole-v1'?"),
        ({"agent": Apex(), "env": "Pendulum-v1"}, "needs one discrete action"),
        ({"agent": Impala(batch_size=24)}, "set agent.batch_size to 16 or 32"),
        ({"agent": Apex(), "evaluation_mode": "sampled"}, "leave evaluation_mode at greedy, and set agent.evaluation_"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(settings, message):
    with pytest.raises(CallboardError) as caught:
        check_experiment(Experiment(**{"agent": Impala(), "env": "CartPole-v1", **settings}))
    assert message in str(caught.value)


def make_cartpole(max_episode_steps=500):
    return gymnasium.make("CartPole-v1", max_episode_steps=max_episode_steps)


def test_classes_and_functions_become_names_by_which_a_resumed_run_finds_them(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "own_environments", sys.modules[__name__])
    monkeypatch.setattr(make_cartpole, "__module__", "own_environments")
    experiment = Experiment(Impala(), functools.partial(make_cartpole, max_episode_steps=7), {"vectorized": False})
    assert experiment.env == "own_environments:make_cartpole"
    assert experiment.env_options == {"max_episode_steps": 7, "vectorized": False}
    mixed = Experiment(Impala(), [make_cartpole, {"name": "CartPole-v1", "weight": 2.5}], run_dir=tmp_path)
    assert [entry.name for entry in mixed.env] == ["own_environments:make_cartpole", "CartPole-v1"]
    for written in (dataclasses.replace(experiment, run_dir=tmp_path), mixed):
        write_experiment(written, tmp_path / "experiment.yaml")
        assert read_experiment(tmp_path) == dataclasses.replace(written, run_dir=tmp_path)
    assert Experiment(Impala(), lambda: make_cartpole(9)).layout().spec == mixed.layout().spec
    with pytest.raises(CallboardError, match="is already made: give its name, its class or a function"):
        Experiment(Impala(), make_cartpole())


def test_the_defaults_can_run():
    check_settings(Experiment(None, "CartPole-v1"))
    central = Experiment(None, "CartPole-v1", inference="central", inference_nodes=2)
    check_settings(central)
    assert Experiment(None, "A").env_options is not Experiment(None, "A").env_options


def test_the_layout_has_the_numbers_of_the_run_and_acting_needs_no_devices_of_learners():
    experiment = Experiment(Impala(), "CartPole-v1", learners=2, actors=3, envs_per_actor=5, seed=4, max_steps=70)
    layout = experiment.layout()
    assert (layout.actors, layout.envs_per_actor, layout.seed, layout.max_steps) == (3, 5, 4, 70)
    assert (layout.learners, layout.replicas) == (2, 2)
    assert layout.spec.action.num_values == 2
    on_gpus = dataclasses.replace(experiment, learner_devices="all")
    assert (on_gpus.acting_layout().learners, on_gpus.acting_layout().replicas) == (1, 1)


def test_evaluations_are_greedy_or_sampled_as_the_agent_can():
    assert Experiment(Impala(), "A").evaluation_policy_mode() == "evaluate"
    assert Experiment(Impala(), "A", evaluation_mode="sampled").evaluation_policy_mode() == "sample"


def test_a_registered_environment_is_kept_as_itself(monkeypatch):
    monkeypatch.setattr(python_factory, "_registered", {})

    def pole(length=1.0, size=1):
        return gymnasium.make("CartPole-v1")

    callboard.register_environment("pole", functools.partial(pole, length=2.0))
    experiment = Experiment("ppo", env="pole", env_options={"size": 3})
    assert experiment.env is pole and experiment.env_options == {"length": 2.0, "size": 3}


@pytest.mark.parametrize(
    "agent, set_to, expected", [(Apex(), {}, 16), (Sac(), {}, 1), (DrQ(), {}, 1), (Sac(), {"envs_per_actor": 4}, 4)]
)
def test_an_actor_steps_as_many_environments_as_its_agent_wants_unless_they_are_set(agent, set_to, expected, tmp_path):
    experiment = Experiment(agent, env="CartPole-v1", **set_to)
    assert experiment.envs_per_actor == expected
    assert dataclasses.replace(experiment, seed=2).envs_per_actor == expected
    # A run continues with the number that it began with, also if the agent would have another one today.
    write_experiment(experiment, tmp_path / "experiment.yaml")
    assert f"envs_per_actor: {expected}\n" in (tmp_path / "experiment.yaml").read_text()
