"""Training code shared by RLlib's algorithms."""

import os

import ray
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env
from resnet import ImpalaResNet
from work import ACTORS, ENVS, FEATURES, HIDDEN, TALLY, UNROLL, Trained, make

_LOGICAL_CORES = 8
"""Ray reserves a core for each process that it starts; the processes share the physical cores."""


class ImageModule(TorchRLModule, ValueFunctionAPI):
    """The ResNet, with an output layer for the policy and one for the value."""

    def setup(self):
        self.net = ImpalaResNet()
        self.logits = torch.nn.Linear(FEATURES, self.action_space.n)
        self.value = torch.nn.Linear(FEATURES, 1)

    def _forward(self, batch, **settings):
        return {Columns.ACTION_DIST_INPUTS: self.logits(self._features(batch))}

    def _forward_train(self, batch, **settings):
        features = self._features(batch)
        return {Columns.ACTION_DIST_INPUTS: self.logits(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch, embeddings=None):
        features = self._features(batch) if embeddings is None else embeddings
        return self.value(features).squeeze(-1)

    def _features(self, batch):
        images = batch[Columns.OBS]
        return self.net(images.permute(0, 3, 1, 2).float() / 255.0)


def counting(learner_class):
    """Return a subclass of the learner that counts the frames of every update, excluding masked ones."""

    class CountingLearner(learner_class):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
            if not hasattr(self, "trained"):
                self.trained, self.frames = Trained(), 0
            mask = batch.get(Columns.LOSS_MASK)
            self.frames += len(batch[Columns.REWARDS]) if mask is None else int(mask.sum())
            return loss

        def after_gradient_based_update(self, *, timesteps):
            super().after_gradient_based_update(timesteps=timesteps)
            # Every pass over the batch has added its frames.
            self.trained.update(self.frames // self.config.num_epochs)
            self.frames = 0

    return CountingLearner


def train(work, config, learner_class, envs=ENVS, unroll=UNROLL, model=None):
    """Run an algorithm until the process is ended.

    Args:
      work: the task.
      config: configuration of the algorithm, with its own settings.
      learner_class: learner of the algorithm.
      envs: environments in each acting process.
      unroll: timesteps of a fragment.
      model: model for CartPole and `spread`; the shared one by default.
    """
    if work.task == "spread":
        register_env(work.task, lambda settings: ParallelPettingZooEnv(make(work.task)))
        config = config.multi_agent(policies={"shared"}, policy_mapping_fn=lambda agent, episode, **more: "shared")
    else:
        register_env(work.task, lambda settings: make(work.task))
    model = model or DefaultModelConfig(fcnet_hiddens=list(HIDDEN), fcnet_activation="tanh", vf_share_layers=True)
    module = {"rl_module_spec": RLModuleSpec(ImageModule)} if work.task == "images" else {"model_config": model}
    config = (
        config.environment(work.task)
        .env_runners(num_env_runners=ACTORS, num_envs_per_env_runner=envs, rollout_fragment_length=unroll)
        # Ray gives a process as many threads as it has cores.
        .learners(num_gpus_per_learner=0, num_cpus_per_learner=2, learner_class=counting(learner_class))
        .rl_module(**module)
        .debugging(seed=work.seed, log_level="ERROR")
        .reporting(min_time_s_per_iteration=5)
    )
    ray.init(
        num_cpus=_LOGICAL_CORES,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=work.directory,
        runtime_env={"env_vars": {TALLY: os.environ[TALLY]}},
    )
    try:
        algorithm = config.build_algo()
        while True:
            algorithm.train()
    finally:
        ray.shutdown()
