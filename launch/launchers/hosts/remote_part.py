"""A host's part in `callboard cluster run`: the process that the command starts there, usually through SSH.

It writes a line with its version, and receives a `RemotePart` in a line of JSON.  Then it runs `callboard train`,
passes its output on, and receives further lines: the number of a signal for the run, or an empty one, which says that
the command is alive.  Once these stop, because the command or the connection has ended, the part of the run ends too.
"""

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, NamedTuple

from .... import __version__
from ....runtime.deadlines import Deadline
from ....runtime.interpreter import callboard_command
from ....settings.own_modules import search_working_directory
from ...processes.stop_signals import stop_signals
from ...processes.temporary_files import removed_afterwards

HELLO = "callboard cluster part "
"""Beginning of the first line, before the version."""
MODULES = "modules/"
"""Beginning of the paths of the user's modules among the files of a part."""
END_SECONDS = 90.0
"""Time that a run has to end once it is stopped; afterwards it is killed."""
_WAIT_SECONDS = 0.2
# The run ends if the process of the part is killed.
_BEFORE = (
    "import ctypes; ctypes.CDLL(None).prctl(1, 15); from {name} import search_working_directory as search; {search}"
)


class RemotePart(NamedTuple):
    """The command of a host."""

    arguments: list[str]
    """Arguments of `callboard train`, without the cluster file and the recipe."""
    files: dict[str, str]
    """Contents by relative paths: `cluster.yaml`, `recipe.yaml` if there is one, and the user's modules.

    Each byte is a letter (Latin-1), since a module may have any encoding.
    """
    folder: str
    """The working directory; where there is none, it is that of the files."""
    cluster: str
    """Path of the cluster file on the host of the command."""
    patience: float
    """Seconds without a line after which the command counts as ended."""


def run_part() -> int:
    """Runs the part that is read from the standard input; returns the exit code of the run."""
    os.write(sys.stdout.fileno(), f"{HELLO}{__version__}\n".encode())
    # Without a buffer, whose lock would be held by a thread that waits when this process ends.
    commands = io.FileIO(sys.stdin.fileno(), closefd=False)
    line = commands.readline()
    if not line.endswith(b"\n"):
        return 0  # Another host cannot take part.
    part = RemotePart(**json.loads(line))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="callboard-"))
    with removed_afterwards(directory):
        command = _prepared(part, directory)
        folder = part.folder if os.path.isdir(part.folder) else directory
        with subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as run:
            assert run.stdout is not None
            with stop_signals(lambda number: _signal(run, number)):
                output = threading.Thread(target=_pass_on, args=(run.stdout,), name="output")
                output.start()
                _follow(run, commands, part.patience)
                output.join()
    return run.returncode if run.returncode >= 0 else 128 - run.returncode


def _prepared(part: RemotePart, directory: pathlib.Path) -> list[str]:
    """Writes the files of a part, and returns the command that runs it."""
    for name, content in part.files.items():
        path = directory / name
        if directory not in pathlib.Path(os.path.normpath(path)).parents:
            raise ValueError(f"{name!r} leads out of the directory")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("latin-1"))
    cluster, recipe = directory / "cluster.yaml", directory / "recipe.yaml"
    with contextlib.suppress(OSError):
        if pathlib.Path(part.cluster).read_bytes() == cluster.read_bytes():
            cluster = pathlib.Path(part.cluster)  # Advice about the run names it.
    arguments = [*part.arguments, "--cluster", str(cluster)]
    arguments += ["--recipe", str(recipe)] if recipe.exists() else []
    module, search = search_working_directory.__module__, f"search({str(directory / MODULES)!r})"
    return callboard_command("train", *arguments, before=_BEFORE.format(name=module, search=search))


def _pass_on(output: IO[bytes]) -> None:
    """Writes the output of the run while there is a reader: the run must not fail without one."""
    while content := os.read(output.fileno(), 2**16):
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), content)


def _follow(run: "subprocess.Popen[bytes]", commands: io.FileIO, patience: float) -> None:
    """Waits for the end of a run, which it ends once the command has ended."""
    silence, over = Deadline(patience), threading.Event()

    def receive() -> None:
        for line in commands:
            silence.restart()
            if line.strip():
                _signal(run, int(line))
        over.set()

    threading.Thread(target=receive, name="command", daemon=True).start()
    while not _has_ended(run):
        if over.is_set() or silence.has_passed:
            _signal(run, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(END_SECONDS)
            run.kill()
            run.wait()


def _has_ended(run: "subprocess.Popen[bytes]") -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(_WAIT_SECONDS)
    return run.returncode is not None


def _signal(run: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        run.send_signal(number)


def encoded(part: RemotePart) -> bytes:
    """Returns the line that `run_part` reads."""
    return json.dumps(part._asdict()).encode() + b"\n"
