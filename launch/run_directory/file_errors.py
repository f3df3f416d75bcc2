"""Short messages for errors of writing files."""

import errno
import os
import re

import tensorflow as tf

_FULL = os.strerror(errno.ENOSPC)
# The location in TensorFlow's graph where the operation failed.
_INTERNAL = re.compile(r"\{\{.*?\}\}|\[Op:\w+\]")


def file_error(error: Exception) -> str:
    """Describes in one line why a file could not be written.

    Args:
      error: an `OSError`, or an error of TensorFlow or Reverb.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    if _FULL in text:
        return _FULL  # TensorFlow and Reverb add the names of drafts, which mean nothing to a user.
    return " ".join(_INTERNAL.sub("", text).split()) or type(error).__name__
