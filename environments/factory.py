"""Creation of environments by name."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import tree

from ..data import Nest
from ..errors import CallboardError
from ..specs import EnvironmentSpec
from .batched import BatchedEnvironment, check_seeds

# Maps the beginning of a name to a module and the suffix of its functions `make_...` and `check_...`.  These take only
# the rest of a `scheme:rest` name, but the whole of a `namespace/...` name.  Modules are given as text, so that a
# library is imported only when it is used.
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

# Options that are for training only and do not apply to evaluation.
_TRAINING_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"ale/": ("life_loss",), "procgen:": ("num_levels", "start_level")}
)


def make(
    name: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any] | None = None
) -> BatchedEnvironment:
    """Makes a batch of the environment `name`.

    With the same name, batch size, seeds and options, the same actions give the same trajectories.

    Args:
      name: a Gymnasium id (`CartPole-v1`), a user's function (`package.module:factory`), a game of Atari
        (`ALE/Breakout-v5`), MinAtar (`MinAtar/Breakout-v1`) or Procgen (`procgen:coinrun`), or `gymnasium:`
        followed by an id, to make it with Gymnasium itself.
      batch_size: the number of environments, at least 1.
      seeds: one seed per environment, each at least 0.
      options: options of the environment; see `make_gymnasium`, `make_factory`, `AtariOptions`, `MinAtarOptions` and
        `ProcgenOptions`.

    Raises:
      CallboardError: if the name or an option is unknown, a package is not installed, a space is not supported, or an
        observation is empty.
      ValueError: if there is not exactly one seed per environment.
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
    """Checks a name and options, as far as possible without making an environment.

    Raises:
      CallboardError: as in `make`.
    """
    checker, rest = _resolve(name, "check")
    checker(rest, dict(options or {}))


def spec(name: str, options: Mapping[str, Any] | None = None) -> EnvironmentSpec:
    """Returns the spec of the environment `name`, by making one and closing it.

    Raises:
      CallboardError: as in `make`.
    """
    environment = make(name, 1, [0], options)
    try:
        return environment.spec
    finally:
        environment.close()


def check_hooks(name: str, options: Mapping[str, Any], infos: bool, tasks: Sequence[Any]) -> None:
    """Checks that an environment has infos and takes tasks, by making it, if either is wanted.

    Args:
      name: name of the environment.
      options: options of the environment.
      infos: whether its infos are wanted.
      tasks: the tasks that it will be set to; None is its own.

    Raises:
      CallboardError: as in `make`, or the environment has no infos, or cannot be set to a task.
    """
    if not infos and all(task is None for task in tasks):
        return
    environment = make(name, 1, [0], options)
    try:
        if infos:
            environment.keep_infos()
        for task in tasks:
            if task is not None:
                environment.set_task(task)
                environment.reset()
    finally:
        environment.close()


def evaluation_options(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns `options` without those that are for training only.

    Evaluation thus uses whole episodes, true scores, and all levels even if training is restricted to some.
    """
    left_out = _TRAINING_OPTIONS.get(_beginning(name), ())
    return {key: value for key, value in (options or {}).items() if key not in left_out}


def has_unseen_levels(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Returns whether `evaluation_options` gives environments with levels that those of `options` do not have."""
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
    # `module:Id-v0` is Gymnasium's syntax to import a module that registers ids; `Id-v0` is not an identifier.
    elif ":" in name and name.partition(":")[2].isidentifier():
        module, ending = _FACTORY
    return getattr(importlib.import_module(module, __package__), f"{what}_{ending}"), rest


def _beginning(name: str) -> str:
    """Returns the name up to and including the first `:` or `/`; a namespace in lower case, to tolerate typos."""
    found = re.match(r"\w+:|\w+/", name)
    if found is None:
        return ""
    return found[0].lower() if found[0].endswith("/") else found[0]
