"""Environments that start processes, in all the ways of `multiprocessing`."""

import multiprocessing

import gymnasium
import numpy as np


class Plain(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    time = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), 1.0, False, self.time % 10 == 0, {}


def serve(pipe):
    print("serving")
    while (number := pipe.recv()) is not None:
        pipe.send(number + 1)


class Simulator(Plain):
    """Steps in a process that starts in the constructor, or anew in each reset."""

    def __init__(self, method="fork", each_reset=False):
        self.context, self.each_reset = multiprocessing.get_context(method), each_reset
        self.start()

    def start(self):
        self.pipe, other = self.context.Pipe()
        self.process = self.context.Process(target=serve, args=(other,))
        self.process.start()

    def reset(self, *, seed=None, options=None):
        if self.each_reset:
            self.close()
            self.start()
        return super().reset()

    def step(self, action):
        self.pipe.send(self.time)
        assert self.pipe.recv() == self.time + 1
        return super().step(action)

    def close(self):
        self.pipe.send(None)
        self.process.join()


class Unanswered(Simulator):
    """Waits for a process that does not answer."""

    def __init__(self):
        super().__init__()
        self.pipe.recv()


def in_processes(batch_size):
    return gymnasium.vector.AsyncVectorEnv([Plain for _ in range(batch_size)])
