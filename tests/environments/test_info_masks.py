"""Masks from infos, which become parts of observations."""

import gymnasium
import numpy as np
import pettingzoo_games as games
import pytest
from echo_agents import Echo
from gymnasium import spaces

from callboard.environments import make, make_multi_agent
from callboard.environments import spec as spec_of
from callboard.environments.info_masks import MaskFromInfo, VectorMaskFromInfo
from callboard.errors import CallboardError

MASKS = "callboard.environments.info_masks:MaskFromInfo"
OPTIONS = {"env_wrappers": MASKS}


def test_the_masks_of_taxi():
    found = spec_of("Taxi-v4", OPTIONS)
    assert set(found.observation) == {"action_mask", "observation"} and found.observation["action_mask"].shape == (6,)
    environment, alone = make("Taxi-v4", 1, [3], OPTIONS), gymnasium.make("Taxi-v4")
    timestep, (observation, info) = environment.reset(), alone.reset(seed=3)
    for _ in range(20):
        np.testing.assert_array_equal(timestep.observation["action_mask"], [info["action_mask"]])
        assert timestep.observation["observation"] == observation
        action = int(np.flatnonzero(info["action_mask"])[-1])
        timestep = environment.step(np.array([action], np.int32))
        observation, *_, info = alone.step(action)
    environment.close()


class Parts(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, masks, action_space=None):
        self.action_space = action_space or spaces.MultiDiscrete([2, 3])
        self._infos = iter(masks)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), next(self._infos)

    def step(self, action):
        info = next(self._infos)
        return np.zeros(1, np.float32), 0.0, not info, False, info


def test_a_nest_of_masks_is_concatenated_and_the_last_may_be_missing():
    masks = (np.array([0, 1]), np.array([1, 0, 1]))
    environment = MaskFromInfo(Parts([{"legal": masks}, {"legal": masks}, {}]), key="legal")
    observation, _ = environment.reset()
    assert environment.observation_space.contains(observation)
    assert observation["action_mask"].tolist() == [0, 1, 1, 0, 1]
    environment.step([1, 0])
    observation, _, terminated, *_ = environment.step([1, 0])
    assert terminated and observation["action_mask"].tolist() == [1] * 5


def test_what_does_not_fit_is_refused():
    with pytest.raises(CallboardError, match="Parts gives no 'action_mask' in its info"):
        MaskFromInfo(Parts([{"legal": 1}])).reset()
    with pytest.raises(CallboardError, match="Parts has a mask of 4 elements in its info, for 5 values"):
        MaskFromInfo(Parts([{"action_mask": np.ones(4)}])).reset()
    with pytest.raises(CallboardError, match="Parts has no discrete actions"):
        MaskFromInfo(Parts([], spaces.Box(-1, 1, (2,), np.float32)))


class Old(Parts):
    """The interface of Gym."""

    def reset(self, *, seed=None, options=None):
        return super().reset()[0] if next(self._infos) else super().reset()

    def step(self, action):
        return super().step(action)[:4]


def test_the_old_interface_is_refused():
    given = {"action_mask": np.ones(5)}
    with pytest.raises(CallboardError, match="'reset' of Old gives no info: let it return .observation, info.$"):
        MaskFromInfo(Old([given, given])).reset()
    environment = MaskFromInfo(Old([{}, given, given]))
    environment.reset()
    with pytest.raises(CallboardError, match="'step' of Old returns 4 values, as in the old interface of Gym: let it"):
        environment.step(np.zeros(2, np.int64))
    with pytest.raises(CallboardError, match="Old gives no 'action_mask' in its info"):
        MaskFromInfo(Old([{}, None])).reset()


@pytest.mark.parametrize(
    "mask",
    [
        *([np.nan, 1, 1], [-1, 1, 1], [2, 1, 1], [0.5, 1, 1], [10**400, 1, 1], ["1", "1", "0"], [1j, 1, 1], [None] * 3),
        *("110", None, 7, [], {"a": 1}, b"110", np.full(3, "2020-01-01", "M8[D]"), [[1], np.array(["1", "0"])]),
    ],
    ids=repr,
)
def test_elements_other_than_0_and_1_are_refused(mask):
    with pytest.raises(CallboardError, match="Parts has ") as refused:
        MaskFromInfo(Parts([{"action_mask": mask}], spaces.Discrete(3))).reset()
    assert "\n" not in str(refused.value)


def test_bools_and_whole_floats_are_masks():
    for mask in (np.array([True, False, True]), [1.0, 0.0, 1.0], (1, False, np.int64(1))):
        observation, _ = MaskFromInfo(Parts([{"action_mask": mask}], spaces.Discrete(3))).reset()
        assert observation["action_mask"].tolist() == [1, 0, 1]


class Steps(gymnasium.Env):
    """Only action `time % 3` is legal.  The episode is truncated at an even limit, and terminated at an odd one."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, limit):
        self._limit = limit

    def reset(self, *, seed=None, options=None):
        self._time = 0
        return self._outcome()

    def step(self, action):
        assert action == self._time % 3
        self._time += 1
        observation, info = self._outcome()
        over, odd = self._time == self._limit, self._limit % 2
        return observation, 1.0, bool(over and odd), bool(over and not odd), {} if over and odd else info

    def _outcome(self):
        return np.array([self._time], np.float32), {"legal": np.eye(3, dtype=np.int8)[self._time % 3]}


def steps_batch(batch_size, mode):
    makers = [lambda limit=limit: Steps(limit) for limit in range(2, 2 + batch_size)]
    return gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=gymnasium.vector.AutoresetMode(mode))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_masks_of_vector_environments_belong_to_what_is_shown(mode):
    options = {"mode": mode, "env_wrappers": [{"name": MASKS, "key": "legal"}]}
    environment = make(steps_batch, 3, [0, 0, 0], options)
    assert environment.spec.observation["action_mask"].shape == (3,)
    timestep, seen = environment.reset(), []
    for _ in range(15):
        times = timestep.observation["observation"][:, 0].astype(int)
        legal = np.eye(3)[times % 3]
        # Only infos of steps that terminate have no mask.
        terminated = timestep.last & (timestep.discount == 0)
        np.testing.assert_array_equal(timestep.observation["action_mask"][~terminated], legal[~terminated])
        seen.append(times.tolist())
        timestep = environment.step((times % 3).astype(np.int32))
    environment.close()
    # Final observations of truncated episodes are shown in both modes.
    assert {0: 2, 2: 4} == {row: max(times[row] for times in seen) for row in (0, 2)}


def test_a_vector_environment_takes_no_other_wrapper():
    with pytest.raises(CallboardError, match="is not made of single Gymnasium environments: .* leave env_wrappers out"):
        make(steps_batch, 3, [0, 0, 0], {"mode": "NextStep", "env_wrappers": [MASKS, "ClipReward"]})


class NativeParts(gymnasium.vector.VectorEnv):
    """A batch whose masks are arrays, one for each choice."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
    num_envs = 2
    single_observation_space = spaces.Box(-1, 1, (1,), np.float32)
    single_action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        masks = (np.array([[1, 0], [0, 1]]), np.array([[1, 1, 0], [0, 1, 1]]))
        return np.zeros((2, 1), np.float32), {"action_mask": masks}


def test_masks_of_a_native_vector_environment_with_several_choices():
    observation, _ = VectorMaskFromInfo(NativeParts()).reset()
    assert observation["action_mask"].tolist() == [[1, 0, 1, 1, 0], [0, 1, 0, 1, 1]]


class Turns:
    """Two agents of PettingZoo's parallel interface; the one who may act, by the masks in `infos`, alternates."""

    possible_agents = ["one", "two"]
    metadata: dict = {}
    unwrapped = None

    def observation_space(self, agent):
        return spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3) if agent == "one" else spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self._time = list(self.possible_agents), 0
        return self._observations(), self._infos()

    def step(self, actions):
        self._time += 1
        over = self._time == 4
        self.agents = [] if over else self.agents
        flags = [dict.fromkeys(self.possible_agents, value) for value in (1.0, over, False)]
        return self._observations(), *flags, {} if over else self._infos()

    def _observations(self):
        return dict.fromkeys(self.possible_agents, np.array([self._time], np.float32))

    def _infos(self):
        return {"one": {"action_mask": np.eye(3, dtype=np.int8)[self._time % 3]}, "two": {}}

    def close(self):
        pass


def test_masks_of_pettingzoo_for_the_agents_with_choices():
    environment = make_multi_agent(Turns, 0, OPTIONS)
    assert set(environment.specs["one"].observation) == {"action_mask", "observation"}
    assert environment.specs["two"].observation.shape == (1,)
    steps, seen = environment.reset(), []
    while not environment.is_over:
        seen.append(steps["one"].observation["action_mask"].tolist())
        steps = environment.step({"one": np.int32(0), "two": np.zeros(1, np.float32)})
    assert seen == np.eye(3)[[0, 1, 2, 0]].tolist()
    assert steps["one"].terminated and steps["one"].observation["action_mask"].all()


def connect_four():
    """PettingZoo's game with its masks moved from observations to infos; those of the player who waits are missing."""
    from pettingzoo.utils import BaseWrapper

    class Moved(BaseWrapper):
        def observation_space(self, agent):
            return super().observation_space(agent)["observation"]

        def observe(self, agent):
            return super().observe(agent)["observation"]

        @property
        def infos(self):
            mask = super().observe(self.agent_selection)["action_mask"]
            return {agent: {"action_mask": mask} if agent == self.agent_selection else {} for agent in self.agents}

    return Moved(games.pettingzoo_connect_four())


def test_masks_in_infos_of_a_turn_based_game_are_for_the_agent_whose_turn_it_is():
    pytest.importorskip("pettingzoo")
    environment = make_multi_agent(connect_four, 0, OPTIONS)
    waiting, moving = [1, 0, 0, 0, 0, 0, 0], [1] * 7

    def masks(steps):
        return [step.observation["action_mask"].tolist() for step in steps.values()]

    assert masks(environment.reset(seed=0)) == [moving, waiting]
    assert masks(environment.step({"player_0": 3, "player_1": 6})) == [waiting, moving]


class WithoutMasks(Turns):
    def _infos(self):
        return {agent: {} for agent in self.possible_agents}


def test_other_wrappers_and_missing_masks_of_several_agents_are_refused():
    with pytest.raises(CallboardError, match="^agent 'one' of .*WithoutMasks gives no 'action_mask' in its info$"):
        make_multi_agent(WithoutMasks, 0, OPTIONS).reset()
    with pytest.raises(CallboardError, match="env_wrappers is for environments with one agent, but for "):
        make_multi_agent(Turns, 0, {"env_wrappers": "ClipReward"})
    with pytest.raises(CallboardError, match="is not of PettingZoo: let its observations contain the mask"):
        make_multi_agent(Echo, 0, OPTIONS)
