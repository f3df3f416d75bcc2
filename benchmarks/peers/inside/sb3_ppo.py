"""PPO of Stable-Baselines3, or with its interface."""

import functools

import torch
from resnet import ImpalaResNet
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from work import ACTORS, BATCH, ENVS, FEATURES, HIDDEN, UNROLL, Trained, arguments, make


class Features(BaseFeaturesExtractor):
    """The ResNet; the library has already converted images to floats in [0, 1], channels first."""

    def __init__(self, observation_space):
        super().__init__(observation_space, FEATURES)
        self.net = ImpalaResNet()

    def forward(self, observations):
        return self.net(observations)


def counting(algorithm, trained):
    """The algorithm as a class that counts the frames of every update."""

    class Counting(algorithm):
        def train(self):
            super().train()
            trained.update(self.n_envs * self.n_steps)

    return Counting


def main(algorithm, tanh):
    work = arguments()
    policy = {"net_arch": list(HIDDEN), "activation_fn": tanh}
    envs = ACTORS * ENVS
    if work.goal == "score":
        # Tuned for CartPole-v1 by the RL Zoo, but without its decay to zero at 100,000 steps.
        envs = 8
        settings = {
            "n_steps": 32,
            "batch_size": 256,
            "n_epochs": 20,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "learning_rate": 0.001,
            "clip_range": 0.2,
            "ent_coef": 0.0,
        }
    else:
        settings = {"n_steps": UNROLL, "batch_size": BATCH, "n_epochs": 1, "learning_rate": 6e-4, "gamma": 0.99}
    if work.task == "images":
        policy = {"net_arch": [], "features_extractor_class": Features}
    ppo = counting(algorithm, Trained())(
        "CnnPolicy" if work.task == "images" else "MlpPolicy",
        DummyVecEnv([functools.partial(make, work.task)] * envs),
        policy_kwargs=policy,
        seed=work.seed,
        device="cpu",
        **settings,
    )
    ppo.learn(10**9)


if __name__ == "__main__":
    main(PPO, torch.nn.Tanh)
