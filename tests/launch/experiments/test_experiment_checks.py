"""Settings of an experiment that contradict each other are refused before anything starts."""

import re

import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment, check_settings


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"evaluation_mode": "best"}, "evaluation_mode must be greedy or sampled, not 'best'"),
        ({"inference": "remote"}, "inference must be local or central, not 'remote'"),
        ({"inference_nodes": 2}, "2 inference nodes are for central inference"),
        ({"inference": "central", "inference_nodes": 3}, "set inference_nodes to at most 2"),
        ({"record_infos": "success"}, "record_infos are infos of the episodes that are recorded: set record_episodes"),
        ({"record_limit": 1.0}, "record_limit is of the episodes that are recorded: set record_episodes to true"),
        ({"prometheus_host": "0.0.0.0"}, "set prometheus_port, such as 9090"),
        ({"policy_server_silence": 5.0}, "policy_server_silence is for simulators that connect: set policy_server"),
        ({"record_infos": ("a", "a")}, "record_infos: 'a' is named twice"),
        ({"replay_shards": 3}, "each of 3 replay shards needs an actor"),
        ({"max_steps": 0}, "max_steps must be a whole number from 1"),
        ({"node_timeout": 0.0}, "node_timeout must be a number above 0"),
        ({"checkpoint_every": float("nan")}, "checkpoint_every must be a number above 0"),
        ({"stop_return": float("inf")}, "stop_return must be a number that is finite"),
    ],
)
def test_numbers_are_refused_before_the_agent_is_known(settings, message):
    with pytest.raises(CallboardError) as caught:
        check_settings(Experiment(**{"agent": None, "env": "CartPole-v1", **settings}))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            {"actors": 1},
            "'B' with weight 0.1 gets none of the 4 slots: increase actors * envs_per_actor, or its weight",
        ),
        (
            {"evaluation_envs": 4},
            "'B' with weight 0.1 gets none of the 4 slots: increase evaluation_envs, or its weight",
        ),
        ({}, ""),
        ({"evaluation_envs": 4, "evaluator": False}, ""),
    ],
)
def test_every_environment_of_a_list_needs_a_slot(settings, message):
    env = [{"name": "A"}, {"name": "B", "weight": 0.1}]
    given = {"actors": 5, "envs_per_actor": 4, "evaluation_envs": 20, **settings}
    experiment = Experiment(None, env, **given)
    if not message:
        return check_settings(experiment)
    with pytest.raises(CallboardError, match=re.escape(message)):
        check_settings(experiment)


@pytest.mark.parametrize("metric", ["shared/episode_return", "agent/player/episode_return", "evaluator/shared/return"])
def test_an_environment_with_one_agent_has_no_metrics_of_policies(metric):
    for settings in ({"stop_when": f"{metric} > 1"}, {"curriculum": [{}, {"when": f"{metric} > 1"}]}):
        experiment = Experiment(Impala(), "CartPole-v1", **settings)
        with pytest.raises(CallboardError, match=f"unknown metric in .* '{metric}'; did you mean '"):
            check_experiment(experiment)


@pytest.mark.parametrize(("made", "shown"), [(None, "a NoneType"), ("queue", "a str"), (object(), "an object")])
@pytest.mark.parametrize("settings", [{}, {"actors": 4, "min_actors": 2}])
def test_an_agent_makes_a_replay(made, shown, settings):
    class Mine(Impala):
        def make_replay(self, layout):
            return made

    with pytest.raises(CallboardError, match=f"^Mine.make_replay must return a replay, .*, not {shown};"):
        check_experiment(Experiment(Mine(), "CartPole-v1", **settings))


def test_learners_share_no_processor_and_their_devices_are_checked_where_they_run():
    experiment = Experiment(Impala(), "CartPole-v1", learners=2, learner_devices="CPU:0,CPU:1")
    with pytest.raises(CallboardError, match="each of 2 learners has one device of the processor, not 2"):
        check_experiment(experiment)
    elsewhere = Experiment(Impala(), "CartPole-v1", learner_devices=4)
    assert check_experiment(elsewhere, learners_here=0).whole.replicas == 4


@pytest.mark.parametrize(
    ("settings", "environments"),
    [
        ({}, 20),
        ({"evaluation_episodes": 5}, 5),
        ({"evaluation_episodes": 30}, 15),
        ({"evaluation_episodes": 23}, 1),
        ({"evaluation_episodes": 5, "evaluation_envs": 1}, 1),
    ],
)
def test_the_environments_of_evaluations_follow_from_the_episodes(settings, environments):
    experiment = Experiment(Impala(), "CartPole-v1", **settings)
    check_settings(experiment)
    assert experiment.evaluation_batch() == environments
    assert experiment.evaluation_batch(4) == (1 if experiment.evaluation_envs == 1 else 4)


def test_without_an_evaluator_its_numbers_need_not_fit():
    numbers = {"evaluation_episodes": 5, "evaluation_envs": 20}
    check_settings(Experiment(Impala(), "CartPole-v1", evaluator=False, **numbers))
    with pytest.raises(
        CallboardError, match="evaluation_episodes .5. must be a multiple of evaluation_envs .20.* null"
    ):
        check_settings(Experiment(Impala(), "CartPole-v1", **numbers))
