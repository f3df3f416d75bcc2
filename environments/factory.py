"""Environments by name."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import tree

from ..data import CallboardError, Nest
from ..specs import EnvironmentSpec
from .batched import BatchedEnvironment, check_seeds

# What a name begins with -> the module and the ending of its functions `make_...` and `check_...`: `scheme:rest`, of
# which they take the rest, and `namespace/...`, of which they take the whole name.  As text, so that a library is
# imported only where it is asked for.
_MAKERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "gymnasium:": (".gymnasium_registry", "gymnasium"),
        "procgen:": (".procgen", "procgen"),
        "ale/": (".atari", "atari"),
        "minatar/": (".minatar", "minatar"),
    }
)
_FACTORY = (".python_factory", "factory")
_GYMNASIUM = (".gymnasium_registry", "gymnasium")

# Options that change what is learned from, and not what is played for.
_TRAINING_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"ale/": ("life_loss",), "procgen:": ("num_levels", "start_level")}
)


def make(
    name: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any] | None = None
) -> BatchedEnvironment:
    """A batch of the environment `name`.

    The same name, batch size, seeds and options, given the same actions, make the same trajectories.

    Args:
        name: a Gymnasium id (`CartPole-v1`), a function of the user's (`package.module:factory`), a game of Atari
            (`ALE/Breakout-v5`), MinAtar (`MinAtar/Breakout-v1`) or Procgen (`procgen:coinrun`), or `gymnasium:` and an
            id for what Gymnasium itself makes of it.
        batch_size: the number of environments, 1 or more.
        seeds: one to each environment, each 0 or more.
        options: what the environment takes besides; see `make_gymnasium`, `make_factory`, `AtariOptions`,
            `MinAtarOptions` and `ProcgenOptions`.

    Raises:
        CallboardError: what the user got wrong: an unknown name or option, a package that is missing, a space that is
            not supported, an observation with nothing in it.
        ValueError: not one seed to each environment.
    """
    check_seeds(batch_size, seeds)
    maker, rest = _resolve(name, "make")
    environment = maker(rest, batch_size, seeds, dict(options or {}))
    try:
        _check_observation(name, environment.spec.observation)
    except CallboardError:
        environment.close()
        raise
    return environment


def check(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Refuses a name or options that are wrong, as far as that is known without making an environment.

    Raises:
        CallboardError: as `make`.
    """
    checker, rest = _resolve(name, "check")
    checker(rest, dict(options or {}))


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


def evaluation_options(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`options` without those that are for training only.

    An evaluator sees whole episodes and true scores, and all levels where the training has only some.
    """
    left_out = _TRAINING_OPTIONS.get(_beginning(name), ())
    return {key: value for key, value in (options or {}).items() if key not in left_out}


def has_unseen_levels(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Whether the environments of `evaluation_options` have levels that those of `options` do not have."""
    return _beginning(name) == "procgen:" and bool((options or {}).get("num_levels"))


def _check_observation(name: str, observation: Nest) -> None:
    leaves = tree.flatten_with_path(observation)
    if not leaves:
        raise CallboardError(f"environment {name!r} shows nothing: its observation space is empty, give it a part")
    for path, leaf in leaves:
        if 0 in leaf.shape:
            place = f" at '{'/'.join(map(str, path))}'" if path else ""
            raise CallboardError(
                f"environment {name!r} has an observation of shape {tuple(leaf.shape)}{place}, with nothing in it: "
                + ("leave that part out" if path else "give it at least one element")
            )


def _resolve(name: str, what: Literal["make", "check"]) -> tuple[Callable[..., Any], str]:
    if not isinstance(name, str):
        raise CallboardError(
            f"an environment is named by text, such as 'CartPole-v1', not by a {type(name).__name__}: put the function "
            "that makes it in a module and name it as 'package.module:function'"
        )
    beginning = _beginning(name)
    (module, ending), rest = _GYMNASIUM, name
    if beginning in _MAKERS:
        module, ending = _MAKERS[beginning]
        rest = name[len(beginning) :] if beginning.endswith(":") else name
    # `module:Id-v0` is Gymnasium's own way to import a module that registers ids; no function has such a name.
    elif ":" in name and name.partition(":")[2].isidentifier():
        module, ending = _FACTORY
    return getattr(importlib.import_module(module, __package__), f"{what}_{ending}"), rest


def _beginning(name: str) -> str:
    """Up to the first `:` or `/`, that included; a namespace in any case, for ids are mistyped so."""
    found = re.match(r"\w+:|\w+/", name)
    if found is None:
        return ""
    return found[0].lower() if found[0].endswith("/") else found[0]
