"""Environments by name."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..specs import EnvironmentSpec
from .batched import BatchedEnvironment, check_seeds
from .gymnasium_registry import make_gymnasium
from .python_factory import make_from_factory

Maker = Callable[[str, int, Sequence[int], Mapping[str, Any]], BatchedEnvironment]
"""Makes a batch from (the name without its scheme, batch size, seeds, options)."""

# `scheme:rest` -> the function that makes it.  As text, so that a library is imported only where it is asked for.
_SCHEMES: Mapping[str, str] = MappingProxyType({"gymnasium": ".gymnasium_registry:make_gymnasium"})


def make(
    name: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any] | None = None
) -> BatchedEnvironment:
    """A batch of the environment `name`.

    The same name, batch size, seeds and options, given the same actions, make the same trajectories.

    Args:
        name: a Gymnasium id (`CartPole-v1`), a function of the user's (`package.module:factory`), or `scheme:rest`
            with a scheme of Callboard's own (`gymnasium:CartPole-v1`).
        batch_size: the number of environments, 1 or more.
        seeds: one to each environment, each 0 or more.
        options: what the environment takes besides; see `make_gymnasium` and `make_from_factory`.

    Raises:
        CallboardError: what the user got wrong: an unknown name or option, a package that is missing, a space that is
            not supported.
        ValueError: not one seed to each environment.
    """
    check_seeds(batch_size, seeds)
    maker, rest = _resolve(name)
    return maker(rest, batch_size, seeds, dict(options or {}))


def spec(name: str, options: Mapping[str, Any] | None = None) -> EnvironmentSpec:
    """What one environment `name` takes and gives.  It is made to be asked, and closed.

    Raises:
        CallboardError: as `make`.
    """
    environment = make(name, 1, [0], options)
    try:
        return environment.spec
    finally:
        environment.close()


def _resolve(name: str) -> tuple[Maker, str]:
    prefix, colon, rest = name.partition(":")
    if colon and prefix in _SCHEMES:
        module, _, function = _SCHEMES[prefix].partition(":")
        return getattr(importlib.import_module(module, __package__), function), rest
    # `module:Id-v0` is Gymnasium's own way to import a module that registers ids; no function has such a name.
    if colon and rest.isidentifier():
        return make_from_factory, name
    return make_gymnasium, name
