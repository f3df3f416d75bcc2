"""Distributions of action values: what a network's outputs mean, and their losses (C51, QR-DQN, IQN)."""

import dataclasses
from typing import Any

import tensorflow as tf

from ...networks.heads.implicit_quantiles import ImplicitQuantiles
from ..losses.categorical import categorical_loss, mean_value, projected_target, support
from ..losses.n_step import NStep
from ..losses.quantile import quantile_huber_loss, quantile_target
from ..settings.apex_settings import Distribution
from .value_range import ValueRange


@dataclasses.dataclass(frozen=True)
class ValueDistribution:
    """How the value of an action is distributed.

    Attributes:
      kind: none for values alone, categorical (C51), quantile (QR-DQN) or implicit (IQN).
      atoms: N, numbers of a distribution, or sampled fractions of implicit.
      low: lowest value of the support of categorical.
      high: highest value of the support of categorical.
      huber: κ of quantile and implicit; None for no smoothing.
      range: range of the support of categorical, in place of `low` and `high`.
    """

    kind: Distribution
    atoms: int
    low: float | None
    high: float | None
    huber: float | None
    range: ValueRange | None = None

    @property
    def outputs(self) -> dict[str, Any]:
        """Arguments of `networks.factory.q_network` that describe the network's outputs for each action."""
        return {"none": {}, "implicit": {"fractions": self.atoms}}.get(self.kind, {"atoms": self.atoms})

    def mean(self, outputs: Any) -> tf.Tensor:
        """Returns the values `[..., A]` of all actions, the means of the network's outputs.

        Args:
          outputs: `[..., A(, N)]`, or `ImplicitQuantiles`.
        """
        if isinstance(outputs, ImplicitQuantiles):
            return tf.reduce_mean(outputs.values, axis=-1)
        if self.kind == "categorical":
            return mean_value(outputs, self._support(outputs.dtype))
        return tf.reduce_mean(outputs, axis=-1) if self.kind == "quantile" else outputs

    def loss(
        self, outputs: Any, action: Any, steps: NStep, target_outputs: Any, policy: Any
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the loss of the distributions of the actions taken, and metrics, `[B]` each.

        The loss is 0 where the window is not valid.

        Args:
          outputs: `[B, A, N]` or `ImplicitQuantiles`, the network's at the window's first observation.
          action: integers `[B]`, the actions taken there.
          steps: the windows' returns, over `[B]`.
          target_outputs: the target network's at the observations `steps.index`, of the same kind.
          policy: `[B, A]`, probabilities of the actions there.  The target is the mixture of their distributions, or of
            quantiles the mean, as in Munchausen-IQN (Vieillard et al. 2020).
        """
        fractions = None
        if isinstance(outputs, ImplicitQuantiles):
            fractions, outputs, target_outputs = outputs.fractions, outputs.values, target_outputs.values
        taken = tf.gather(outputs, action, axis=1, batch_dims=1)
        if self.kind == "categorical":
            target_outputs = tf.nn.softmax(target_outputs)
        later = tf.einsum("ba,ban->bn", policy, target_outputs)
        if self.kind != "categorical":
            target = quantile_target(steps.returns, steps.discount, later)
            return quantile_huber_loss(taken, target, steps.valid, self.huber, fractions), {}
        values = self._support(later.dtype)
        target = projected_target(steps.returns, steps.discount, later, values)
        if self.range is not None:
            self.range.follow(target, values, steps.valid)
        # Where the support is too narrow, much of the targets is at its ends.
        return categorical_loss(taken, target, steps.valid), {"support_ends": target[:, 0] + target[:, -1]}

    def _support(self, dtype: Any) -> tf.Tensor:
        if self.range is not None:
            return self.range.support(self.atoms, dtype)
        assert self.low is not None and self.high is not None
        return support(self.low, self.high, self.atoms, dtype)
