"""Environments whose every timestep can be written down by hand, in each of the interfaces that are adapted.

One episode: the observation is `[number of the episode, steps in it]`, an action `a` from 0, 1, 2 earns `1 + a`, action
2 terminates, and after 3 steps time is up.
"""

import functools

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from callboard.environments import DmEnvBatch

TIME_LIMIT = 3
without_signature = functools.partial(np.array)


class Script:
    def __init__(self):
        self.episode = -1
        self.time = 0

    def begin(self):
        self.episode += 1
        self.time = 0

    def act(self, action):
        """Returns (reward, terminated, truncated)."""
        self.time += 1
        return 1.0 + action, action == 2, self.time >= TIME_LIMIT

    @property
    def observation(self):
        return np.array([self.episode, self.time], np.float64)


class DmScript(dm_env.Environment):
    def __init__(self):
        self._script = Script()
        self.closed = 0

    def reset(self):
        self._script.begin()
        return dm_env.restart(self._script.observation)

    def step(self, action):
        reward, terminated, truncated = self._script.act(action)
        if terminated:
            return dm_env.termination(reward, self._script.observation)
        if truncated:
            return dm_env.truncation(reward, self._script.observation)
        return dm_env.transition(reward, self._script.observation)

    def observation_spec(self):
        return specs.Array((2,), np.float64)

    def action_spec(self):
        return specs.DiscreteArray(3)

    def close(self):
        self.closed += 1


class GymScript(gymnasium.Env):
    """Returns the same array, overwritten, as the observation of every step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self):
        self._script = Script()
        self._buffer = np.zeros(2)
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        self._script.begin()
        self._buffer[:] = self._script.observation
        return self._buffer, {}

    def step(self, action):
        reward, terminated, truncated = self._script.act(action)
        self._buffer[:] = self._script.observation
        return self._buffer, reward, terminated, truncated, {}

    def close(self):
        self.closed += 1


class FreshGymScript(GymScript):
    """Returns a new array as the observation of every step."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        return observation.copy(), info

    def step(self, action):
        observation, *rest = super().step(action)
        return observation.copy(), *rest


class SameStepScript(VectorEnv):
    """Resets in the same step, returns final observations as a batch, and cannot reset single environments."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = GymScript.observation_space
    single_action_space = GymScript.action_space

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self._scripts = [Script() for _ in range(num_envs)]

    def reset(self, *, seed=None, options=None):
        assert not options
        for script in self._scripts:
            script.begin()
        return self._observation(), {}

    def step(self, actions):
        outcomes = [script.act(action) for script, action in zip(self._scripts, actions, strict=True)]
        final = self._observation()
        rewards, terminated, truncated = map(np.array, zip(*outcomes, strict=True))
        over = terminated | truncated
        for script, is_over in zip(self._scripts, over, strict=True):
            if is_over:
                script.begin()
        return self._observation(), rewards, terminated, truncated, {"final_obs": final, "_final_obs": over}

    def _observation(self):
        return np.stack([script.observation for script in self._scripts])


class OwnVectorScript(VectorEnv):
    """Resets on the next step, returns its own buffers, and reports arbitrary rewards and ends for a reset step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    # The dtype that agents receive: nothing is cast, so that a missing copy would be noticed.
    single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    single_action_space = GymScript.action_space

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self._scripts = [Script() for _ in range(num_envs)]
        self._observation = np.zeros((num_envs, 2), np.float32)
        self._reward = np.zeros(num_envs, np.float32)
        self._frames = np.zeros((num_envs, 4, 6, 3), np.uint8)
        self._terminated = np.zeros(num_envs, bool)
        self._truncated = np.zeros(num_envs, bool)
        self._over = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        self._over[:] = False
        for index, script in enumerate(self._scripts):
            script.begin()
            self._observation[index] = script.observation
        return self._observation, {}

    def step(self, actions):
        for index, script in enumerate(self._scripts):
            if self._over[index]:
                script.begin()
                self._reward[index] = 7
                self._over[index] = False
            else:
                outcome = script.act(actions[index])
                self._reward[index], self._terminated[index], self._truncated[index] = outcome
                self._over[index] = outcome[1] or outcome[2]
            self._observation[index] = script.observation
        return self._observation, self._reward, self._terminated, self._truncated, {}

    def render(self):
        for index, script in enumerate(self._scripts):
            self._frames[index] = 100 * index + script.time
        return tuple(self._frames)


def vector_next_step(batch_size):
    return SyncVectorEnv([GymScript] * batch_size, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)


def vector_of_num_envs(num_envs):
    return vector_next_step(num_envs)


def vector_own(batch_size):
    return OwnVectorScript(batch_size)


def vector_same_step(batch_size):
    return SyncVectorEnv([GymScript] * batch_size, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def fresh_same_step(batch_size):
    return SyncVectorEnv([FreshGymScript] * batch_size, autoreset_mode=AutoresetMode.SAME_STEP)


def fresh_same_step_wrapped(batch_size):
    return RecordEpisodeStatistics(fresh_same_step(batch_size))


def fresh_same_step_processes(batch_size):
    return AsyncVectorEnv([FreshGymScript] * batch_size, autoreset_mode=AutoresetMode.SAME_STEP)


def own_same_step(batch_size):
    return SameStepScript(batch_size)


def vector_disabled(batch_size):
    return SyncVectorEnv([GymScript] * batch_size, autoreset_mode=AutoresetMode.DISABLED)


def vector_of_four():
    return vector_next_step(4)


def batched_itself(batch_size):
    return DmEnvBatch([DmScript() for _ in range(batch_size)])


class Seeded(dm_env.Environment):
    """Observations are random numbers of its own generator."""

    def __init__(self, seed, scale=1.0):
        self._rng = np.random.RandomState(seed)
        self._scale = scale

    def reset(self):
        return dm_env.restart(self._scale * self._rng.uniform(size=3))

    def step(self, action):
        return dm_env.transition(0.0, self._scale * self._rng.uniform(size=3))

    def observation_spec(self):
        return specs.Array((3,), np.float64)

    def action_spec(self):
        return specs.BoundedArray((), np.int64, 0, 1)


_MADE = DmScript()


def always_the_same():
    return _MADE


def not_an_environment():
    return 5


def needs_missing_package():
    import no_such_package_at_all  # noqa: F401


def with_required(width, height=2):
    return DmScript()
