"""Errors of writing files become one short line."""

import errno

import pytest
import tensorflow as tf

from callboard.launch.run_directory.file_errors import file_error

FULL = "No space left on device"


@pytest.mark.parametrize(
    "error, expected",
    [
        (OSError(errno.EACCES, "Permission denied", "/runs/x/draft-1"), "Permission denied"),
        (OSError("the connection was closed"), "the connection was closed"),
        (tf.errors.ResourceExhaustedError(None, None, f"draft-77/learner.index; {FULL} [Op:SaveV2]"), FULL),
        (RuntimeError(f"Failed to write chunks.tfrecord: {FULL}"), FULL),
        (
            tf.errors.NotFoundError(None, None, "{{function_node __wrapped__SaveV2}} no directory\n here [Op:SaveV2]"),
            "no directory here",
        ),
        (ValueError(), "ValueError"),
    ],
)
def test_an_error_is_one_line_without_the_parts_of_a_library(error, expected):
    assert file_error(error) == expected
