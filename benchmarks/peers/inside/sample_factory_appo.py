"""Sample Factory APPO."""

import sys

from sample_factory.algo.learning.learner import Learner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.envs.env_wrappers import PixelFormatChwWrapper
from sample_factory.train import run_rl
from work import ACTORS, BATCH, ENVS, FEATURES, HIDDEN, UNROLL, Trained, arguments, make

_train = Learner._train


def _counting_train(self, gpu_buffer, batch_size, experience_size, num_invalids):
    """Train, and count the frames of every update, excluding those that are too old to be used."""
    statistics = _train(self, gpu_buffer, batch_size, experience_size, num_invalids)
    if not hasattr(self, "trained"):
        self.trained = Trained()
    self.trained.update(experience_size - int(num_invalids))
    return statistics


# The learner's process imports this file too.
Learner._train = _counting_train


def make_environment(full_env_name, cfg=None, env_config=None, render_mode=None):
    environment = make(full_env_name)
    return PixelFormatChwWrapper(environment) if full_env_name == "images" else environment


def main():
    work = arguments()
    settings = {
        "algo": "APPO",
        "env": work.task,
        "experiment": "run",
        "train_dir": work.directory,
        "seed": work.seed,
        "device": "cpu",
        "num_workers": ACTORS,
        "use_rnn": False,
        "train_for_env_steps": 10**10,
        "save_every_sec": 10**6,
        "with_wandb": False,
        "nonlinearity": "tanh",
        "encoder_mlp_layers": HIDDEN,
        # For the score too, because it takes longer with all settings of the example for CartPole-v1.
        "num_envs_per_worker": ENVS,
        "worker_num_splits": 2,
        "rollout": UNROLL,
        "batch_size": BATCH,
        "num_epochs": 1,
        "num_batches_per_epoch": 1,
        "learning_rate": 6e-4,
        "reward_scale": 0.1 if work.goal == "score" else 1.0,
    }
    if work.task == "images":
        settings |= {
            "nonlinearity": "relu",
            "encoder_conv_architecture": "resnet_impala",
            "encoder_conv_mlp_layers": FEATURES,
            "obs_scale": 255.0,
            "normalize_input": False,
        }
    line = []
    for name, value in settings.items():
        values = value if isinstance(value, tuple) else (value,)
        line += [f"--{name}", *(str(one) for one in values)]
    register_env(work.task, make_environment)
    parser, _ = parse_sf_args(argv=line)
    sys.exit(run_rl(parse_full_cfg(parser, argv=line)))


if __name__ == "__main__":
    main()
