"""PufferLib's PPO, with environments of Gymnasium in its worker processes."""

import functools
import sys

import pufferlib.emulation
import pufferlib.vector
import torch
from pufferlib import pufferl
from resnet import ImpalaResNet
from work import ACTORS, BATCH, ENVS, FEATURES, HIDDEN, UNROLL, Trained, arguments, make


class Policy(torch.nn.Module):
    """The network used by all sides, with an output layer for the policy and one for the value."""

    def __init__(self, task, environment):
        super().__init__()
        self._is_image = task == "images"
        if self._is_image:
            self.torso, features = ImpalaResNet(), FEATURES
        else:
            layers, features = [], environment.single_observation_space.shape[0]
            for units in HIDDEN:
                layers += [torch.nn.Linear(features, units), torch.nn.Tanh()]
                features = units
            self.torso = torch.nn.Sequential(*layers)
        self.logits = torch.nn.Linear(features, environment.single_action_space.n)
        self.value = torch.nn.Linear(features, 1)

    def forward(self, observations, state=None):
        observations = observations.float()
        hidden = self.torso(observations.permute(0, 3, 1, 2) / 255.0 if self._is_image else observations)
        return self.logits(hidden), self.value(hidden)

    forward_eval = forward


def make_environment(task, buf=None, seed=0):
    return pufferlib.emulation.GymnasiumPufferEnv(make(task), buf=buf, seed=seed)


def main():
    work = arguments()
    # A worker waits in a loop that occupies a core: on two cores, one worker and one thread were the fastest.
    torch.set_num_threads(1)
    sys.argv[1:] = []
    settings = pufferl.load_config("default")["train"]
    settings |= {"env": work.task, "device": "cpu", "seed": work.seed, "total_timesteps": 10**9}
    envs = ACTORS * ENVS
    if work.goal == "score":
        # The defaults of the trainer, which has no settings for this environment, but for the sizes.
        envs = 64
        settings |= {"minibatch_size": 512}
    else:
        settings |= {"bptt_horizon": UNROLL, "minibatch_size": BATCH, "optimizer": "adam"}
        settings |= {"learning_rate": 6e-4, "gamma": 0.99}
    environment = pufferlib.vector.make(
        functools.partial(make_environment, work.task),
        backend="Multiprocessing",
        num_envs=envs,
        num_workers=1,
        batch_size=envs,
        seed=work.seed,
    )
    trainer = pufferl.PuffeRL(settings, environment, Policy(work.task, environment.driver_env))
    trained = Trained()
    try:
        while True:
            trainer.evaluate()
            trainer.train()
            trained.update(settings["batch_size"])
    finally:
        trainer.close()


if __name__ == "__main__":
    main()
