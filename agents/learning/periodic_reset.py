"""Periodic resets of an agent's networks, which keep what is in replay (Nikishin et al. 2022, arXiv:2205.07802)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...data import Layout
from ...runtime.tracing_lock import TRACING
from ..variables.frozen_weights import is_frozen


class PeriodicReset:
    """Gives an actor and its critics the weights of new ones after every so many learner steps, and forgets moments.

    That is before the next step, so that a run that ends there has what it learned.  Statistics of observations and
    rewards remain.  New weights follow from the run's seed and the step, so that a resumed run gets the same ones.

    Args:
      every: learner steps from one reset to the next.
      networks: a module with `begin_targets` whose variables are reset, but for frozen ones and its `normalizer`.
      make: makes such a module.
      strategy: the strategy in whose scope the networks were created.
      seed: the run's seed.
    """

    def __init__(self, every: int, networks: Any, make: Callable[[], Any], strategy: tf.distribute.Strategy, seed: int):
        self._every = every
        self._networks = networks
        self._make = make
        self._strategy = strategy
        self._seed = seed
        self._first: list[Any] | None = None
        """First value of each of the optimizers' variables, a number if it is the same everywhere."""

    @classmethod
    def of(cls, agent: Any, networks: Any, strategy: tf.distribute.Strategy, layout: Layout) -> PeriodicReset | None:
        """Returns the resets of an agent by its field `reset_every`; None without any."""
        if agent.reset_every is None:
            return None

        def make() -> Any:
            return agent.make_networks(layout).actor_critic

        return cls(agent.reset_every, networks.actor_critic, make, strategy, layout.seed)

    def begin(self, optimizers: Sequence[Any]) -> None:
        """Remembers what the optimizers' variables are before anything is learned or restored."""
        self._first = [_short(variable.numpy()) for one in optimizers for variable in one.variables]

    def __call__(self, steps: int, optimizers: Sequence[Any]) -> None:
        """Resets networks and optimizers if the learner has made a multiple of `every` steps; called before the next.

        Args:
          steps: its steps so far.
          optimizers: those of `begin`.
        """
        if not steps or steps % self._every:
            return
        assert self._first is not None
        tf.keras.utils.set_random_seed((self._seed + steps) % 2**32)
        with TRACING, self._strategy.scope():
            normalizer = self._networks.normalizer
            kept = {id(variable) for variable in (() if normalizer is None else normalizer.variables)}
            for variable, new in zip(self._networks.variables, self._make().variables, strict=True):
                if id(variable) not in kept and not is_frozen(variable):
                    variable.assign(new)
            # Of weights that are frozen, too.
            self._networks.begin_targets()
            moments = [variable for one in optimizers for variable in one.variables]
            for variable, first in zip(moments, self._first, strict=True):
                variable.assign(tf.cast(tf.broadcast_to(first, variable.shape), variable.dtype))


def _short(value: Any) -> Any:
    return value.flat[0] if value.size and (value == value.flat[0]).all() else np.array(value)
