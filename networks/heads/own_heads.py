"""Heads of a policy and of its critics that factories of users make, in place of the agents' own."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf

from ... import specs
from ...errors import CallboardError
from ..core_factory import check_outputs, make_own_head

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class CriticHead(tf.Module):
    """A critic's head of the user's own, whose outputs are checked.

    Args:
      path: its factory, `package.module:factory`.
      head: what the factory has made.
      outputs: number of outputs that the critic needs.
    """

    def __init__(self, path: str, head: Any, outputs: int):
        super().__init__()
        self._path = path
        self._head = head
        self._outputs = outputs

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps features and perhaps numbers of an action, `[N, F]`, to `[N, outputs]`."""
        outputs = self._head(inputs)
        check_outputs(self._path, {"": (self._outputs,)}, outputs, "critic_head", "the critic", inputs.shape[0])
        return outputs

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """Variables that the learner trains, without those of layers that the user has frozen."""
        return tuple(self._head.trainable_variables)


class OwnHeads(NamedTuple):
    """Which heads of an agent with a policy and critics the user makes."""

    head: str | None = None
    """`package.module:factory` of the policy's head; None for the agent's own."""
    head_options: Mapping[str, Any] = NO_OPTIONS
    critic_head: str | None = None
    """`package.module:factory` of the head of each critic; None for the agent's own."""
    critic_head_options: Mapping[str, Any] = NO_OPTIONS

    def policy(self, spec: specs.EnvironmentSpec, make: Callable[[], Any]) -> Any:
        """Makes the policy's head, with `make` if the user makes none.

        Raises:
          CallboardError: as in `core_factory.make_own_head`.
        """
        return make() if self.head is None else make_own_head(self.head, spec, self.head_options)

    def policy_check(
        self, shapes: Mapping[str, tuple[int, ...]], kind: type | None = None
    ) -> Callable[[Any], None] | None:
        """Returns the check of what a policy's head of the user's own outputs, for `network.Network`; else None.

        Args:
          shapes: as in `core_factory.check_outputs`.
          kind: class of the outputs; None for a tensor.
        """
        return None if self.head is None else functools.partial(_check_policy, self.head, shapes, kind)

    def critic(self, spec: specs.EnvironmentSpec) -> dict[str, Callable[..., Any]]:
        """Returns the argument `make_head` of a critic; empty if it makes its own."""
        path = self.critic_head
        if path is None:
            return {}

        def make_head(outputs: int, *_: Any, **__: Any) -> CriticHead:
            made = make_own_head(path, spec, self.critic_head_options, "critic_head")
            return CriticHead(path, made, outputs)

        return {"make_head": make_head}


def _check_policy(head: str, shapes: Mapping[str, tuple[int, ...]], kind: type | None, outputs: Any) -> None:
    if kind is not None and not isinstance(outputs, kind):
        wanted = f"{kind.__module__}.{kind.__name__}"
        raise CallboardError(f"head {head!r} must return a {wanted} of features, not {type(outputs).__name__}")
    check_outputs(head, shapes, outputs)
