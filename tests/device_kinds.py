"""Tests with the same body on a GPU and, in the slow suite, on the processor."""

import pytest

from callboard.launch.processes.gpu_driver import find_gpus

KINDS = [
    pytest.param("CPU", marks=pytest.mark.slow),
    pytest.param("GPU", marks=[pytest.mark.slow, pytest.mark.gpu]),
]
TWO_DEVICES = {"CPU": "CPU:0,CPU:1", "GPU": "GPU:0/2"}
"""The setting `learner_devices` for two devices of a kind; those of the GPU are parts of one."""


def require(kind):
    """Skips a test where there is no device of its kind."""
    driver = find_gpus()
    if kind == "GPU" and not driver.gpus:
        pytest.skip(f"no GPU: {driver.error or 'this machine has none that processes can use'}")
