"""The command `callboard`: calls the module of the subcommand that the first argument names."""

import argparse
import atexit
import contextlib
import errno
import faulthandler
import importlib
import io
import os
import select
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence

from .. import __version__
from ..errors import CallboardError, ProcessEnded, limits_text, long_paths_refused, message_of, printable, unknown
from ..launch.launchers.node_processes.forkserver import stop_forkserver
from ..launch.processes.stop_signals import Stopped, exit_code_of_signal, raise_at_signals
from ..messages.caller_words import words_of_command
from ..runtime.descendants import end_descendants
from ..settings.own_modules import search_working_directory

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a file system, or of a file's largest size, of which a traceback says no more."""
_LIBRARY = (__package__ or "").partition(".")[0]
_SUBCOMMANDS: Mapping[str, Sequence[tuple[str, str]]] = {
    "train": [
        ("AGENT --env NAME [options]", "train an agent"),
        ("--recipe NAME [options]", "the same from a recipe, see `callboard list recipes`"),
    ],
    "study": [("FILE|NAME", "run a matrix of agents, environments, settings and seeds, with a report")],
    "tune": [("AGENT --search KEY=RANGE ...", "search settings with many runs at a time, on Ray Tune")],
    "compare": [("RUN... [--plot FILE]", "compare runs: curves, final scores, steps to a goal")],
    "evaluate": [("RUN [--episodes N]", "play with the policy of a run")],
    "top": [("RUN", "show the nodes of a run that is running: processor, memory, waiting, stacks")],
    "dataset": [
        ("info PATH [--plot FILE]", "show returns, lengths and actions of recorded episodes"),
        ("video PATH --episode N", "show a recorded episode as a video"),
    ],
    "serve": [("RUN[@best|latest|STEP]", "serve the policy of a run over HTTP")],
    "export": [("RUN DIR", "write the policy of a run as a SavedModel or an ONNX model")],
    "zoo": [
        ("list", "list trained policies that installed wheels and zoos of your own offer"),
        ("get NAME DIR", "copy one of them as a run directory; evaluate NAME compares it with its score"),
        ("push RUN ZOO", "add the best policy of a run to a zoo, a folder or a URL"),
    ],
    "cluster": [
        ("check FILE --host NAME", "show which hosts of a cluster file reach each other"),
        ("run FILE AGENT --env NAME ...", "train on all hosts of a cluster file, with your own modules"),
        ("sbatch AGENT --env NAME ...", "write a script that trains on the machines of a Slurm job"),
    ],
    "check": [("ENV [options]", "look closely at an environment: values, episodes, seeds, speed")],
    "graph": [("AGENT --env NAME [options]", "show the program graph of a run without starting it")],
    "ls": [("[DIR]", "list the runs in a folder: state, steps, score, age")],
    "list": [
        ("agents|environments|...", "list the names of agents, environments, launchers or recipes"),
        ("recipes NAME", "print a built-in recipe"),
    ],
    "doctor": [("", "check this machine and installation")],
}
"""Usages and their descriptions by the name of the subcommand, which is that of its module in this package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code, which is 2 if the user has to fix something first."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    search_working_directory()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"callboard {__version__}")
        return 0
    try:
        name = arguments[0]
        if name not in _SUBCOMMANDS:
            raise unknown("command", name, _SUBCOMMANDS)
        with words_of_command(), long_paths_refused():
            return importlib.import_module(f".{name}", __package__).main(arguments[1:])
    except CallboardError as error:
        if error.details:
            print("\n".join(map(printable, error.details.splitlines())), file=sys.stderr)
        print(f"callboard: {printable(str(error))}", file=sys.stderr)
        return 2
    except ProcessEnded as error:
        print(f"callboard: {printable(str(error))}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        return 130
    except SystemExit as leave:
        place = _place_of(leave)
        if not place:
            raise
        line = f"{place} calls sys.exit({message_of(leave)}); let it raise an exception instead"
        print(f"callboard: {printable(line)}", file=sys.stderr)
        return 2
    finally:
        stop_forkserver()


def _place_of(leave: SystemExit) -> str:
    """Returns where a user's own code has called `sys.exit`; empty if the command itself ends, as for `--help`."""
    # The first frame is this module's, and the last one that of the call.
    *_, (frame, line) = traceback.walk_tb(leave.__traceback__)
    module = frame.f_globals.get("__name__", "")
    if module == argparse.__name__ or module.startswith(f"{_LIBRARY}."):
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)}, line {line}, in {frame.f_code.co_name},"


def _usage() -> str:
    usages = [
        (f"{name} {usage}", description) for name, variants in _SUBCOMMANDS.items() for usage, description in variants
    ]
    width = max(len(usage) for usage, _ in usages)
    lines = [f"  {usage.ljust(width)}  {description}" for usage, description in usages]
    hint = "`callboard COMMAND --help` shows its options, `callboard --version` the version."
    return "\n".join(["usage: callboard COMMAND ...", "", "commands:", *lines, "", hint])


def run_command() -> None:
    """The entry point of the command: ends the process with `main`'s exit code.

    Exit functions are called first.  The process then ends at once, because the interpreter's normal exit aborts if a
    thread is still blocked in Reverb or gRPC.
    """
    _open_standard_streams()
    # Otherwise a crash in native code would end the process without a word.
    faulthandler.enable(2)
    # Of packages that import distutils before setuptools; nothing that a user can change.
    warnings.filterwarnings("ignore", "Setuptools is replacing distutils")
    raise_at_signals()
    try:
        code = main()
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
    except Stopped as stopped:  # Another signal arrived during the clean-up.
        code = stopped.exit_code
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException as error:
        # Code that is being imported may have made another exception of `Stopped`.
        signalled = exit_code_of_signal()
        if signalled is None and not (isinstance(error, BrokenPipeError) and _output_is_closed()):
            with contextlib.suppress(OSError):
                if isinstance(error, OSError) and error.errno in _FULL:
                    print(f"callboard: no more can be written: {printable(str(error))}", file=sys.stderr)
                else:
                    traceback.print_exc()
                if limits := limits_text(error):
                    print(limits, file=sys.stderr)
        code = signalled or 1
    # Processes that environments have left running; `multiprocessing` would wait for them.
    end_descendants(os.getpid())
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _open_standard_streams() -> None:
    """Opens the streams that the process has been started without, for its children too.

    A new file gets the lowest descriptor that is free, which is that of the stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    # Letters that the terminal does not have are shown as `?`.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _output_is_closed() -> bool:
    """Returns whether what reads the output has ended, such as `head`, which had enough."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


if __name__ == "__main__":
    run_command()
