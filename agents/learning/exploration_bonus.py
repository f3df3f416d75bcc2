"""An exploration bonus of a learner: its networks, running statistics and optimizer, and what it adds to a loss.

A bonus is part of the learner alone: actors, evaluations and exported policies do without it.  A loss has three steps:
`measured` gives the bonus of every transition, and updates the statistics; the agent adds it to its rewards, or adds
the advantages of `intrinsic`; and `trained_too` adds what the bonus's own networks learn from the same transitions.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from dm_env import specs as dm_specs

from ...action_masks import without_mask
from ...data import Layout, Nest, Record
from ...errors import CallboardError
from ...networks.bonus_networks import Curiosity, ObservationNetwork, RandomDistillation
from ...networks.network import BONUS_WEIGHT, merge_time, split_time
from ...networks.normalization import RunningNormalizer
from ...replay import stacked_spec
from ...specs import EnvironmentSpec, MultiDiscreteArray
from ...transitions import valid_transitions
from ..losses.exploration_bonus import Prediction, curiosity, distillation, inverse_loss, non_episodic
from ..losses.policy_gradient import value_loss
from ..losses.replicas import valid_mean
from ..losses.shapes import where_valid
from ..settings.bonus_settings import BonusSettings
from ..settings.optimizer_settings import OptimizerSettings
from .column_parts import in_column_parts
from .gradient_step import LossOutput, Objective
from .optimizers import make_optimizer

_LOSS = "bonus_loss"


class BonusTransitions(NamedTuple):
    """Transitions that the bonus's networks learn from, leaves `[T, B, ...]`."""

    observation: Nest
    """Without masks, as the next one."""
    action: Nest
    """The environment's."""
    next_observation: Nest
    has_bonus: tf.Tensor
    """bool: the transition is valid, and the observation that followed is of the same episode."""


class Measured(NamedTuple):
    """The bonus of transitions, leaves `[T, B, ...]`."""

    transitions: BonusTransitions
    bonus: tf.Tensor
    """Normalized, not weighted; 0 where there is none."""
    valid: tf.Tensor
    """bool, the valid transitions."""
    target: Any = ()
    """Targets of the value of bonuses; `()` where the agent has none."""


class ExplorationBonus(tf.Module):
    """An exploration bonus; its variables are created in the current strategy's scope.

    Observations are normalized by running statistics, images too, and the bonus is divided by a running deviation: that
    of the discounted sum of bonuses, if each were independent of the others.

    Args:
      settings: the settings of the bonus.
      network: settings of the agent's network, whose torso by name its networks have.
      spec: the environment's spec, as the agent's network sees it.
      discount: γ of the sums of bonuses, below 1.
      has_values: whether there is a network for the values of bonuses.
    """

    def __init__(self, settings: BonusSettings, network: Any, spec: EnvironmentSpec, discount: float, has_values: bool):
        super().__init__()
        self.weight = settings.weight
        self._discount = discount
        self._forward_weight = settings.forward_weight
        visible = without_mask(spec.observation)
        numbers = tree.map_structure(_as_numbers, visible)
        self._casts = [leaf is not number for leaf, number in zip(*map(tree.flatten, (visible, numbers)), strict=True)]
        self._normalizer = RunningNormalizer(numbers)
        # Of all bonuses of the run: relative to those of late, it would be as large at the end as at the beginning.
        self._deviation = RunningNormalizer(dm_specs.Array((), np.float32))
        kind: Any = {"rnd": RandomDistillation, "icm": Curiosity}[settings.name]
        spec = spec._replace(observation=numbers)
        self._networks: Curiosity | RandomDistillation = kind(spec, network, settings.hidden_sizes, settings.features)
        self._value = ObservationNetwork(spec, network, settings.hidden_sizes, 1) if has_values else None
        optimizer = OptimizerSettings(
            learning_rate=settings.learning_rate, learning_rate_decay=False, epsilon=1e-5, max_gradient_norm=None
        )
        self.optimizer = make_optimizer(optimizer, 1)

    def objective(self) -> Objective:
        """Returns the loss of the bonus's networks."""
        values = () if self._value is None else self._value.trainable_variables
        return Objective(_LOSS, (*self._networks.trained, *values), self.optimizer)

    def measured(self, record: Record) -> Measured:
        """Updates the statistics with the transitions of sequences `[T + 1, B, ...]`, and returns their bonus."""
        valid_t = valid_transitions(record.first, record.last, record.discount)
        observation = without_mask(record.observation)
        before, after = (
            tree.map_structure(lambda leaf, part=part: leaf[part], observation)
            for part in (slice(None, -1), slice(1, None))
        )
        transitions = BonusTransitions(before, record.action, after, valid_t & ~record.first[1:])
        self._normalizer.update(self._cast(after), weight=transitions.has_bonus)
        error_t = in_column_parts(lambda part, _: self._predicted(part).error, transitions)
        self._deviation.update(error_t, weight=transitions.has_bonus)
        bonus_t = self._deviation.divide_by_deviation(error_t) * float(np.sqrt(1.0 - self._discount**2))
        return Measured(transitions, tf.stop_gradient(bonus_t), valid_t)

    def intrinsic(self, measured: Measured, record: Record, estimate: Callable[..., Any], **of_steps: Any) -> Any:
        """Returns an estimate of the advantages of bonuses, see `non_episodic`."""
        values = in_column_parts(lambda part, _: self._values(part), without_mask(record.observation))
        return non_episodic(estimate, values, measured.bonus, measured.valid, record.last, self._discount, **of_steps)

    def added(self, reward_t: Any, measured: Measured, weight: Any = ()) -> tf.Tensor:
        """Returns rewards `[T, B]` with the bonus, times the weights `[B]` or `[T, B]`, or `()` for the one of all."""
        bonus = measured.bonus
        weight = self.weight if isinstance(weight, tuple) else tf.cast(weight, bonus.dtype)
        return tf.cast(reward_t, bonus.dtype) + weight * bonus

    def weighted(self, measured: Measured, advantages: tf.Tensor) -> tf.Tensor:
        """Returns advantages of bonuses `[T, B]` with their weight; 0 where transitions are not valid."""
        return self.weight * where_valid(measured.valid, advantages)

    def trained_too(self, output: LossOutput, measured: Measured, mean: Callable[[Any], tf.Tensor]) -> LossOutput:
        """Returns the output of an agent's loss with the loss of the bonus's networks, and their metrics.

        Args:
          output: that of the loss.
          measured: one replica's share of the transitions, with `target` where the bonus has values.
          mean: maps a replica's values to their part of the mean over the global batch, see `global_mean`.
        """
        loss_t = self._predicted(measured.transitions).loss
        shown = valid_mean(measured.valid, loss_t.dtype)
        metrics = {"bonus": shown(measured.bonus)}
        if self._value is not None:
            value_t = self._values(measured.transitions.observation)
            loss_t += value_loss(value_t, tf.cast(measured.target, value_t.dtype), measured.valid)
            metrics["bonus_value"] = shown(value_t)
        losses = {"loss": output.loss, _LOSS: mean(loss_t)}
        return output._replace(loss=losses, metrics={**output.metrics, **metrics})

    def _predicted(self, transitions: BonusTransitions) -> Prediction:
        after = self._normalized(transitions.next_observation)
        valid_t = transitions.has_bonus
        if isinstance(self._networks, RandomDistillation):
            predicted, target = (_by_row(one, after) for one in (self._networks.predictor, self._networks.target))
            return distillation(predicted, target, valid_t)
        before = self._normalized(transitions.observation)
        predicted, features, told = _by_row(self._networks, before, transitions.action, after)
        return curiosity(predicted, features, inverse_loss(*told), valid_t, self._forward_weight)

    def _values(self, observation: Nest) -> tf.Tensor:
        return _by_row(self._value, self._normalized(observation))[..., 0]

    def _normalized(self, observation: Nest) -> Nest:
        return self._normalizer(self._cast(observation))

    def _cast(self, observation: Nest) -> Nest:
        leaves = tree.flatten(observation)
        dtype = tf.keras.backend.floatx()
        cast = [tf.cast(leaf, dtype) if casts else leaf for leaf, casts in zip(leaves, self._casts, strict=True)]
        return tree.unflatten_as(observation, cast)


def _as_numbers(leaf: dm_specs.Array) -> dm_specs.Array:
    """Returns the spec of an array without bounds, for normalization; discrete choices remain as they are."""
    is_choice = isinstance(leaf, dm_specs.DiscreteArray | MultiDiscreteArray)
    return leaf if is_choice else dm_specs.Array(leaf.shape, np.float32, leaf.name)


def _by_row(function: Any, *nests: Nest) -> Any:
    """Calls a function of `[N, ...]` with nests of `[T, B, ...]`, and returns what it does in that form."""
    leaf = tree.flatten(nests[0])[0]
    lengths = [tf.shape(leaf)[axis] if known is None else known for axis, known in enumerate(leaf.shape[:2])]
    outputs = function(*(tree.map_structure(merge_time, nest) for nest in nests))
    return tree.map_structure(lambda output: split_time(output, lengths), outputs)


def make_bonus(agent: Any, layout: Layout, has_values: bool) -> ExplorationBonus | None:
    """Creates the bonus of an agent by its field `bonus`, in the current strategy's scope; None for none.

    Args:
      agent: the agent, with `network` and `frame_stack`.
      layout: the run's layout.
      has_values: whether it learns values of bonuses apart, as agents with a policy gradient do.
    """
    settings = agent.bonus
    if settings.name == "none":
        return None
    discount = settings.discount if has_values else agent.discount
    spec = stacked_spec(layout.spec, agent.frame_stack)
    return ExplorationBonus(settings, agent.network, spec, discount, has_values)


def is_spread(agent: Any) -> bool:
    """Returns whether each environment has a weight of the bonus of its own, which the network takes."""
    return getattr(agent.bonus, "spread", False)


def further(bonus: ExplorationBonus | None) -> list[Objective]:
    """Returns the objectives of a learner beside the agent's own."""
    return [] if bonus is None else [bonus.objective()]


def of_loss(bonus: ExplorationBonus | None) -> dict[str, ExplorationBonus]:
    """Returns the argument of a loss; none without a bonus, which the loss of a subclass need not know of."""
    return {} if bonus is None else {"bonus": bonus}


def check_bonus(agent: Any, layout: Layout) -> None:
    """Checks that an agent whose values include the bonus can learn them in runs of a layout.

    Raises:
      CallboardError: it cannot.
    """
    if agent.bonus.name == "none":
        return
    if agent.discount == 1:
        raise CallboardError("agent.bonus is divided by the deviation of discounted sums: set agent.discount below 1")
    if getattr(agent, "distribution", "none") == "categorical" and None in (agent.value_min, agent.value_max):
        raise CallboardError(
            "the range of agent.distribution categorical follows returns without agent.bonus: set agent.value_min and "
            "agent.value_max, or agent.distribution to quantile"
        )
    if not is_spread(agent):
        return
    if layout.actors * layout.envs_per_actor == 1:
        raise CallboardError(
            "agent.bonus.spread gives each environment a weight of its own, and there is one: raise envs_per_actor or "
            "actors, or leave it out"
        )
    observation = layout.spec.observation
    if isinstance(observation, Mapping) and BONUS_WEIGHT in observation:
        raise CallboardError(
            f"the observation has a part {BONUS_WEIGHT!r} already, which agent.bonus.spread adds: leave it out"
        )
