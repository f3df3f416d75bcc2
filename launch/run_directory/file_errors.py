"""Why a file could not be written, in words for the screen."""

import errno
import os
import re

import tensorflow as tf

_FULL = os.strerror(errno.ENOSPC)
# Where in TensorFlow's own graph it failed.
_INTERNAL = re.compile(r"\{\{.*?\}\}|\[Op:\w+\]")


def file_error(error: Exception) -> str:
    """Why a file could not be written, in one line.

    Args:
      error: an `OSError`, or one of TensorFlow or Reverb.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    if _FULL in text:
        return _FULL  # TensorFlow and Reverb name drafts beside it, which say nothing to a user.
    return " ".join(_INTERNAL.sub("", text).split()) or type(error).__name__
