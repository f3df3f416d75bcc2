"""DQN on CartPole-v1 and SAC on Pendulum-v1 of Stable-Baselines3, or with its interface, whose updates are counted."""

import functools

from stable_baselines3 import DQN, SAC
from stable_baselines3.common.vec_env import DummyVecEnv
from work import ENVS, REPLAY, Trained, arguments, make


def counting(algorithm, trained):
    """The algorithm as a class that counts its updates."""

    class Counting(algorithm):
        def train(self, gradient_steps, batch_size=100):
            super().train(gradient_steps, batch_size)
            trained.update(gradient_steps)

    return Counting


def main(dqn, sac):
    work = arguments()
    task = REPLAY[work.task]
    algorithm = counting(dqn if work.task == "dqn" else sac, Trained())
    learner = algorithm(
        "MlpPolicy",
        DummyVecEnv([functools.partial(make, work.task)] * ENVS),
        learning_rate=1e-3,
        buffer_size=100_000,
        learning_starts=1_000,
        batch_size=task.batch,
        train_freq=1,
        gradient_steps=int(ENVS * task.updates_per_step),
        policy_kwargs={"net_arch": list(task.hidden)},
        seed=work.seed,
        device="cpu",
    )
    learner.learn(10**9)


if __name__ == "__main__":
    main(DQN, SAC)
