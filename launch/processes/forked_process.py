"""Whether this process has been forked from one that had used TensorFlow, whose threads a fork does not copy."""

import os
import sys

from ...errors import CallboardError

_in_vain = False


def check_tensorflow_works() -> None:
    """Refuses what would wait for ever for threads that only the parent has.

    Raises:
      CallboardError: this process has been forked after TensorFlow was used.
    """
    if _in_vain:
        raise CallboardError(
            "this process was forked from one that had used TensorFlow, which then computes nothing here: start it "
            "with the method 'spawn' of multiprocessing instead (multiprocessing.set_start_method)"
        )


def _note_fork() -> None:
    global _in_vain
    # Imported only, TensorFlow works after a fork; nodes are forked so.
    eager = sys.modules.get("tensorflow.python.eager.context")
    context = getattr(eager, "_context", None)
    _in_vain = _in_vain or bool(context is not None and context._initialized)


os.register_at_fork(after_in_child=_note_fork)
