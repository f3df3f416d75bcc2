"""Errors of a user's environment: one line for wrong names and options, and the user's own part of a traceback."""

import contextlib
import inspect
import pathlib
import re
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium

from ...errors import CallboardError, MissingPackage, did_you_mean, message_of, nearest, shortened, suggestion

_PACKAGE = str(pathlib.Path(__file__).resolve().parents[2])
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
_LIBRARIES = ("gymnasium", "dm_env", "pettingzoo", "importlib", "runpy.py", "contextlib.py")


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns the frames of an exception, from the first one of the user's on; all if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    for index, frame in enumerate(frames):
        if not _is_ours(frame.filename):
            return frames[index:]
    return list(frames)


def user_traceback(error: BaseException) -> str:
    """Returns these frames and the exception, as Python shows them."""
    lines = traceback.format_list(user_frames(error)) + traceback.format_exception_only(type(error), error)
    return "Traceback (most recent call last):\n" + shortened("".join(lines).rstrip())


def waiting_place(lines: Sequence[str]) -> str:
    """Returns the innermost place in a user's own file, of a thread whose frames `faulthandler` printed; else empty."""
    for line in lines:
        found = re.fullmatch(r'  File "(.+)", line (\d+) in .*', line)
        if found and not (_is_ours(found[1]) or found[1].startswith(_INSTALLED)):
            return f"{pathlib.Path(found[1]).name}, line {found[2]}"
    return ""


def _is_ours(filename: str) -> bool:
    path = pathlib.Path(filename)
    if filename.startswith(("<frozen", "<string>", "<worker>")) or str(path.resolve()).startswith(
        (f"{_PACKAGE}/environments/", f"{_PACKAGE}/named_")
    ):
        return True
    return any(part in _LIBRARIES for part in path.parts)


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
        reason = " ".join(message_of(error).split())
        raise MissingPackage(f"environment {name!r}", package, install, reason) from error


REFUSALS = (AssertionError, AttributeError, IndexError, KeyError, OSError, TypeError, ValueError)
"""Errors with which environments of libraries refuse values of options."""


@contextlib.contextmanager
def creation_errors(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Converts errors with which a library refuses to make the environment `name` into a `CallboardError`.

    Raises:
      CallboardError: if one of these errors is raised.
    """
    try:
        yield
    except errors as error:
        raise CallboardError(f"environment {name!r} cannot be made: {' '.join(message_of(error).split())}") from error


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
        found = re.search(r"unexpected keyword argument '(\w+)'", message_of(error))
        if found is None or found[1] not in options:
            raise
        raise unknown_option(name, found[1], taken()) from error
