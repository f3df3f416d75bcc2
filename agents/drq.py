"""DrQ: SAC from pixels with random shifts (Yarats, Kostrikov and Fergus 2021, https://arxiv.org/abs/2004.13649)."""

import dataclasses
from typing import Any

import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from .. import specs
from ..data import Layout, Nest, Sample
from ..errors import CallboardError
from ..networks.action_policy import is_single_box
from ..networks.actor_critics.actor_critic import ActorCritic
from ..networks.actor_critics.shared_encoder import FILTERS, shared_encoder_networks
from ..networks.gathers import stack_leaves
from ..networks.random_streams import Stream, stream_seed
from ..networks.torsos.augmentation import shifted_observations
from ..networks.torsos.torsos import check_filters
from ..replay import stacked_spec
from .learning.reward_normalizer import make_reward_normalizer
from .losses.replicas import global_index
from .policies.sac_policy import SacNetworks
from .sac import Sac, SoftTerms
from .settings.sac_settings import DrQSettings


@dataclasses.dataclass(frozen=True)
class DrQ(DrQSettings, Sac):
    """The DrQ agent."""

    def check(self, layout: Layout) -> None:
        if not any(specs.is_image(leaf) for leaf in tree.flatten(layout.spec.observation)):
            raise CallboardError(
                f"drq learns from images, and the observation is {specs.describe(layout.spec.observation)}: use sac"
            )
        if self.crossq:
            raise CallboardError(
                "drq shares an encoder that is not batch-renormalized: leave agent.crossq out, or use sac"
            )
        super().check(layout)
        if not (isinstance(layout.spec.action, dm_specs.DiscreteArray) or is_single_box(layout.spec)):
            raise CallboardError(
                f"drq takes one discrete action or one array of floats, and the environment's action is "
                f"{specs.describe(layout.spec.action)}: use sac, which takes actions of several parts"
            )
        if self.network.torso in ("auto", "conv") and not (self.network.filters or self.network.torsos):
            check_filters(layout.spec.observation, FILTERS)

    def make_networks(self, layout: Layout) -> SacNetworks:
        spec = self.limited(stacked_spec(layout.spec, self.frame_stack))
        options: dict[str, Any] = {"temperature": self.temperature, "critics": self.critics}
        learned = shared_encoder_networks(spec, **vars(self.network), **options)
        return SacNetworks(learned, spec, make_reward_normalizer(self))

    def terms(self, networks: ActorCritic, sample: Sample, seed: tf.Tensor) -> SoftTerms:
        """Returns the losses of transitions, with means over augmentations (algorithm 1).

        The target is averaged over K augmentations of the next observation, and the critics' loss over K augmentations
        of the observation.  The policy learns from the first.
        """
        index = global_index(tf.shape(sample.record.reward)[1])
        seeds = [stream_seed(seed, Stream.AUGMENTATION, number) for number in range(self.augmentations)]
        samples = [self._augmented(sample, one, index) for one in seeds]
        targets = [self.target(networks, one, own) for one, own in zip(samples, seeds, strict=True)]
        target_t = tf.add_n(targets) / self.augmentations
        first, *others = [self.losses(networks, one, own, target_t) for one, own in zip(samples, seeds, strict=True)]
        critic_loss = tf.add_n([each.critic_loss for each in (first, *others)]) / self.augmentations
        return first._replace(critic_loss=critic_loss)

    def _augmented(self, sample: Sample, seed: tf.Tensor, index: tf.Tensor) -> Sample:
        """Returns transitions whose observations are shifted, those before and after an action differently."""

        def shifted(observation: Nest, time: int) -> Nest:
            own = tree.map_structure(lambda leaf: leaf[time], observation)
            layout = tree.map_structure(lambda leaf: tf.TensorSpec(leaf.shape[1:], leaf.dtype), own)
            return shifted_observations(layout, own, stream_seed(seed, Stream.AUGMENTED_TIME, time), index, self.shift)

        observation = sample.record.observation
        times = [shifted(observation, time) for time in range(self.n_step + 1)]
        stacked = tree.map_structure(lambda *leaves: stack_leaves(leaves), *times)
        return sample._replace(record=sample.record._replace(observation=stacked))
