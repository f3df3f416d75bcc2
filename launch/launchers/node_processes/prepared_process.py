"""Preparation shared by all processes that run a node, under every launcher."""

import contextlib
import faulthandler
import logging
import os
import re
import sys
import tempfile
import traceback

from ....callbacks import CallbackFailed
from ....errors import CallboardError, ProcessEnded, one_line, printable_lines, traceback_text
from ...nodes.node import NodeRules
from ...nodes.proxy_bypass import bypass_proxies
from ...processes.cuda_libraries import load_libraries
from ..supervision.supervisor import Exit
from .log_files import LOG_FORMAT, LOG_TIME_FORMAT, redirect_output
from .malloc_arenas import use_one_arena


def prepare_process(name: str, rules: NodeRules, log: str | None, temporary: str) -> None:
    """Prepares this process for a node; must be called before TensorFlow touches a device.

    Args:
      name: name of the node.
      rules: how the node is treated.
      log: path of the file that receives all output of the process; None leaves the output where it is.
      temporary: directory for temporary files.  The launcher removes it, because a process that is killed cannot.
    """
    if log is not None:
        redirect_output(log)
    faulthandler.enable(2)
    with contextlib.suppress(FileExistsError):
        os.mkdir(temporary, 0o700)
    os.environ["TMPDIR"] = temporary
    tempfile.tempdir = temporary
    level = getattr(logging, rules.log_level.upper())
    logging.basicConfig(level=level, format=LOG_FORMAT, datefmt=LOG_TIME_FORMAT, force=True)
    logging.getLogger("tensorflow").setLevel(max(level, logging.WARNING))
    logging.info("%s begins, process %d", name, os.getpid())
    bypass_proxies()
    prepare_libraries(rules)


def prepare_libraries(rules: NodeRules) -> None:
    """Sets how the allocator and TensorFlow use this process; must be called before TensorFlow touches a device."""
    if rules.single_arena:
        use_one_arena()
    prepare_tensorflow(rules)


def prepare_tensorflow(rules: NodeRules) -> None:
    """Sets which resources TensorFlow may use in this process; must be called before it touches a device."""
    gpus = rules.gpus if rules.uses_gpu else ""
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus or "-1"
    if rules.uses_gpu:
        load_libraries()
    if rules.tensorflow_threads:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(rules.tensorflow_threads)
        tf.config.threading.set_inter_op_parallelism_threads(rules.tensorflow_threads)


def exit_by(error: BaseException) -> Exit:
    """Returns how a node ended whose error is being handled, and prints the traceback to the log."""
    if isinstance(error, CallboardError | ProcessEnded):
        final = isinstance(error, CallboardError)
        return Exit(clean=False, description=one_line(error), error=one_line(error), final=final)
    text = traceback_text(error)
    print(printable_lines(text), end="", file=sys.stderr)
    place = "" if is_fault(error) else error_place(error)
    return Exit(False, one_line(error), text, isinstance(error, CallbackFailed), place=place)


_FAULTS = re.compile(
    "Connection|Timeout|TimedOut|Unavailable|Unreachable|StatusNotOk|ResourceExhausted|Aborted|Cancelled|Internal"
    "|DeadlineExceeded|Memory|EOFError|Rpc|Reverb"
)
"""In the names of exceptions of a connection or of resources, in the libraries that nodes and environments use."""
_MISTAKES = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
_GENERATED = "__autograph_generated_file"


def is_fault(error: BaseException) -> bool:
    """Returns whether an error, or what it follows from, is one of a connection or of resources."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        names = " ".join(kind.__name__ for kind in type(following).__mro__)
        if _FAULTS.search(names) or (isinstance(following, OSError) and not isinstance(following, _MISTAKES)):
            return True
        following = following.__cause__ or following.__context__
    return False


def error_place(error: BaseException) -> str:
    """Returns a text that is the same for errors of one kind that were raised at one place."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno}" for frame in frames if _GENERATED not in frame.filename]
    return " ".join([type(error).__qualname__, *places])
