"""TD3+BC: TD3 that stays near recorded actions (Fujimoto and Gu 2021, https://arxiv.org/abs/2106.06860)."""

import dataclasses

import tensorflow as tf

from ..losses.deterministic_policy import regularized_policy_loss
from ..losses.replicas import sum_over_replicas
from ..losses.shapes import where_valid
from ..settings.td3_settings import TD3BCSettings
from ..td3 import TD3

_SMALLEST_VALUE = 1e-6


@dataclasses.dataclass(frozen=True)
class TD3BC(TD3BCSettings, TD3):
    """The TD3+BC agent."""

    def policy_loss(self, value_t: tf.Tensor, unit_t: tf.Tensor, taken_t: tf.Tensor, valid_t: tf.Tensor) -> tf.Tensor:
        """Returns the loss of the policy `[B]` (equations (3) and (5)); arguments as those of TD3's."""
        sizes = sum_over_replicas(where_valid(valid_t, tf.abs(value_t)))
        count = sum_over_replicas(tf.cast(valid_t, value_t.dtype))
        mean_value = sizes / tf.maximum(count, 1.0)
        weight = self.value_weight / tf.maximum(mean_value, _SMALLEST_VALUE)
        return regularized_policy_loss(value_t, weight, unit_t, taken_t, valid_t)
