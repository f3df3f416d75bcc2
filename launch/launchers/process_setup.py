"""What every process that runs a node does, whoever has started it."""

import logging
import os
import tempfile
import traceback

from ...data import CallboardError
from ..nodes.node import NodePolicy
from ..nodes.proxy_bypass import bypass_proxies
from .log_files import redirect_output
from .supervisor import Exit


def prepare_process(name: str, policy: NodePolicy, log: str, temporary: str) -> None:
    """Makes this process ready for a node; must come before TensorFlow touches a device.

    Args:
      name: of the node.
      policy: how it is treated.
      log: path of the file that takes all that the process prints.
      temporary: directory for temporary files, which the launcher removes: a process that is killed cannot.
    """
    redirect_output(log)
    os.makedirs(temporary, exist_ok=True)
    os.environ["TMPDIR"] = temporary
    tempfile.tempdir = temporary
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S", force=True
    )
    logging.getLogger("tensorflow").setLevel(logging.WARNING)
    logging.info("%s begins, process %d", name, os.getpid())
    bypass_proxies()
    prepare_tensorflow(policy)


def prepare_tensorflow(policy: NodePolicy) -> None:
    """Sets what TensorFlow may use in this process; must come before it touches a device."""
    if not policy.uses_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if policy.tensorflow_threads:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(policy.tensorflow_threads)
        tf.config.threading.set_inter_op_parallelism_threads(policy.tensorflow_threads)


def exit_by(error: BaseException) -> Exit:
    """How a node has ended that raised an error, which is being handled; its traceback goes into the log."""
    if isinstance(error, CallboardError):
        return Exit(clean=False, description=str(error), error=str(error), final=True)
    traceback.print_exc()
    first_line = (str(error).splitlines() or [""])[0]
    return Exit(clean=False, description=f"{type(error).__name__}: {first_line}", error=traceback.format_exc())
