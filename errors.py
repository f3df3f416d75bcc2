"""Errors that the user can fix, and the names that their messages suggest."""

import contextlib
import difflib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from .messages import foreign_names
from .messages.install_commands import install_command

_MOST_NAME_BYTES, _MOST_PATH_BYTES = 255, 4096
"""Bounds of Linux on a part of a path, and on a path with its end."""
_SHORT = 5
"""Letters of a name of which one wrong letter is a large part."""
_MOST_MESSAGE, _MOST_LINE, _MOST_TRACEBACK = 4_000, 500, 50_000
"""Letters that are shown of the message of an exception, of one line about it, and of its traceback."""


E = TypeVar("E", bound=BaseException)


class SentError(BaseException):
    """Base class of exceptions that pickle takes to another process: their constructors take more than a message."""

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, (type(self), self.args, vars(self))


def arrived(kind: type[E], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> E:
    """Returns an exception that another process has sent, as `SentError`."""
    # Python's own class, of which the exception is: of several bases, the one that says how it is laid out in memory.
    builtin: Any = kind
    while builtin.__module__ != "builtins":
        builtin = builtin.__base__
    error: E = builtin.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


class CallboardError(SentError, Exception):
    """An error that the user can fix.

    The message is one line that says what is wrong and how to fix it.  It is shown without a traceback, and a node that
    raises it is not restarted.

    Args:
      message: the message.
      details: more lines for the user, such as a traceback of the user's own code; the command prints them first.
    """

    def __init__(self, message: str = "", details: str = ""):
        super().__init__(message)
        self.details = details


class UnknownSetting(CallboardError):
    """A setting that does not exist.

    Args:
      subject: what the user wrote, such as `option '--agent.lr'`.
      key: the flat name that it stands for.
      hint: what to do.
      is_guess: whether the hint is no more than a similar name.
    """

    def __init__(self, subject: str, key: str, hint: str, is_guess: bool):
        super().__init__(f"unknown {subject}; {hint}")
        self.subject, self.key, self.is_guess = subject, key, is_guess


class MissingPackage(CallboardError):
    """A package that is not installed.

    Args:
      what: what needs it, such as `environment 'LunarLander-v3'`.
      package: its name.
      requirement: what to install, as pip takes it.
      reason: what its import has reported, if it was tried.
    """

    def __init__(self, what: str, package: str, requirement: str, reason: str = ""):
        given = f" ({reason})" if reason else ""
        super().__init__(f"{what} needs the package {package!r}{given}: {install_command(requirement)}")
        self.package = package
        self.requirement = requirement


class ProcessEnded(SentError, ConnectionError):
    """A process with environments has ended by itself, or was killed.

    That is a fault, after which a node is restarted.  The message is one line, which is shown without a traceback.
    """


class UnknownAttribute(SentError, AttributeError):
    """A name in Python that does not exist.

    The message suggests what other libraries call so, or a similar name.  It is made when it is read, since Python also
    looks names up that may be missing.

    Args:
      owner: what lacks it, such as `module 'callboard'`.
      name: the user's name.
      known: all public names.
    """

    def __init__(self, owner: str, name: str, known: Iterable[str]):
        super().__init__(f"{owner} has no attribute {name!r}")
        self._name = name
        self._known = tuple(known)

    def __str__(self) -> str:
        problem = str(self.args[0])
        if self._name.startswith("_"):
            return problem
        hint = foreign_names.hint("python", self._name)
        near = nearest(self._name, (known for known in self._known if not known.startswith("_")))
        hint = hint or (did_you_mean(near) if near else None)
        return f"{problem}; {hint}" if hint else problem


class ControlFlow(BaseException):
    """Base class of the library's own exceptions that are no errors, which no handler of a user's errors stops."""


def anything_raised() -> type[BaseException]:
    """Returns the class for the `except` clause around a call of a user's code, which may also call `sys.exit`.

    It is `BaseException`, or `Exception` while `KeyboardInterrupt` or a `ControlFlow` is raised.
    """
    return Exception if isinstance(sys.exc_info()[1], KeyboardInterrupt | ControlFlow) else BaseException


@contextlib.contextmanager
def exits_refused() -> Iterator[None]:
    """Raises `CallboardError` where a user's code raises something else than an `Exception`, as `sys.exit` does.

    The program's own handlers of signals may raise anything.
    """
    try:
        yield
    except Exception:
        raise
    except anything_raised() as error:
        frames = traceback.extract_tb(error.__traceback__)
        handlers = [getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()]
        if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise
        place = f"{os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}, in {frames[-1].name},"
        raise CallboardError(f"{place} raises {one_line(error)}; let it raise an exception instead") from error


def message_of(error: BaseException) -> str:
    """Returns the message of an exception of any class, also of one whose `__str__` fails.

    The middle of a long one is left out.
    """
    try:
        return shortened(str(error), _MOST_MESSAGE)
    except anything_raised():
        return "its message cannot be shown, since its __str__ fails"


def first_line(error: BaseException) -> str:
    """Returns the first line of the message of an exception of any class."""
    return shortened((message_of(error).strip().splitlines() or [""])[0], _MOST_LINE)


def one_line(error: BaseException) -> str:
    """Returns `ValueError: first line of the message`; the message alone of a `CallboardError`, or a `ProcessEnded`."""
    if isinstance(error, CallboardError | ProcessEnded):
        return " ".join(message_of(error).splitlines())
    return f"{type(error).__name__}: {first_line(error)}".removesuffix(": ")


def traceback_text(error: BaseException) -> str:
    """Returns the traceback of an exception, as Python shows it; without its middle if its message is long."""
    return shortened("".join(traceback.format_exception(error)))


def shortened(text: str, most: int = _MOST_TRACEBACK) -> str:
    """Returns a text, of which the middle is left out if it has more than `most` letters."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def printable(text: str) -> str:
    """Returns a text in one line; text from a file may contain line breaks or a terminal's control codes."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def printable_lines(text: str) -> str:
    """Returns a text whose lines are printable each."""
    return "\n".join(map(printable, text.split("\n")))


@contextlib.contextmanager
def long_paths_refused() -> Iterator[None]:
    """Raises `CallboardError` for a path that is too long for a file."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise CallboardError(f"the path {error.filename!s:.80}... is too long for a file") from error


@contextlib.contextmanager
def named_as(copy: object, place: object) -> Iterator[None]:
    """Names a place in messages of `CallboardError` instead of its temporary copy, which will be gone."""
    try:
        yield
    except CallboardError as error:
        error.args = (str(error).replace(str(copy), str(place)),)
        error.details = error.details.replace(str(copy), str(place))
        raise


@contextlib.contextmanager
def writing(place: object, errors: tuple[type[Exception], ...] = (OSError,)) -> Iterator[None]:
    """Makes errors of writing a file or a directory those of the user.

    Args:
      place: what is written, as the user has named it.
      errors: errors of what writes it.

    Raises:
      CallboardError: it cannot be written.
    """
    try:
        yield
    except CallboardError:
        raise
    except errors as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
        raise CallboardError(f"{place} cannot be written: {reason}; name another place") from error


def signal_name(number: int) -> str:
    """Returns the name of a signal; real-time signals have numbers alone."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def counted(number: float, noun: str) -> str:
    """Returns `1 episode` or `2,000 episodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rounded(number: float) -> str:
    """Returns `12.3`; below 10 three digits, `0.956`; of a number with more than 15 digits `1.234e+300`."""
    if 10 <= abs(number) < 1e15:
        return f"{number:.1f}"
    text = f"{number:.3g}" if abs(number) < 10 else f"{number:.4g}"
    return f"{text}.0" if text.strip("-").isdecimal() else text


def with_deviation(mean: float, deviation: float) -> str:
    """Returns `12.3 ± 4.5`, the deviation with as many decimals as the mean."""
    shown = rounded(mean)
    decimals = len(shown.partition(".")[2])
    return f"{shown} ± {f'{deviation:.{decimals}f}' if mean and 'e' not in shown else rounded(deviation)}"


def is_utf8(text: str) -> bool:
    """Returns whether a text has no part of a letter, which no file and no message can hold."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def check_text(name: object, what: str) -> None:
    """Raises `CallboardError` if a user's name is text that no file can hold, such as part of a letter.

    Args:
      name: the name.
      what: what has it, for the message, such as `team.py has the agent`.
    """
    if isinstance(name, str) and not is_utf8(name):
        raise CallboardError(f"{what} {name!r}, which is no text in UTF-8: rename it")


def type_text(value: object) -> str:
    """Returns the type of a value with its article, such as `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def check_type(name: str, value: object, kinds: Any, needed: str) -> None:
    """Raises `CallboardError` if an argument is not of one of the types `kinds`, which `needed` describes."""
    if not isinstance(value, kinds):
        raise CallboardError(f"{name} must be {needed}, not {type_text(value)}")


def named_path(path: object, what: str) -> str:
    """Returns a path or a URL that a user has named, as text.

    Args:
      path: the path, which need not exist.
      what: what it should lead to, for the message, such as `run`.

    Raises:
      CallboardError: it is neither text nor a path, or no file can have this name.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise CallboardError(f"name the {what} by a path or a URL, not by {type_text(path)}")
    with contextlib.suppress(UnicodeEncodeError):
        encoded = os.fsencode(text)
        if "\0" in text:
            raise CallboardError(f"the {what} {text!r} has a null character in its name")
        is_long = len(encoded) >= _MOST_PATH_BYTES or max(map(len, encoded.split(b"/"))) > _MOST_NAME_BYTES
        if is_long and "://" not in text:
            raise CallboardError(f"the path {text:.80}... is too long for a file")
        return text
    raise CallboardError(f"the {what} {text!r} has part of a letter in its name: rename it")


def check_working_directory() -> None:
    """Refuses a working directory that was removed, to which no path is relative."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise CallboardError("the working directory does not exist any more: go to another one, with cd") from error


def unknown(what: str, name: object, known: Iterable[str], otherwise: str = "") -> CallboardError:
    """Returns the error for a name that does not exist: `unknown torso 'ml'; did you mean 'mlp'?`

    Args:
      what: what the name is meant to be, such as `torso`; for an `agent` or a `command`, names of other libraries are
        understood.
      name: the user's name.
      known: all names that exist.
      otherwise: hint if no known name is similar; by default, all known names.
    """
    known = list(known)
    kind: foreign_names.Kind | None = "agent" if what == "agent" else "command" if what == "command" else None
    hint = foreign_names.hint(kind, str(name), known) if kind else None
    return CallboardError(f"unknown {what} {name!r}; {hint or suggestion(str(name), known, otherwise)}")


def unknown_setting(
    what: str, given: object, key: str, known: Mapping[str, str], otherwise: str = "the command's --help lists all"
) -> CallboardError:
    """Returns the error for a setting that does not exist: `unknown option '--lr'; did you mean '--learning-rate'?`

    Args:
      what: what it is meant to be: `key`, `option` or `argument`.
      given: what the user wrote.
      key: the flat name that it stands for, such as `agent.lr`.
      known: what the user could have written, by flat name.
      otherwise: hint if no setting is similar.
    """
    if what == "key" and key in known and "." in key:
        *groups, last = key.split(".")
        nested = "".join(f"{group}: {{" for group in groups) + f"{last}: ..." + "}" * len(groups)
        return CallboardError(f"the key {given!r} is no name with dots in a file: write {nested}")
    meant = _meant_setting(key, known)
    hint = meant or _alike_setting(key, known) or otherwise
    return UnknownSetting(f"{what} {given!r}", key, hint, is_guess=meant is None)


def similar_setting(key: str, known: Mapping[str, str]) -> str | None:
    """Returns a hint such as `did you mean 'agent.discount'?` for a setting that does not exist, or None.

    It suggests a similar name in the same group, such as `agent.critics`, else what other libraries call so, else the
    setting with the same last part, else with the same words, else the one with the most similar name, unless what
    other libraries call so is a setting of other agents.

    Args:
      key: the flat name.
      known: what to suggest, by flat name.
    """
    return _meant_setting(key, known) or _alike_setting(key, known)


def _meant_setting(key: str, known: Mapping[str, str]) -> str | None:
    """Returns the hint of `similar_setting` where the group, the end of the name or another library says what it is."""
    group = f"{key.rpartition('.')[0]}."
    in_group = {name.removeprefix(group): text for name, text in known.items() if name.startswith(group)}
    meant = nearest(_last_part(key), in_group) if group.count(".") > 1 else None
    if meant is not None:
        return did_you_mean(in_group[meant])
    foreign = foreign_names.hint("setting", key, known)
    if foreign is not None:
        return foreign
    # `agent.optimizer.learning_rate` may be `agent.actor_optimizer.learning_rate`, and that of the critic.
    end = ".".join(key.split(".")[1:][-2:])
    same = [text for name, text in known.items() if "." in end and name.endswith(end)]
    return did_you_mean(*same) if same else None


def _alike_setting(key: str, known: Mapping[str, str]) -> str | None:
    for same_part in (_last_part, _words):
        same = [text for name, text in known.items() if same_part(name) == same_part(key)]
        if len(same) == 1:
            return did_you_mean(same[0])
    of_others = foreign_names.agents_settings(key)
    if of_others:
        return f"this agent has no such setting; others have {' or '.join(of_others)}"
    # A prefix that all settings of the agent have would make any two of them similar.
    group = f"{key.partition('.')[0]}."
    group = group if any(name.startswith(group) for name in known) else ""
    names = {name.removeprefix(group): text for name, text in known.items() if name.startswith(group)}
    near = nearest(key.removeprefix(group), names)
    if near is not None:
        several = sum(_last_part(name) == _last_part(near) for name in names) > 1
        # Of several groups with such a setting, the one that other libraries mean by it.
        usual = foreign_names.hint("setting", group + _last_part(near), known) if several else None
        return did_you_mean(names[near]) if usual is None else usual
    last = nearest(_last_part(key), map(_last_part, names))
    same = [text for name, text in names.items() if _last_part(name) == last]
    return did_you_mean(*same) if same else None


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _words(name: str) -> list[str]:
    """Returns the words of a flat name in alphabetical order, so that `min_replay_size` is like `replay.min_size`."""
    return sorted(name.replace(".", "_").split("_"))


def did_you_mean(*names: str) -> str:
    return f"did you mean {' or '.join(map(repr, names))}?"


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Returns `did you mean 'mlp'?` for the known name most similar to `name`, or `otherwise` as in `unknown`."""
    known = list(known)
    near = nearest(name, known)
    return otherwise or f"choose from {', '.join(known) or 'none'}" if near is None else did_you_mean(near)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name most similar to `name`, or None if none is similar.

    Case, dashes and underscores make no difference.  A name that is the beginning of one known name is similar to it.
    """
    by_letters = {_letters(candidate): candidate for candidate in known}
    wanted = _letters(name)
    if wanted in by_letters:
        return by_letters[wanted]
    longer = [letters for letters in by_letters if len(wanted) > 2 and letters.startswith(wanted.removesuffix("s"))]
    if len(longer) == 1:
        return by_letters[longer[0]]
    # Long names may have half of their words in common and mean something else, as `num_workers` and `env_wrappers`.
    cutoff = 0.6 if len(wanted) <= _SHORT else 0.7
    near = difflib.get_close_matches(wanted, by_letters, n=1, cutoff=cutoff)
    near = near or [letters for letters in by_letters if sorted(letters) == sorted(wanted)]
    return by_letters[near[0]] if near else None


def _letters(name: str) -> str:
    return name.lower().strip("-").replace("-", "_")


_NO_ROOM = (
    "Resource temporarily unavailable",
    "can't start new thread",
    "Cannot allocate memory",
    "failed to map segment",
    "std::bad_alloc",
    "OOM when allocating",
)
"""Words of errors of libraries that were refused memory or threads."""


def limits_text(error: BaseException) -> str:
    """Returns what to look at after an error for want of memory or threads; empty after any other."""
    if not isinstance(error, MemoryError) and not any(words in message_of(error) for words in _NO_ROOM):
        return ""
    # Libraries say neither what was short nor which limit it was.
    return (
        "This process got no more memory or threads: look at `ulimit -v`, `ulimit -u` and the limits of the container, "
        "or start fewer and smaller parts"
    )
