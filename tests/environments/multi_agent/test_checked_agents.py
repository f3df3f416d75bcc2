"""What environments with several agents give is checked by agent, whatever their interface is."""

import dm_env
import numpy as np
import pytest
import scripted_faults as faulty
from dm_env import specs
from gymnasium import spaces
from scripted_agents import SPEC, ScriptedAgents, seen

from callboard.environments import AgentStep, MultiAgentEnvironment, PolicyBatches, make_multi_agent, parse_mapping
from callboard.environments.multi_agent.checked_agents import AgentBounds, CheckedAgents
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec


def test_a_mask_must_allow_an_action_before_the_end():
    mask = specs.BoundedArray((2,), np.int8, 0, 1)
    spec = EnvironmentSpec({"observation": SPEC.observation, "action_mask": mask}, specs.DiscreteArray(2))

    def shown(mask, end=""):
        step = seen(0, 0.0, end)
        return step._replace(observation={"observation": step.observation, "action_mask": np.array(mask, np.int8)})

    steps = [{"b": shown([0, 1])}, {"b": shown([0, 0], "terminated")}, {"a": shown([1, 0]), "b": shown([0, 0])}, {}]
    environment = CheckedAgents(ScriptedAgents(steps, specs={"a": spec, "b": spec}), "game")
    environment.reset()
    environment.step({"b": 0})
    with pytest.raises(CallboardError, match="^agent 'b' of game has an action mask that allows nothing: let its part"):
        environment.step({})

    steps = [{"b": shown([0, 1])}, {"b": shown([0, 5], "terminated")}, {}]
    environment = CheckedAgents(ScriptedAgents(steps, specs={"a": spec, "b": spec}), "game")
    environment.reset()
    with pytest.raises(CallboardError, match="^agent 'b' of game: an action mask contains 5: let it be 1"):
        environment.step({"b": 0})


def test_values_outside_of_bounds_are_reported_once_for_all_environments():
    spec = EnvironmentSpec(specs.BoundedArray((1,), np.float32, -1, 1), specs.DiscreteArray(100))
    warnings = []
    bounds = AgentBounds(warnings.append)
    for _ in range(2):
        made = ScriptedAgents([{"a": seen(0)}, {"a": seen(3), "b": seen(1)}, {}], specs={"a": spec, "b": spec})
        environment = CheckedAgents(made, "game", bounds)
        environment.reset()
        environment.step({"a": 0})
    assert warnings == [
        "environment 'game, agent a' gives 3 in its observation, outside of the bounds of its space, -1 to 1: correct "
        "the bounds, which networks may scale by"
    ]


@pytest.mark.parametrize(
    "given, message",
    [
        (None, "^'reset' of game must return a dictionary of an AgentStep by agent$"),
        ({"a": np.zeros(1, np.float32)}, "^'reset' of game gives agent 'a' array.*, no AgentStep$"),
        ({"a": seen(1)._replace(info="x")}, "^'reset' of game gives agent 'a' the info 'x', no dictionary$"),
        (
            {"a": seen(1)._replace(reward=1e39)},
            "gives agent 'a' the reward 1e[+]39: it must be a finite number of float",
        ),
    ],
)
def test_what_is_no_step_of_an_agent_is_refused(given, message):
    environment = ScriptedAgents([{"a": seen(0)}, {}])
    environment.reset = lambda seed=None: given
    with pytest.raises(CallboardError, match=message):
        CheckedAgents(environment, "game").reset()


@pytest.mark.parametrize(
    "is_over, message",
    [
        (True, "^'reset' of game leaves is_over True: let it be False after a reset$"),
        (None, "^'reset' of game leaves is_over None: it must be True or False$"),
    ],
)
def test_a_reset_must_begin_an_episode(is_over, message):
    environment = ScriptedAgents()

    def reset(seed=None):
        environment.is_over = is_over
        return {"a": seen(1)}

    environment.reset = reset
    with pytest.raises(CallboardError, match=message):
        CheckedAgents(environment, "game").reset()


PARTS = ("observations", "rewards", "terminations", "truncations", "infos")


class Strange:
    """Names in one of its dictionaries an agent that it does not list."""

    def __init__(self, what):
        super().__init__()
        self._what = what

    def step(self, actions):
        given = dict(zip(PARTS, super().step(actions), strict=True))
        if self._what == "agents":
            self.agents = [*self.agents, "c"]
        else:
            given[self._what]["c"] = given[self._what].get("b", {})
        return tuple(given.values())


class StrangeParallel(Strange, faulty.Parallel):
    pass


class StrangeRllib(Strange, faulty.Rllib):
    pass


class StrangeDm(faulty.DmAgents):
    def __init__(self, what):
        super().__init__()
        self._what = what

    def step(self, actions):
        timestep = super().step(actions)
        if self._what == "infos":
            return timestep
        given = getattr(timestep, self._what.removesuffix("s"))
        return timestep._replace(**{self._what.removesuffix("s"): {**given, "c": given["b"]}})

    def info(self):
        return {"c": {}} if self._what == "infos" else {}


class StrangeOwn(ScriptedAgents):
    def __init__(self, what):
        super().__init__([{"a": seen(0)}, {"a": seen(1), "c": seen(1)}, {}])


STRANGE = [
    *((StrangeParallel, what) for what in (*PARTS, "agents")),
    *((StrangeRllib, what) for what in PARTS),
    *((StrangeDm, what) for what in ("observations", "rewards", "discounts", "infos")),
    (StrangeOwn, "what 'step'"),
]


@pytest.mark.parametrize("create, what", STRANGE, ids=lambda one: getattr(one, "__name__", one))
def test_an_agent_that_is_not_listed_is_named_wherever_it_is_given(create, what):
    environment = make_multi_agent(lambda: create(what), 0)
    with pytest.raises(CallboardError, match=rf"^unknown agent in (the )?{what} .*: 'c'; choose from a, b$"):
        steps = environment.reset()
        environment.step(dict.fromkeys(steps, 0))


# What agent `b` is given in each call: whether it is observed, its reward, and whether it terminates.
GIVEN = [(False, 0.0, False), (True, 0.0, False), (True, 1.0, True), (True, 5.0, True), (False, 0.0, False)]
BOX, CHOICE = spaces.Box(-1, 9, (1,), np.float32), spaces.Discrete(2)


class ParallelParts:
    """Agent `b` appears late, terminates, and is given once more as if it ended again; `a` is cut off at the end."""

    metadata: dict = {}
    possible_agents = ["a", "b"]
    unwrapped = None

    def observation_space(self, agent):
        return BOX

    def action_space(self, agent):
        return CHOICE

    def reset(self, seed=None, options=None):
        self.time, self.agents = 0, ["a", "b"]
        return {"a": np.zeros(1, np.float32)}, {}

    def step(self, actions):
        self.time += 1
        observed, reward, terminated = GIVEN[self.time]
        cut = self.time == 4
        self.agents = [] if cut else ["a"] if self.time > 1 else ["a", "b"]
        names = ["a", *(["b"] if observed else [])]
        observations = {agent: np.full(1, self.time, np.float32) for agent in names}
        return observations, {"a": 0.0, "b": reward}, {"a": False, "b": terminated}, {"a": cut, "b": False}, {}

    def close(self):
        pass


class RllibParts(ParallelParts):
    observation_spaces, action_spaces = {"a": BOX, "b": BOX}, {"a": CHOICE, "b": CHOICE}
    observation_space = action_space = None  # type: ignore[assignment]

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, {agent: rewards[agent] for agent in observations}, terminated, truncated, infos


class DmParts(dm_env.Environment):
    def reset(self):
        self._parts = ParallelParts()
        return dm_env.restart(self._parts.reset()[0])

    def step(self, actions):
        observations, rewards, terminated, truncated, _ = self._parts.step(actions)
        kind = dm_env.StepType.LAST if truncated["a"] else dm_env.StepType.MID
        return dm_env.TimeStep(kind, rewards, {one: float(not end) for one, end in terminated.items()}, observations)

    def observation_spec(self):
        return dict.fromkeys("ab", specs.Array((1,), np.float32))

    def action_spec(self):
        return dict.fromkeys("ab", specs.DiscreteArray(2))

    def reward_spec(self):
        return dict.fromkeys("ab", specs.Array((), np.float64))


class OwnParts(MultiAgentEnvironment):
    agents = ("a", "b")
    specs = dict.fromkeys("ab", EnvironmentSpec(specs.Array((1,), np.float32), specs.DiscreteArray(2)))

    def reset(self, seed=None):
        self._parts, self.is_over = ParallelParts(), False
        return {agent: AgentStep(one) for agent, one in self._parts.reset()[0].items()}

    def step(self, actions):
        observations, rewards, terminated, truncated, _ = self._parts.step(actions)
        self.is_over = truncated["a"]
        return {
            agent: AgentStep(one, rewards[agent], terminated[agent], truncated[agent])
            for agent, one in observations.items()
        }


@pytest.mark.parametrize("create", [ParallelParts, RllibParts, DmParts, OwnParts])
def test_an_agent_that_appears_late_ends_and_is_given_once_more(create):
    mapping = parse_mapping(None, ("a", "b"), {"p": None})
    batch = PolicyBatches([make_multi_agent(create, 0)], mapping, ["p"], [0])
    timesteps = [batch.reset()["p"], *(batch.step({"p": np.zeros(2, np.int32)})["p"] for _ in range(4))]
    shown = [[tuple(float(part[slot]) for part in one[1:]) for one in timesteps] for slot in (0, 1)]
    # Reward, discount, first, last; one that is first and last at once has no transition.
    absent, middle = (0, 1, 1, 1), (0, 1, 0, 0)
    assert shown[0] == [(0, 1, 1, 0), middle, middle, middle, (0, 1, 0, 1)]
    assert shown[1] == [absent, (0, 1, 1, 0), (1, 0, 0, 1), absent, absent]
    (episode,) = batch.take_episodes()
    assert episode.returns == {"a": 0.0, "b": 1.0}
