"""Devices of learners by number and by name, and the strategies over them."""

import pytest
import tensorflow as tf

from callboard.errors import CallboardError
from callboard.launch.processes import devices
from callboard.launch.processes.devices import (
    describe_devices,
    device_count,
    device_names,
    gpu_indices,
    make_strategy,
    prepare_devices,
)
from callboard.launch.processes.gpu_driver import Driver, Gpu


@pytest.mark.parametrize(
    "setting, names",
    [(1, ["CPU:0"]), ("1", ["CPU:0"]), ("all", ["CPU:0"]), ("cpu:0, CPU:2", ["CPU:0", "CPU:2"])],
)
def test_devices_by_number_and_by_name(setting, names):
    assert device_names(setting, gpus=0) == names


@pytest.mark.parametrize(
    "setting, indices, names",
    [
        (1, [0], ["GPU:0"]),
        (2, [0, 1], ["GPU:0", "GPU:1"]),
        ("all", [0, 1, 2], ["GPU:0", "GPU:1", "GPU:2"]),
        ("gpu:2, GPU:1", [2, 1], ["GPU:0", "GPU:1"]),
        ("GPU:1/2", [1], ["GPU:0", "GPU:1"]),
        ("CPU:0", [], ["CPU:0"]),
    ],
)
def test_a_learner_names_its_gpus_from_0_on(setting, indices, names):
    assert gpu_indices(setting, gpus=3) == indices
    assert device_names(setting, gpus=3) == names


@pytest.mark.parametrize(
    "setting, message",
    [
        (2, r"learner_devices is 2, and this machine has 0 GPU\(s\): .*such as CPU:0,CPU:1"),
        (0, "learner_devices is 0"),
        ("GPU:0", r"learner_devices names GPU:0, and this machine has 0 GPU\(s\)"),
        ("TPU:0", "must be a number, all, or names such as CPU:0,CPU:1; 'TPU:0' is none of them"),
        ("CPU:0,CPU:0", "must name different devices of one kind"),
    ],
)
def test_devices_that_are_not_there_are_refused(setting, message):
    with pytest.raises(CallboardError, match=message) as raised:
        device_names(setting, gpus=0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "setting, count",
    [(1, 1), ("1", 1), (3, 3), ("all", 1), ("CPU:0", 1), ("cpu:0, CPU:2", 2), ("GPU:0,GPU:7", 2), ("GPU:0/2", 2)],
)
def test_devices_are_counted_also_where_this_machine_has_fewer(setting, count):
    assert device_count(setting) == count


@pytest.mark.parametrize(
    "setting, message",
    [
        (0, "learner_devices must be at least 1, not 0"),
        (-1, "must be a number, all, or names such as CPU:0,CPU:1; -1 is none of them"),
        ("", "must be a number, all, or names"),
        ("GPU:0/2,GPU:1", "must name one GPU that is divided, such as GPU:0/2, not GPU:0/2,GPU:1"),
        ("GPU:0/1", "must be a number, all, or names"),
        ("CPU:0,GPU:0", "must name different devices of one kind, not CPU:0,GPU:0"),
    ],
)
def test_settings_that_name_no_devices_are_refused(setting, message):
    with pytest.raises(CallboardError, match=message) as raised:
        device_count(setting)
    assert "\n" not in str(raised.value)


def test_one_device_needs_no_strategy():
    assert make_strategy(["CPU:0"]) is tf.distribute.get_strategy()


def test_devices_that_come_too_late_are_refused():
    tf.constant(0)
    # Those that this process already has can still be used.
    prepare_devices(["CPU:0"])
    with pytest.raises(CallboardError, match="before it had the learner device CPU:7: start the run in") as raised:
        prepare_devices(["CPU:0", "CPU:7"])
    assert "\n" not in str(raised.value)


def test_a_gpu_that_tensorflow_does_not_see_is_reported(monkeypatch):
    assert describe_devices(["CPU:0"]) == ""
    assert describe_devices(["CPU:0", "CPU:1"]) == "computes on CPU:0, CPU:1"
    monkeypatch.setattr(devices, "find_gpus", lambda: Driver((12, 4), [Gpu("Stub GPU", (8, 0), 1 << 30)]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    text = describe_devices()
    assert text.startswith("computes on the CPU, because TensorFlow sees none of 1 GPU(s): ") and "doctor" in text
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert describe_devices() == "computes on CPU:0"


def strategies():
    """Kinds and replicas of the strategies over one device and over two, where there are two."""
    made = [make_strategy(names) for names in (["CPU:0", "CPU:1"], ["CPU:1"])]
    return [[type(strategy).__name__, strategy.num_replicas_in_sync] for strategy in made]


@pytest.mark.slow
def test_several_devices_mirror_each_other(on_two_devices):
    assert on_two_devices(__file__, "strategies") == [["MirroredStrategy", 2], ["OneDeviceStrategy", 1]]
