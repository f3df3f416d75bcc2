"""Why a file could not be written, in words for the screen."""

import re

import tensorflow as tf

# Where in TensorFlow's own graph it failed.
_INTERNAL = re.compile(r"\{\{.*?\}\}|\[Op:\w+\]")


def file_error(error: Exception) -> str:
    """Why a file could not be written, in one line.

    Args:
      error: an `OSError`, or one of TensorFlow, which says more.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    return " ".join(_INTERNAL.sub("", text).split()) or type(error).__name__
