"""APPO: asynchronous PPO, which is IMPALA with PPO's clipped loss of the policy.

The loss is that of IMPACT (Luo et al. 2020, https://arxiv.org/abs/1912.00167, section 3.1) with the policy that acted
in place of the target network, as in Sample Factory (Petrenko et al. 2020, https://arxiv.org/abs/2006.11751).
"""

import dataclasses

import tensorflow as tf

from .impala import Impala, PolicyTerms
from .losses.ppo import approximate_kl, clipped_surrogate_loss
from .losses.shapes import where_valid
from .losses.vtrace import VTrace
from .settings.impala_settings import AppoSettings
from .watched import Gradient, Quantity, Returns


@dataclasses.dataclass(frozen=True)
class Appo(AppoSettings, Impala):
    """The APPO agent."""

    live = (*Impala.live, "clip")
    watched = (Gradient(), Quantity.ENTROPY, Quantity.VALUES, Returns())

    def policy_terms(
        self, log_prob_t: tf.Tensor, log_rho_t: tf.Tensor, targets: VTrace, valid_t: tf.Tensor
    ) -> PolicyTerms:
        log_ratio_t = where_valid(valid_t, log_rho_t)
        loss_t = clipped_surrogate_loss(log_ratio_t, targets.td_errors, valid_t, self.clip)
        clipped_t = tf.abs(tf.exp(log_ratio_t) - 1) > tf.cast(self.clip, log_ratio_t.dtype)
        return PolicyTerms(loss_t, {"clip_fraction": clipped_t, "approximate_kl": approximate_kl(log_ratio_t)})
