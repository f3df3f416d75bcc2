"""One-line errors for mistakes in the names and options of environments."""

import contextlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import gymnasium

from ...errors import CallboardError, MissingPackage, did_you_mean, nearest, suggestion


def keywords(creator: Callable[..., Any]) -> tuple[list[str], bool]:
    """Returns the names of the keyword arguments of `creator`, and whether it takes arbitrary others."""
    try:
        parameters = inspect.signature(creator).parameters.values()
    except ValueError:  # Some callables written in C have no signature.
        return [], True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [parameter.name for parameter in parameters if parameter.kind in named]
    return names, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def unknown_environment(name: str, known: Iterable[str], otherwise: str, beginning: str = "") -> CallboardError:
    """Returns the error for an unknown environment name.

    Args:
      name: the user's name.
      known: known names without `beginning`; the closest is suggested.
      otherwise: hint if no known name is close.
      beginning: common prefix of all known names, which is excluded from the comparison.
    """
    rest = name[len(beginning) :] if name.lower().startswith(beginning.lower()) else name
    close = nearest(rest, known)
    hint = did_you_mean(beginning + close) if close else otherwise
    return CallboardError(f"unknown environment {name!r}; {hint}")


_CALLED: Mapping[str, str] = MappingProxyType(
    {
        "sticky sticky_actions sticky_action sticky_prob sticky_actions_prob": "repeat_action_probability "
        "sticky_action_prob",
        "noops noop no_op_max max_noops noop_reset": "noop_max",
        "episodic_life terminal_on_life_loss terminate_on_life_loss": "life_loss",
        "frame_skip skip action_repeats": "frameskip action_repeat",
        "dim resolution image_size img_size obs_size": "screen_size size",
        "max_steps time_limit max_episode_length": "max_episode_steps",
        "max_episode_frames max_frames": "max_num_frames_per_episode",
        "frame_stack framestack stack stack_size n_stack num_stack stack_num frames": "--agent.frame-stack",
        "clip_rewards clip_reward reward_clip reward_clipping": "reward_clip --agent.reward-clip",
    }
)
"""Names of options in other libraries, each with ours; settings of agents have dashes."""


def unknown_option(name: str, option: str, taken: Iterable[str]) -> CallboardError:
    """Returns the error for an unknown option of the environment `name`, whose options are `taken`."""
    known = sorted(set(taken))
    if hint := _meant(option.lower().replace("-", "_"), known):
        return CallboardError(f"environment {name!r} has no option {option!r}; {hint}")
    hint = suggestion(option, known, f"its options are {', '.join(known)}" if known else "it has none")
    return CallboardError(f"environment {name!r} has no option {option!r}; {hint}")


def _meant(option: str, known: Collection[str]) -> str:
    """Returns a hint for what other libraries call so, or "" if that is nothing here."""
    for words, ours in _CALLED.items():
        if option in words.split():
            if near := [one for one in ours.split() if one in known]:
                return did_you_mean(near[0])
            if setting := [one for one in ours.split() if one.startswith("--")]:
                return f"that is a setting of the agent: {' '.join(setting)}"
    return ""


@contextlib.contextmanager
def needs_package(name: str, package: str, install: str) -> Iterator[None]:
    """Converts an `ImportError` of a package of the environment `name` into a `CallboardError` with a fix.

    Args:
      name: the environment that is being made.
      package: name of the package on PyPI.
      install: what to install, as pip takes it.

    Raises:
      MissingPackage: if the import fails.
    """
    try:
        yield
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise MissingPackage(f"environment {name!r}", package, install, reason) from error


@contextlib.contextmanager
def creation_errors(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Converts errors with which a library refuses to make the environment `name` into a `CallboardError`.

    Raises:
      CallboardError: if one of these errors is raised.
    """
    try:
        yield
    except errors as error:
        raise CallboardError(f"environment {name!r} cannot be made: {' '.join(str(error).split())}") from error


@contextlib.contextmanager
def user_errors(name: str, options: Mapping[str, Any], taken: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Converts errors that Python and Gymnasium raise for a user's mistake into a `CallboardError`.

    Args:
      name: the environment that is being made.
      options: the user's options.
      taken: returns the options that the environment takes; called if an option was rejected.

    Raises:
      CallboardError: if an option is unknown, or a package is not installed.
    """
    try:
        with creation_errors(name, gymnasium.error.Error, ImportError):
            yield
    except TypeError as error:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found is None or found[1] not in options:
            raise
        raise unknown_option(name, found[1], taken()) from error
