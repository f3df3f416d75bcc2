"""Environments that tests make in worker processes; this module imports nothing of Callboard."""

import atexit
import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv


class Disconnected(OSError):
    """A simulator has gone."""


class Walk(gymnasium.Env):
    """Observations of two kinds, infos, tasks, pictures, and, at step 3, one thing that goes wrong."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, length=5, wrong="", render_mode=None, index=None, actor=None, env_config=None):
        parts = {"place": gymnasium.spaces.Box(-1, 1, (3,), np.float32), "turn": gymnasium.spaces.Discrete(7, start=2)}
        self.observation_space = gymnasium.spaces.Dict(parts)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.render_mode = render_mode
        self.where = (index, actor, env_config.worker_index, env_config.vector_index, dict(env_config))
        self._length, self._wrong, self._turn = length, wrong, 0

    def set_task(self, task):
        self._length = task or 5

    def _observation(self):
        return {"place": self.np_random.uniform(-1, 1, 3), "turn": 2 + self._turn % 7}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._turn = 0
        return self._observation(), {"length": self._length, "where": self.where}

    def step(self, action):
        self._turn += 1
        assert type(action) is int
        if self._turn == 3 and self._wrong:
            return self._go_wrong()
        truncated = self._turn >= self._length and bool(self.np_random.random() < 0.5)
        info = {"turn": self._turn, "array": np.arange(2), "pair": (1, "b"), "nothing": None}
        return self._observation(), float(action), self._turn >= self._length and not truncated, truncated, info

    def signals_of_forked(self):
        """The handlers of SIGTERM and SIGINT in a forked process."""
        reads, writes = os.pipe()
        if os.fork() == 0:
            names = [signal.getsignal(number).name for number in (signal.SIGTERM, signal.SIGINT)]
            os.write(writes, " ".join(names).encode())
            os._exit(0)
        os.close(writes)
        with open(reads) as pipe:
            return pipe.read().split()

    def _go_wrong(self):
        if self._wrong == "disconnect":
            raise Disconnected("lost")
        if self._wrong == "raise":
            raise ValueError("lost the way")
        if self._wrong == "exit":
            sys.exit(3)
        if self._wrong == "fork and crash" and os.fork() == 0:
            time.sleep(1000)
        if "crash" in self._wrong:
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._wrong == "hang":
            time.sleep(1000)
        observation = self._observation()
        if self._wrong == "shape":
            observation["place"] = np.zeros(4)
        elif self._wrong == "choice":
            observation["turn"] = 1
        elif self._wrong == "part":
            del observation["turn"]
        elif self._wrong == "old":
            return observation, 0.0, False, {}
        elif self._wrong == "reward":
            return observation, "much", False, False, {}
        elif self._wrong == "flag":
            return observation, 0.0, "no", False, {}
        return observation, 0.0, False, False, {}

    def render(self):
        return np.full((4, 6, 3), self._turn, np.uint8)


class Masked(gymnasium.Env):
    """Masks in infos, and tasks as options of `reset`."""

    observation_space: gymnasium.Space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space: gymnasium.Space = gymnasium.spaces.Discrete(4)

    def _info(self):
        mask = np.zeros(4, np.int8)
        mask[[0, self._turn % 4]] = 1
        return {"action_mask": mask, "turn": self._turn}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._turn, scale = 0, 0.5 if options else 1.0
        return (self.np_random.uniform(-1, 1, 2) * scale).astype(np.float32), self._info()

    def step(self, action):
        self._turn += 1
        observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        is_over = self._turn >= 6
        return observation, float(action), is_over and self.np_random.random() < 0.5, is_over, self._info()


def same_step(batch_size):
    return SyncVectorEnv([Masked] * batch_size, autoreset_mode=AutoresetMode.SAME_STEP)


def next_step(num_envs):
    return SyncVectorEnv([Masked] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class _OldBox:
    def __init__(self, shape):
        self.low, self.high = np.full(shape, -1, np.float32), np.full(shape, 1, np.float32)
        self.shape, self.dtype = shape, np.dtype(np.float32)

    def contains(self, value):
        return True


_OldBox.__name__ = "Box"


class Old:
    """The interface of old versions of Gym, without a class of theirs."""

    observation_space = _OldBox((2,))
    action_space = _OldBox((1,))

    def seed(self, seed):
        self._rng = np.random.default_rng(seed)

    def reset(self):
        self._turn = 0
        return self._rng.uniform(-1, 1, 2)

    def step(self, action):
        self._turn += 1
        info = {"TimeLimit.truncated": bool(self._rng.random() < 0.5)}
        return self._rng.uniform(-1, 1, 2), float(action[0]), self._turn >= 4, info


class OldVector:
    """What looks like a vector environment, and is none."""

    num_envs = 1
    single_observation_space = observation_space = Old.observation_space
    single_action_space = action_space = Old.action_space
    reset = step = None


class OldDm:
    """What looks like an environment of `dm_env`, and is none."""

    reset = step = observation_spec = action_spec = None


def forks(batch_size):
    """Starts a process that outlives a crash of its parent, and writes its id to a file."""
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
        os._exit(0)
    with open(os.environ["WORKER_TEST_FILE"], "w") as file:
        file.write(f"{pid} {os.getpid()}")
    return next_step(batch_size)


def leaves(batch_size):
    """Starts a process in a session of its own, and writes its id to a file."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open(os.environ["WORKER_TEST_FILE"], "w") as file:
        file.write(str(process.pid))
    return next_step(batch_size)


def dm_walk(seed):
    """An environment of `dm_env` with discounts of its own."""
    import dm_env
    from dm_env import specs

    class DmWalk(dm_env.Environment):
        def __init__(self):
            self._rng = np.random.default_rng(seed)
            self._turn = 0

        def observation_spec(self):
            return {"place": specs.BoundedArray((2,), np.float64, -1, 1), "turn": specs.DiscreteArray(4)}

        def action_spec(self):
            return specs.BoundedArray((), np.int32, 0, 2)

        def _observation(self):
            return {"place": self._rng.uniform(-1, 1, 2), "turn": self._turn % 4}

        def reset(self):
            self._turn = 0
            return dm_env.restart(self._observation())

        def step(self, action):
            self._turn += 1
            if self._turn >= 5:
                end = dm_env.termination if self._rng.random() < 0.5 else dm_env.truncation
                return end(1.5, self._observation())
            return dm_env.transition(float(action), self._observation(), 0.75)

        def info(self):
            return {"turn": self._turn}

    return DmWalk()


def dm_bare():
    """An environment of `dm_env` without infos, tasks, pictures and discounts."""
    import dm_env
    from dm_env import specs

    class _DmBare(dm_env.Environment):
        def observation_spec(self):
            return specs.Array((1,), np.float32)

        def action_spec(self):
            return specs.DiscreteArray(2)

        def reset(self):
            return dm_env.restart(np.zeros(1, np.float32))

        def step(self, action):
            return dm_env.TimeStep(dm_env.StepType.MID, 1.0, None, np.zeros(1, np.float32))

    return _DmBare()


def imports_pickle5():
    """Looks for a module that is not installed, as libraries do."""
    try:
        import pickle5  # noqa: F401
    except ImportError:
        return next_step(1)
    raise SystemError("a file of the working directory took its place")


class Nothing:
    """No environment."""


def started(batch_size):
    """Looks at how its process was started, and writes a file when it ends."""
    assert sys.flags.hash_randomization == 0 and not hasattr(sys.modules["__main__"], "__file__")
    assert "" not in sys.path and os.getcwd() not in sys.path
    reads, writes, _, memory = map(int, sys.argv[1:5])
    assert not any(map(os.get_inheritable, (reads, writes, memory)))
    atexit.register(lambda: open(os.environ["WORKER_TEST_FILE"], "w").close())
    return next_step(batch_size)


def processes(num_envs, context):
    return AsyncVectorEnv([Masked] * num_envs, context=context)


class Plain(Masked):
    """Options, infos and arguments that are no texts, lists and numbers, and metadata without modes."""

    metadata = {"render_modes": None}

    def __init__(self, levels):
        assert levels[1] == (0.5, 2) and levels["array"].dtype == np.int16
        self._task = None

    def set_task(self, task):
        assert task == {1: (2,)}
        self._task = task

    def same(self, value):
        return value

    def _info(self):
        return {1: self._turn, "x": 1, "_x": 2, "task": self._task}

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 10**400 if self._turn == 2 else 1.0, *rest


class WrongAtEnd(Masked):
    """Goes wrong in `close`."""

    def __init__(self, how):
        self._how = how

    def close(self):
        if self._how == "exit":
            os._exit(3)
        if self._how == "hang":
            time.sleep(1000)
        raise ValueError("nothing to close")


class OldMasked(Masked):
    """The interface of old versions of Gym in a class of Gymnasium's."""

    def reset(self):
        return super().reset()[0]

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class Unsorted(Masked):
    """Parts whose names are not sorted."""

    observation_space = gymnasium.spaces.Dict(
        [("b", gymnasium.spaces.Discrete(2)), ("a", gymnasium.spaces.Discrete(3))]
    )


class Written(Masked):
    action_space = gymnasium.spaces.Text(3)


class Unseeded(Masked):
    def reset(self):
        return super().reset()


def refused():
    raise gymnasium.error.Error("no such map")


def lacking():
    import no_such_module  # noqa: F401
