"""What is refused before a run with several policies starts."""

import pytest

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.launch.experiments.curriculum import Stage
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.policy_settings import RandomPolicy, Snapshots
from callboard.launch.experiments.run_checks import check_experiment

PPO = Ppo(unroll_length=8, batch_size=8, minibatches=2, epochs=1)
BOTH: dict[str, dict] = {"left": {}, "right": {}}
SELF_PLAY = {"main": {}, "past": Snapshots("main")}


def always_left(agent, episode, rng):
    return "left"


def check(env="echo_agents:Echo", **settings):
    return check_experiment(Experiment(PPO, env, **{"actors": 1, "envs_per_actor": 4, **settings})).whole


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies": BOTH, "env_wrappers": ("ClipReward",)}, "env_wrappers is for environments with one agent"),
        ({"policies": BOTH, "env_processes": True}, "env_processes is for environments with one agent"),
        ({"policies": BOTH, "env_previous_inputs": True}, "env_previous_inputs is for environments with one agent"),
        ({"policies": {**BOTH, "more": {}}}, "no agent can get the policy 'more'"),
        (
            {"policies": SELF_PLAY, "mapping": {"left": "main", "right": "past"}},
            "the snapshots 'past' cannot play for 'right': 'main' learns with .* and the agent has",
        ),
        (
            {
                "policies": {"one": {}, "two": {}, "random": RandomPolicy()},
                "mapping": {"left": "one", "right": "two"},
                "evaluation_mapping": {"left": "random", "right": "one"},
            },
            "the policy 'one' cannot play for 'right': 'one' learns with",
        ),
        (
            {
                "policies": {**BOTH, "other": RandomPolicy(), "another": RandomPolicy()},
                "mapping": {"left": "left", "right": "right"},
                "evaluation_mapping": {"left": "other", "right": "another"},
            },
            "no policy that learns plays in evaluations",
        ),
        (
            {
                "policies": {"left": {}, "right": {}, "spare": {}},
                "mapping": {"left": "left", "right": "right"},
                "evaluation_mapping": {"left": "spare", "right": "right"},
            },
            "the policy 'spare' is to learn, and no agent gets it in training",
        ),
        (
            {"policies": {"left": {}, "right": Ppo(batch_size=7, unroll_length=5, minibatches=4)}},
            "the policy 'right': ",
        ),
        ({"policies": {"left": {}, "right": {"name": "td3"}}}, "the policy 'right': "),
        ({"policies": BOTH, "init_from": "runs/x"}, "init_from is for environments with one agent; let a policy play"),
        ({"policies": BOTH, "evaluation_task": 3}, "Echo cannot be set to a task: override 'set_task'"),
        ({"policies": BOTH, "curriculum": (Stage("easy"),)}, "Echo cannot be set to a task: override 'set_task'"),
        (
            {"policies": BOTH, "stop_when": "learner/loss < 1"},
            "stop_when 'learner/loss < 1' never holds: .* name of a policy, as left/learner/loss does",
        ),
        (
            {"policies": BOTH, "stop_when": "right/learner/los < 1"},
            "the policy 'right': unknown metric in stop_when 'learner/los'; did you mean 'learner/loss'",
        ),
        (
            {"policies": {"left": {}, "right": Apex()}, "stop_when": "right/learner/clip_fraction < 1"},
            "the policy 'right': .* cannot work: learner/clip_fraction is a metric of .*, not of apex",
        ),
        (
            {"policies": BOTH, "curriculum": (Stage(), Stage(when="left/episode_retrun > 1"))},
            "the policy 'left': unknown metric in curriculum: when 'episode_retrun'; did you mean 'episode_return'",
        ),
        (
            {"policies": BOTH, "stop_when": "agent/lefd/episode_return > 1"},
            "unknown metric in stop_when 'agent/lefd/episode_return'; did you mean 'agent/left/episode_return'",
        ),
        (
            {"policies": BOTH, "stop_when": "evaluator/left/rating > 1"},
            "unknown metric in stop_when 'evaluator/left/rating'; did you mean 'evaluator/left/return'",
        ),
        (
            {"policies": BOTH, "mapping": always_left, "env_options": {"alike": True}},
            "no agent of the environment gets the policy 'right' in the 100 or more episodes for which the mapping was",
        ),
        (
            {"env_options": {"alike": True}, "envs_per_actor": 3},
            "the policy 'shared', which plays for 2 agents of each environment: .* agent.batch_size a multiple of 3 "
            r"\(1 actors x 3 environments\), not 8",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, message):
    with pytest.raises(CallboardError, match=message) as error:
        check(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"policies": {"left": {}, "right": Apex()}},
        {"policies": {"left": {}, "right": RandomPolicy()}},
        {"policies": SELF_PLAY, "mapping": {"left": "main", "right": "past"}, "env_options": {"alike": True}},
        {"env_options": {"alike": True}},
        # A head for each of two agents whose spaces differ.
        {"policies": {"one": {"network": {"heads_by": "agent_index"}}}, "agent_padding": True, "agent_index": True},
        {"policies": BOTH, "stop_when": ("left/learner/loss < 1", "right/rating_3 > 9", "learner/duplicate_items > 1")},
        {"policies": BOTH, "stop_when": ("agent/left/episode_return > 1", "evaluator/agent/right/return > 1")},
        {"policies": BOTH, "stop_when": ("evaluator/left/score > 1", "evaluator/return > 1")},
        {"policies": BOTH, "env": "echo_agents:Taught", "evaluation_task": {"length": 3}},
        {"policies": BOTH, "env": "echo_agents:Taught", "curriculum": (Stage(), Stage(when="left/score > 0.5"))},
    ],
)
def test_what_can_work(settings):
    assert check(**settings).agents_per_env in (1, 2)


def test_an_environment_with_several_agents_is_refused_in_a_list():
    with pytest.raises(CallboardError, match="environments in a list have one agent each, and echo_agents:Echo has"):
        check(["CartPole-v1", "echo_agents:Echo"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policies", {"left": {}}),
        ("mapping", {"*": "left"}),
        ("evaluation_mapping", {"*": "left"}),
        ("train", "left"),
        ("agent_groups", {"team": ["left"]}),
        ("agent_index", True),
        ("agent_padding", True),
        ("agent_state", "observations"),
    ],
)
def test_settings_for_several_agents_need_several(name, value):
    with pytest.raises(
        CallboardError, match=f"{name} is for environments with several agents, and CartPole-v1 has one"
    ):
        check("CartPole-v1", **{name: value})
