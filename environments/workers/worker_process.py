"""A worker process, and requests to it.

The process has nothing of this library: an interpreter reads its program from its standard input, one text that
consists of the modules in `_MODULES`.  Variables of the environment and flags are those of the user, but the working
directory, which may belong to somebody else, is not searched.  It has a session of its own, and Linux kills it, with
what it has started in this session, when this process ends, however that happens.  Its memory has no name, so nothing
else is left either.
"""

import builtins
import contextlib
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import CallboardError, ProcessEnded, SentError, arrived, did_you_mean, signal_name, suggestion
from ...messages.caller_words import argument
from ...runtime.descendants import descendants, end_processes, running
from ...settings.named_objects import check_origin
from ...settings.own_modules import own_directories
from ..adapters.single_environments import not_of_singles
from ..batches.user_errors import unknown_environment, unknown_option
from .exchange import Channel
from .interpreters import Interpreter, worker_command

_MODULES = (
    "../../runtime/imports_elsewhere",
    "../../settings/object_origins",
    "../adapters/waiting",
    "exchange",
    "stepping",
    "named_imports",
    "making",
    "serving",
)
_PROGRAM_IN_STDIN = "exec(compile(sys.stdin.buffer.read(), '<worker>', 'exec'))"
_END_SECONDS = 10.0
_EXIT_SECONDS = 2.0
"""Time that a process has to end by itself, and after it those that it has started, such as a resource tracker."""
_REQUIREMENTS = {
    "Box2D": "gymnasium[box2d]",
    "PIL": "pillow",
    "ale_py": "ale-py",
    "cv2": "opencv-python",
    "mujoco": "gymnasium[mujoco]",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    **{name: name for name in ("envpool", "gym", "gymnasium", "minigrid", "mpe2", "pettingzoo", "shimmy")},
}
"""Packages to install for modules of libraries of environments, and for those with another name."""


def is_worker(command: Sequence[str]) -> bool:
    """Returns whether a process with this command line is a worker."""
    return any(word.endswith(_PROGRAM_IN_STDIN) for word in command)


class WorkerTraceback(Exception):
    """The traceback of a worker, as the cause of an error here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerError(SentError, RuntimeError):
    """An error that an environment has raised in a worker; subclasses bear the name of its type.

    Args:
      text: the message of the error.
      place: the file and the line that raised it; empty if that is none of the user's own, nor of a library.
      trace: the traceback.
    """

    names: tuple[str, ...] = ()
    """The names of its type and of the bases of that type, of a subclass."""

    def __init__(self, text: str, place: str, trace: str):
        super().__init__((f"{text} ({place})" if place else text).lstrip())
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.names, self.args, vars(self))


class WorkerExit(CallboardError):
    """An environment has called `sys.exit` in a worker.

    Args:
      name: its name.
      code: what it has given.
    """

    def __init__(self, name: str, code: str):
        super().__init__(f"environment {name!r} calls sys.exit({code}); let it raise an exception instead")
        self.code = code


class WorkerEnded(ProcessEnded):
    """A worker has ended by itself, or was killed.

    Args:
      worker: which one.
      how: how that happened, such as `crashes its worker (SIGSEGV)`.
      advice: what helps.
    """

    def __init__(self, worker: str, how: str, advice: str = "let it raise an exception instead"):
        super().__init__(f"{worker} {how}")
        self.how = how
        self.advice = advice


class WorkerProcess:
    """A worker process.

    Args:
      interpreter: the interpreter that runs it.
      name: name of its environments, for messages.
    """

    def __init__(self, interpreter: Interpreter, name: str):
        self.interpreter = interpreter
        self.name = name
        self.memory = os.memfd_create("callboard-worker")
        theirs, ours = os.pipe()
        our_reads, their_writes = os.pipe()
        lifeline, self._lifeline = os.pipe()
        given = (theirs, their_writes, lifeline, self.memory)
        self._channel = Channel(our_reads, ours)
        try:
            self._process = subprocess.Popen(
                worker_command(interpreter, _PROGRAM_IN_STDIN, *map(str, given)),
                stdin=subprocess.PIPE,
                pass_fds=given,
                start_new_session=True,
            )
        finally:
            for descriptor in given[:3]:
                os.close(descriptor)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(_program().encode())
        self._is_closed = self._waits = False

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def step(self) -> Any:
        """Steps the environments with the actions in the memory; returns what else there is to know, or None."""
        try:
            self._channel.send()
            self._waits = True
            answer, _ = self._channel.receive()
            self._waits = False
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if answer is not None and "error" in answer:
            self._raise(answer["error"])
        return answer

    def request(self, do: str, **details: Any) -> tuple[Any, bytes]:
        """Sends a request, and returns the answer.

        Raises:
          CallboardError: the worker refuses it.
          WorkerError: an environment has raised an error.
          WorkerEnded: the process has ended.
        """
        try:
            self._channel.send({"do": do, **details})
            self._waits = True
            answer, payload = self._channel.receive()
            self._waits = False
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if "error" in answer:
            self._raise(answer["error"])
        return answer, payload

    def make(self, do: str, env: str, **details: Any) -> dict[str, Any]:
        """Makes the environments, or only looks for them (`check`), and returns what they are.

        Raises:
          CallboardError: as in `request`; or a setting must not name an object there, see `check_usable`.
        """
        details.update(env=env, paths=own_directories())
        for kind, setting, origin in self.request("find", **details)[0]["origins"]:
            check_origin(kind, setting, origin)
        return self.request(do, **details)[0]

    def close(self) -> None:
        """Closes the environments, and ends the process.  A second call does nothing.

        Raises:
          CallboardError, WorkerError, WorkerEnded: as in `request`, once everything has ended.
        """
        failure = self.end()
        if isinstance(failure, WorkerEnded):
            raise failure
        if failure is not None:
            self._raise(failure)

    def end(self) -> WorkerEnded | Mapping[str, Any] | None:
        """Closes the environments, and ends the process and what it has started; returns what went wrong."""
        if self._is_closed:
            return None
        self._is_closed = True
        started = descendants(self._process.pid)
        failure: WorkerEnded | Mapping[str, Any] | None = None
        with contextlib.suppress(OSError):
            self._channel.send({"do": "close"})
            # An answer that was not waited for, as after Ctrl-C, comes first; where none comes, `close` is not reached.
            try:
                if not self._waits or self._received() is not None:
                    answer = self._received()
                    if answer is None:
                        how = f"has not returned for {_END_SECONDS:g} s, and is killed"
                        failure = WorkerEnded(f"{self._text}: 'close'", how, "let it return sooner")
                    else:
                        failure = answer.get("error")
                        self._let_end()
            except EOFError:
                failure = self._ended()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        end_processes(lambda: running(started))
        self._channel.close()
        for descriptor in (self._lifeline, self.memory):
            os.close(descriptor)
        return failure

    def _received(self) -> Any:
        """Returns the next answer, `{}` for one without content; None if there is none in time."""
        return (self._channel.receive()[0] or {}) if self._channel.poll(_END_SECONDS) else None

    def _let_end(self) -> None:
        """Gives the process time to end, with what it has registered for its end, and then those in its session."""
        with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
            self._process.wait(_EXIT_SECONDS)
            latest = time.monotonic() + _EXIT_SECONDS
            while time.monotonic() < latest:
                os.killpg(self._process.pid, 0)
                time.sleep(0.01)

    def __del__(self) -> None:
        # Where this process is ending, Linux ends the worker.
        if not getattr(self, "_is_closed", True) and not sys.is_finalizing():
            self.end()

    def _ended(self) -> WorkerEnded:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        code = self._process.returncode
        how = "does not answer any more" if code is None else f"ends its worker with exit code {code}"
        if code is not None and code < 0:
            how = f"crashes its worker ({signal_name(-code)})"
        return WorkerEnded(self._text, how)

    @property
    def _text(self) -> str:
        return f"environment {self.name!r} under {self.interpreter.text}"

    def _raise(self, error: Mapping[str, Any]) -> None:
        if error["kind"] == "raised":
            raise _error_type(tuple(error["types"]))(
                error["text"], error["place"], error["traceback"]
            ) from WorkerTraceback(error["traceback"])
        if error["kind"] in _ERRORS:
            raise _ERRORS[error["kind"]](self, error)
        raise Refusal(error)

    def _missing(self, error: Mapping[str, Any]) -> CallboardError:
        package = error["package"]
        requirement = _REQUIREMENTS.get(package, package) or "what it needs"
        return CallboardError(
            f"environment {self.name!r} needs the package {package!r} under {self.interpreter.text} "
            f"({' '.join(error['reason'].split())}): {self.interpreter.install_command(requirement)}"
        )

    def _unknown(self, error: Mapping[str, Any]) -> CallboardError:
        library, colon, _ = self.name.partition(":")
        beginning = library + colon if library in ("envpool", "gym", "pettingzoo") else ""
        if self.name.startswith("ALE/"):
            return unknown_environment(self.name, error["known"], "give an id of ale-py there", "ALE/")
        otherwise = f"{self.interpreter.text} has no such id: give one of its Gymnasium, or 'package.module:factory'"
        if library == "pettingzoo":
            families = sorted({name.partition(".")[0] for name in error["known"]})
            otherwise = f"the families under {self.interpreter.text} are {', '.join(families)}"
        return unknown_environment(self.name, error["known"], otherwise, beginning)

    def _removed(self, error: Mapping[str, Any]) -> CallboardError:
        hint = did_you_mean(error["newest"]) if error["newest"] else "name another one"
        return self._says(f"is not in the Gymnasium of {self.interpreter.text} any more; {hint}")

    def _wrong_kind(self, error: Mapping[str, Any]) -> CallboardError:
        if error["old"]:
            wrapper = argument("env_wrappers", "OldGym")
            return self._says(
                f"is of type {error['type']}, which is no gymnasium.Env: derive it from that class, or, for the old "
                f"interface of Gym, add {wrapper}; with several agents, list their names in its 'possible_agents', as "
                "in PettingZoo"
            )
        return self._says(
            f"is of type {error['type']}: under another interpreter, the factory must give a gymnasium.Env or one of "
            "Gym, a dm_env.Environment, a gymnasium.vector.VectorEnv or a PettingZoo ParallelEnv"
        )

    def _unknown_wrapper(self, error: Mapping[str, Any]) -> CallboardError:
        otherwise = "name one of its gymnasium.wrappers or package.module:Class"
        hint = suggestion(error["name"], error["known"], otherwise)
        return CallboardError(f"env_wrappers: {self.interpreter.text} has no wrapper {error['name']!r}; {hint}")

    def _no_object(self, error: Mapping[str, Any]) -> CallboardError:
        module, _, path = error["name"].partition(":")
        hint = suggestion(path, error["known"], f"define it in {module}, or name another object")
        return CallboardError(f"unknown {error['what']} {error['name']!r}; module {module!r} has no {path!r}, {hint}")

    def _no_module(self, error: Mapping[str, Any]) -> CallboardError:
        requirement = _REQUIREMENTS.get(error["module"])
        install = self.interpreter.install_command(requirement or "PACKAGE")
        own = "" if requirement else "start in its directory, or install the package that has it there: "
        return self._says(f"needs {error['module']!r}, which {self.interpreter.text} does not find: {own}{install}")

    def _says(self, text: str) -> CallboardError:
        return CallboardError(f"environment {self.name!r} {text}")


class Refusal(Exception):
    """A refusal whose message depends on the environment; see `stepping.Refused`."""

    def __init__(self, details: Mapping[str, Any]):
        super().__init__(details["kind"])
        self.details = details


_ERRORS: Mapping[str, Callable[[WorkerProcess, Mapping[str, Any]], Exception]] = {
    "missing": WorkerProcess._missing,
    "no_module": WorkerProcess._no_module,
    "no_object": WorkerProcess._no_object,
    "no_import": lambda worker, error: worker._says(
        f"cannot be imported under {worker.interpreter.text}: {' '.join(error['reason'].split())}"
    ),
    "unknown_environment": WorkerProcess._unknown,
    "removed": WorkerProcess._removed,
    "unknown_option": lambda worker, error: unknown_option(worker.name, error["option"], error["taken"]),
    "needs_option": lambda worker, error: worker._says(f"needs the option {error['option']!r}"),
    "cannot_make": lambda worker, error: worker._says(f"cannot be made: {error['reason']}"),
    "cannot_wrap": lambda worker, error: CallboardError(
        f"env_wrappers: {error['name']!r} cannot wrap the environment: {error['reason']}"
    ),
    "unknown_wrapper": WorkerProcess._unknown_wrapper,
    "no_wrapper": lambda worker, error: CallboardError(
        f"env_wrappers: {error['name']!r} is not a subclass of gymnasium.Wrapper"
    ),
    "wrapper_arguments": lambda worker, error: CallboardError(
        f"env_wrappers: {error['name']!r}: {error['reason']}; write [{{name: {error['name']}, argument: value}}] to "
        "give arguments"
    ),
    "no_singles": lambda worker, error: not_of_singles(worker.name, error["fix"]),
    "no_vector": lambda worker, error: worker._says("has no vector form of its own: leave 'vectorized' out"),
    "no_vector_option": lambda worker, error: worker._says(
        f"has a vector form that takes no {error['option']!r}, which is {error['value']} for its single form: leave "
        "'vectorized' out"
    ),
    "batch_size": lambda worker, error: worker._says(
        f"is a batch of {error['size']}, of another size than asked for: let the factory take 'batch_size'"
    ),
    "wrong_kind": WorkerProcess._wrong_kind,
    "lacks": lambda worker, error: CallboardError(
        f"{error['name']} has no {error['attribute']}: an environment of Gymnasium must have one"
    ),
    "turns": lambda worker, error: worker._says(
        "is a turn-based environment of PettingZoo, which env_python does not step: give it as a ParallelEnv, with "
        "pettingzoo.utils.turn_based_aec_to_parallel, or leave env_python out"
    ),
    "not_old": lambda worker, error: CallboardError(
        "the environment does not have the old interface of Gym: leave the wrapper OldGym out"
    ),
    "exit": lambda worker, error: WorkerExit(worker.name, error["code"]),
}


@functools.cache
def _error_type(names: tuple[str, ...]) -> type[WorkerError]:
    """Returns the type of an error that has these names, with those of its bases, and is an `OSError` like it."""
    known = [getattr(builtins, name, None) for name in names]
    faults = [kind for kind in known if isinstance(kind, type) and issubclass(kind, OSError)]
    made: Any = WorkerError
    for index, name in enumerate(reversed(names)):
        made = type(name, (made, *faults[:1]) if not index else (made,), {"names": names[-index - 1 :]})
    return made


def _arrived(names: tuple[str, ...], args: tuple[str], attributes: Mapping[str, Any]) -> WorkerError:
    """Returns an error that another process has sent, whose type no module has."""
    return arrived(_error_type(names), args, attributes)


@functools.cache
def _program() -> str:
    """Returns the program of a worker, one text."""
    folder = pathlib.Path(__file__).parent
    texts = [(folder / f"{module}.py").read_text(encoding="utf-8") for module in _MODULES]
    joined = re.sub(r"^from (\.|__future__)(.*\([^)]*\)|.*)$", "", "\n".join(texts), flags=re.MULTILINE)
    return f"from __future__ import annotations\n{joined}"
