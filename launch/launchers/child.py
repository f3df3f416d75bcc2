"""The life of a node in a process of its own."""

import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from ...data import CallboardError
from ..role import NodeContext, RoleNode
from .supervisor import Exit


class ChildSettings(NamedTuple):
    """What a child is started with."""

    node: RoleNode
    identity: str
    port: int
    log: str
    """Path of its log file."""
    temporary: str
    """Directory for temporary files, which the launcher removes: a process that is killed cannot."""
    uses_gpu: bool
    tensorflow_threads: int
    environment: Mapping[str, str] = {}
    """Variables that differ from those of the launcher's start."""


def run_child(pickled: bytes, pipe: Connection) -> None:
    """Runs a node; what it has to say goes through `pipe`, what it prints into its log.

    Ends the process in every case: a thread that is blocked in C++ would keep it alive for ever.
    """
    # Ctrl-C reaches every process of the terminal; the launcher alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 1
    try:
        settings: ChildSettings = cloudpickle.loads(pickled)
        os.environ.update(settings.environment)
        _redirect_output(settings.log)
        _keep_temporary_files(settings.temporary)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
        logging.getLogger("tensorflow").setLevel(logging.WARNING)
        logging.info("%s begins, process %d", settings.node.name, os.getpid())
        _limit_tensorflow(settings)
        _run_node(settings, pipe)
        code = 0
    except CallboardError as error:
        _tell(pipe, "exit", Exit(clean=False, description=str(error), error=str(error), final=True))
    except BaseException as error:
        traceback.print_exc()
        _tell(
            pipe,
            "exit",
            Exit(clean=False, description=f"{type(error).__name__}: {error}", error=traceback.format_exc()),
        )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_node(settings: ChildSettings, pipe: Connection) -> None:
    stop = threading.Event()
    context = NodeContext(
        name=settings.node.name,
        identity=settings.identity,
        stop=stop,
        tell=_Teller(pipe),
        port=settings.port,
    )
    threading.Thread(target=_listen, args=(pipe, stop), name="launcher", daemon=True).start()
    settings.node.run_role(context)


def _listen(pipe: Connection, stop: threading.Event) -> None:
    """Waits for the launcher's word; without a launcher no node lives on."""
    try:
        while True:
            if pipe.recv() == "stop":
                stop.set()
    except (EOFError, OSError):
        os._exit(1)


class _Teller:
    """Sends messages to the launcher, from any thread."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        self._lock = threading.Lock()

    def __call__(self, kind: str, content: Any) -> None:
        with self._lock:
            _tell(self._pipe, kind, content)


def _tell(pipe: Connection, kind: str, content: Any) -> None:
    try:
        pipe.send((kind, content))
    except OSError:
        pass  # The launcher is gone, and this process will be in a moment.


def _redirect_output(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _keep_temporary_files(directory: str) -> None:
    os.makedirs(directory, exist_ok=True)
    os.environ["TMPDIR"] = directory
    tempfile.tempdir = directory


def _limit_tensorflow(settings: ChildSettings) -> None:
    if not settings.uses_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if settings.tensorflow_threads:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(settings.tensorflow_threads)
        tf.config.threading.set_inter_op_parallelism_threads(settings.tensorflow_threads)
