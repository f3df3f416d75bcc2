"""CleanRL's PPO for Atari's games in EnvPool, whose script runs as it is."""

import runpy
import sys

import envpool
import gym
import numpy as np
import torch
from work import PONG_ENVS, PONG_EPOCHS, PONG_MINIBATCHES, PONG_RATE, PONG_UNROLL, Played, Trained, arguments


class CountedPool(gym.Env):
    """A pool whose steps and episodes are counted, with Gym's old interface, which CleanRL expects."""

    def __init__(self, pool):
        self._pool = pool
        self.observation_space = gym.spaces.Box(0, 255, pool.observation_space.shape, np.uint8)
        self.action_space = gym.spaces.Discrete(int(pool.action_space.n))
        self._played = Played()
        self._over = np.zeros(len(pool), bool)
        self._returns = np.zeros(len(pool))
        self._lengths = np.zeros(len(pool), np.int64)

    def reset(self):
        return self._pool.reset()[0]

    def step(self, actions):
        observations, rewards, terminated, truncated, info = self._pool.step(actions)
        # The pool begins the next episode in the step after the last one.
        stepped = ~self._over
        self._over = terminated | truncated
        self._played.steps(int(np.count_nonzero(stepped)))
        self._returns += rewards
        self._lengths += stepped
        for env in np.flatnonzero(self._over):
            self._played.episode(float(self._returns[env]), int(self._lengths[env]))
        self._returns[self._over] = 0.0
        self._lengths[self._over] = 0
        return observations, rewards, self._over, info


class CountingAdam(torch.optim.Adam):
    """An optimizer that counts the frames of every update; it steps once for a minibatch."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self._trained = Trained()
        self._minibatches = 0

    def step(self, *arguments, **settings):
        super().step(*arguments, **settings)
        self._minibatches += 1
        if self._minibatches % (PONG_EPOCHS * PONG_MINIBATCHES) == 0:
            self._trained.update(PONG_ENVS * PONG_UNROLL)


def main():
    work = arguments()
    settings = {
        "env-id": "Pong-v5",
        "seed": work.seed,
        "cuda": False,
        "total-timesteps": 10**9,
        "num-envs": PONG_ENVS,
        "num-steps": PONG_UNROLL,
        "update-epochs": PONG_EPOCHS,
        "num-minibatches": PONG_MINIBATCHES,
        "learning-rate": PONG_RATE,
    }
    make = envpool.make
    envpool.make = lambda name, env_type, **options: CountedPool(make(name, env_type="gymnasium", **options))
    torch.optim.Adam = CountingAdam
    sys.argv[1:] = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    runpy.run_module("cleanrl.ppo_atari_envpool", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
