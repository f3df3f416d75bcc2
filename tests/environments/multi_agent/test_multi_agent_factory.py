"""Environments with several agents from names, classes and functions."""

import gymnasium
import pettingzoo_games as games
import pytest
from dm_env.specs import DiscreteArray
from scripted_agents import SPEC, Counting, ScriptedAgents
from scripted_environments import DmScript

from callboard.environments import check_agents_tasks, is_multi_agent, make_multi_agent
from callboard.environments.checks.trial import EnvironmentTrial, try_environment
from callboard.environments.multi_agent.dm_env_agents import DmEnvAgents
from callboard.environments.multi_agent.multi_agent_factory import make_separate_agents
from callboard.environments.multi_agent.pettingzoo_adapter import PettingZooEnvironment
from callboard.errors import CallboardError


@pytest.mark.parametrize(
    "env, several",
    [
        ("pettingzoo:mpe.simple_spread_v3", True),
        ("pettingzoo_games:Race", True),
        (games.Race, True),
        ("pettingzoo_games:annotated", True),
        ("pettingzoo_games:plain", True),
        ("scripted_agents:ScriptedAgents", True),
        ("scripted_agents:Counting", True),
        ("CartPole-v1", False),
        ("ALE/Pong-v5", False),
        ("scripted_environments:DmScript", False),
        ("scripted_environments:GymScript", False),
        ("scripted_environments:SameStepScript", False),
        ("pettingzoo_games:single", False),
        ("pettingzoo_games:number", False),
        ("pettingzoo_games:no_such", False),
        ("no_such_module:thing", False),
        (["CartPole-v1"], False),
        (5, False),
    ],
)
def test_which_environments_have_several_agents(env, several):
    assert is_multi_agent(env) is several


def test_a_function_is_called_with_its_options():
    assert is_multi_agent(lambda kind: Counting() if kind == "dm" else gymnasium.make("CartPole-v1"), {"kind": "dm"})
    assert not is_multi_agent("pettingzoo_games:plain", {"gaol": 3})


@pytest.mark.parametrize("given", [{"env_processes": False}, {"env_wrappers": []}, {"env_previous_inputs": False}])
def test_options_that_are_not_the_functions_are_not_given_to_it(given):
    assert is_multi_agent("pettingzoo_games:plain", given)


def test_a_trial_plays_what_a_function_without_an_annotation_makes():
    try_environment(EnvironmentTrial("pettingzoo_games:plain", steps=3), lambda phase: None, pytest.fail)


def test_a_trial_refuses_settings_that_the_run_refuses():
    with pytest.raises(CallboardError, match="^env_processes is for environments with one agent; leave it out$"):
        try_environment(
            EnvironmentTrial("pettingzoo_games:plain", {"env_processes": True}), lambda phase: None, pytest.fail
        )


def test_a_factory_must_make_an_environment_for_each_slot():
    made = games.Race()
    message = "the factory gives the same object twice, make it anew$"
    with pytest.raises(CallboardError, match=message):
        make_separate_agents(lambda: made, [1, 2])
    with pytest.raises(CallboardError, match=message):
        try_environment(EnvironmentTrial(lambda: made, batch_size=2), lambda phase: None, pytest.fail)
    first, second = make_separate_agents(games.plain, [1, 2], {"goal": 7})
    assert first.unwrapped is not second.unwrapped and second.unwrapped.goal == 7


def test_agents_have_the_same_spaces_in_all_environments():
    def create(index):
        return ScriptedAgents(specs=dict.fromkeys("ab", SPEC._replace(action=DiscreteArray(3 + index % 2))))

    with pytest.raises(
        CallboardError, match="^environments 4 and 5 of .*, agent 'a', have different spaces: .* with 3"
    ):
        make_separate_agents(create, [1, 2], slots=[4, 5])


def test_a_class_and_its_objects_are_known_alike():
    class Single(gymnasium.Env):
        def get_agent_ids(self):
            return {"a"}

    assert not is_multi_agent(Single) and not is_multi_agent(lambda: Single())


@pytest.mark.parametrize(
    "agents, specs",
    [
        ((0, 1), {0: SPEC, 1: SPEC}),
        ("a", {"a": SPEC}),
        (("a", "a"), {"a": SPEC}),
        (("a",), {"a": 5}),
        (("a",), {"a": SPEC, "b": SPEC}),
        (("a",), 5),
        (None, {"a": SPEC}),
    ],
)
def test_names_and_specs_of_an_own_environment_are_checked(agents, specs):
    with pytest.raises(CallboardError, match="must have 'agents', the names of all agents, and 'specs', an Env"):
        make_multi_agent(lambda: ScriptedAgents(agents=agents, specs=specs), 0)


@pytest.mark.parametrize(
    "spec, message",
    [
        (
            SPEC._replace(observation=gymnasium.spaces.Discrete(3)),
            "a Discrete in its observation spec: give one of dm_env.specs, Array or",
        ),
        (
            SPEC._replace(observation={"a": None}),
            "a NoneType in its observation spec: give one of dm_env.specs, Array or",
        ),
        (
            SPEC._replace(action=SPEC.observation),
            "an Array in its action spec: give one of dm_env.specs, BoundedArray or",
        ),
    ],
)
def test_specs_are_those_of_dm_env(spec, message):
    with pytest.raises(CallboardError, match=f"^environment '.*, agent a' has {message}"):
        make_multi_agent(lambda: ScriptedAgents(specs={"a": spec, "b": SPEC}), 0)


def test_every_agent_and_group_needs_a_name():
    message = "has an agent, or a group of agents, without a name: give one$"
    with pytest.raises(CallboardError, match=message):
        make_multi_agent(lambda: ScriptedAgents(agents=("", "b")), 0)
    with pytest.raises(CallboardError, match=message):
        make_multi_agent(ScriptedAgents, 0, groups={"": ["a", "b"]})


def test_a_function_is_called_once():
    class Factory:
        __hash__ = None

        def __init__(self):
            self.calls = []

        def __call__(self, size):
            self.calls.append(size)
            return Counting()

    factory = Factory()
    assert [is_multi_agent(factory, {"size": size}) for size in (1, 1, 2)] == [True] * 3
    assert factory.calls == [1, 2]


def test_a_method_is_called_once():
    class Maker:
        calls = []

        @classmethod
        def make(cls):
            cls.calls.append(cls)
            return games.Race()

    class Other(Maker):
        pass

    assert is_multi_agent(Maker.make) and is_multi_agent(Maker.make) and is_multi_agent(Other.make)
    assert Maker.calls == [Maker, Other]


def test_classes_are_not_called():
    class Single(DmScript):
        def __init__(self):
            raise AssertionError("called, although its class has one reward")

    assert not is_multi_agent(Single)


def test_tasks_are_tried_with_an_environment():
    made = []

    class Restarted(ScriptedAgents):
        def reset(self, seed=None):
            self.is_over = True
            return super().reset(seed)

    def make():
        made.append(Restarted([{}, {}], [{}, {}]))
        return made[-1]

    options = {"groups": {}, "agent_index": False, "state": None}
    check_agents_tasks(make, None, options, [None, 3, None, 5])
    (environment,) = made
    assert environment.tasks == [3, 5] and environment.closed == 1
    check_agents_tasks(make, None, options, [None])
    assert len(made) == 1


def test_factories():
    environment = make_multi_agent("pettingzoo_games:plain", 0, {"goal": 7})
    assert isinstance(environment._environment, PettingZooEnvironment) and environment.unwrapped.goal == 7
    environment = make_multi_agent("scripted_agents:Counting", 5)
    assert isinstance(environment._environment, DmEnvAgents) and environment.unwrapped.seed == 5
    assert isinstance(make_multi_agent(ScriptedAgents, 0)._environment, ScriptedAgents)


@pytest.mark.parametrize(
    "env, options, settings, message",
    [
        (
            "CartPole-v1",
            {},
            {},
            "environment 'CartPole-v1' has one agent: leave policies, mapping and agent_groups out",
        ),
        (
            "pettingzoo_games:single",
            {},
            {},
            "environment 'pettingzoo_games:single' has one agent: leave policies, mapping and agent_groups out",
        ),
        (
            "pettingzoo_games:number",
            {},
            {},
            "environment 'pettingzoo_games:number' is of type int: the factory must give a PettingZoo ParallelEnv or "
            "AECEnv, an RLlib MultiAgentEnv, a callboard MultiAgentEnvironment, or a dm_env.Environment with mappings "
            "by agent",
        ),
        (
            "pettingzoo_games:plain",
            {"gaol": 1},
            {},
            "environment 'pettingzoo_games:plain' has no option 'gaol'; did you mean 'goal'?",
        ),
        (
            "scripted_environments:DmScript",
            {},
            {},
            "scripted_environments:DmScript must have mappings by agent as observation_spec and action_spec, with the "
            "same agents",
        ),
        (
            "scripted_agents:ScriptedAgents",
            {"agents": ["a", "b"], "specs": {"a": 1}},
            {},
            "environment 'scripted_agents:ScriptedAgents' must have 'agents', the names of all agents, and 'specs', an "
            "EnvironmentSpec for each of them; it has ['a', 'b'], and {'a': 'int'}",
        ),
        (
            "pettingzoo_games:plain",
            {},
            {"state": "obs"},
            "agent_state must be observations, observations_and_actions, environment or null, not 'obs'",
        ),
    ],
)
def test_mistakes(env, options, settings, message):
    with pytest.raises(CallboardError) as caught:
        make_multi_agent(env, 0, options, **settings)
    assert str(caught.value) == message


def test_groups_are_patterns_or_a_pattern():
    for patterns in ("*", ["left", "2"]):
        assert make_multi_agent("pettingzoo_games:Race", 0, groups={"team": patterns}).agents == ("team",)
    with pytest.raises(CallboardError, match=r"^agent_groups.team must be text or a list of texts, .*, not 3$"):
        make_multi_agent("pettingzoo_games:Race", 0, groups={"team": 3})
    with pytest.raises(CallboardError, match="^agent_groups must be settings by name, such as .*, not 'team'$"):
        make_multi_agent("pettingzoo_games:Race", 0, groups="team")


def test_what_is_added_to_observations():
    settings = {"groups": {"team": ["*"]}, "agent_index": True, "state": "observations_and_actions"}
    environment = make_multi_agent("pettingzoo_games:Race", 0, **settings)
    assert environment.agents == ("team",)
    steps = environment.reset()
    steps = environment.step({"team": {"left": 1, "2": 0}})
    observation = steps["team"].observation
    assert {key: value.tolist() for key, value in observation.items()} == {
        "left": [2],
        "2": [1],
        "present": [1, 1],
        "agent_index": [1],
        "state": [2, 0, 1, 0, 1, 1, 0, 0],
    }
    assert steps["team"].reward == 3
    state = make_multi_agent("pettingzoo_games:Race", 0, state="environment").reset()["left"].observation["state"]
    assert state.tolist() == [0, 0]
