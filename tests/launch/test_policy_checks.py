"""What is refused before a run with several policies starts."""

import pytest

from callboard.agents.apex import Apex
from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.policy_settings import RandomPolicy, Snapshots

PPO = Ppo(unroll_length=8, batch_size=8, minibatches=2, epochs=1)
BOTH: dict[str, dict] = {"left": {}, "right": {}}
SELF_PLAY = {"main": {}, "past": Snapshots("main")}


def check(env="echo_agents:Echo", **settings):
    return Experiment(PPO, env, **{"actors": 1, "envs_per_actor": 4, **settings}).check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies": BOTH, "env_wrappers": ("ClipReward",)}, "env_wrappers is for environments with one agent"),
        ({"policies": BOTH, "env_processes": True}, "env_processes is for environments with one agent"),
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
    ],
)
def test_what_can_work(settings):
    assert check(**settings).agents_per_env in (1, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policies", {"left": {}}),
        ("mapping", {"*": "left"}),
        ("evaluation_mapping", {"*": "left"}),
        ("train", "left"),
        ("agent_groups", {"team": ["left"]}),
        ("agent_index", True),
        ("agent_state", "observations"),
    ],
)
def test_settings_for_several_agents_need_several(name, value):
    with pytest.raises(
        CallboardError, match=f"{name} is for environments with several agents, and CartPole-v1 has one"
    ):
        check("CartPole-v1", **{name: value})
