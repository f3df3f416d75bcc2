"""Devices of learners by number and by name, and the strategies over them."""

import pytest
import tensorflow as tf

from callboard.errors import CallboardError
from callboard.launch.experiments import experiment_checks
from callboard.launch.experiments.experiment_checks import check_devices
from callboard.launch.experiments.parts.placement_part import PlacementPart
from callboard.launch.processes import devices
from callboard.launch.processes.devices import (
    GpuUse,
    describe_devices,
    make_strategy,
    parse_devices,
    prepare_devices,
    take_devices,
)
from callboard.launch.processes.gpu_driver import Driver, Gpu
from callboard.settings.setting_types import check_ranges


@pytest.fixture
def taken(monkeypatch):
    """Takes devices in a process that has so many GPUs: returns the indices of those that it sees, and the names."""
    seen = []
    monkeypatch.setattr(devices, "load_libraries", lambda: None)
    monkeypatch.setattr(devices, "prepare_devices", lambda names, use: None)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda gpus, kind: seen.append(gpus))

    def take(setting, gpus):
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(range(gpus)))
        names = take_devices(setting)
        return seen[-1], names

    return take


@pytest.mark.parametrize(
    "setting, names",
    [
        (1, ["CPU:0"]),
        ("1", ["CPU:0"]),
        ("all", ["CPU:0"]),
        ("cpu:0, CPU:2", ["CPU:0", "CPU:2"]),
        (" CPU:0,CPU:01 ", ["CPU:0", "CPU:1"]),
    ],
)
def test_devices_by_number_and_by_name(setting, names, taken):
    assert taken(setting, gpus=0) == ([], names)


@pytest.mark.parametrize(
    "setting, indices, names",
    [
        (1, [0], ["GPU:0"]),
        (2, [0, 1], ["GPU:0", "GPU:1"]),
        (" All ", [0, 1, 2], ["GPU:0", "GPU:1", "GPU:2"]),
        ("gpu:2, GPU:1", [2, 1], ["GPU:0", "GPU:1"]),
        (" GPU:1/2", [1], ["GPU:0", "GPU:1"]),
        ("CPU:0", [], ["CPU:0"]),
    ],
)
def test_a_learner_names_its_gpus_from_0_on(setting, indices, names, taken):
    assert parse_devices(setting).gpu_indices(gpus=3) == indices
    assert taken(setting, gpus=3) == (indices, names)


@pytest.mark.parametrize("setting", ["GPU:1", " GPU:1"])
def test_a_learner_takes_the_gpus_that_its_launcher_has_left_visible(setting, taken):
    assert taken(setting, gpus=1) == ([0], ["GPU:0"])


@pytest.mark.parametrize(
    "setting, message",
    [
        (2, r"learner_devices is 2, and this machine has 0 GPU\(s\): .*such as CPU:0,CPU:1"),
        ("GPU:0", r"learner_devices names GPU:0, and this machine has 0 GPU\(s\): .*such as CPU:0,CPU:1"),
    ],
)
def test_devices_that_are_not_there_are_refused(setting, message, taken):
    with pytest.raises(CallboardError, match=message) as raised:
        taken(setting, gpus=0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "setting, count",
    [
        (1, 1),
        ("1", 1),
        (3, 3),
        ("all", 1),
        ("CPU:0", 1),
        (" cpu:0, CPU:2", 2),
        ("GPU:0,GPU:7", 2),
        ("GPU:0/2 ", 2),
    ],
)
def test_devices_are_counted_also_where_this_machine_has_fewer(setting, count):
    assert parse_devices(setting).device_count() == count


NONE_OF_THESE = "must be a number of up to 3 digits, all, or names such as CPU:0,CPU:1 or GPU:0/2, not "


@pytest.mark.parametrize(
    "setting, message",
    [
        (0, "learner_devices must be at least 1, not 0"),
        (-1, NONE_OF_THESE + "-1"),
        ("", NONE_OF_THESE),
        ("TPU:0", NONE_OF_THESE + "'TPU:0'"),
        ("GPU:0/1", NONE_OF_THESE),
        ("CPU:99999999999999999999", NONE_OF_THESE),
        ("9" * 5000, NONE_OF_THESE),
        ("GPU:0/2,GPU:1", "must name one GPU that is divided, such as GPU:0/2, not GPU:0/2,GPU:1"),
        ("CPU:0/2", "must name one GPU that is divided, such as GPU:0/2, not CPU:0/2"),
        ("CPU:0,GPU:0", "must name different devices of one kind, not CPU:0,GPU:0"),
        ("CPU:0,CPU:0", "must name different devices of one kind"),
        ("CPU:0,CPU:00", "must name different devices of one kind"),
        ("GPU:0, gpu:00", "must name different devices of one kind"),
    ],
)
def test_settings_that_name_no_devices_are_refused(setting, message):
    with pytest.raises(CallboardError, match=message) as raised:
        parse_devices(setting)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("setting", ["GPU:1", " gpu:1", "GPU:0/2 "])
def test_several_learners_of_a_machine_cannot_all_have_the_gpus_that_are_named(setting, monkeypatch):
    gpus = [Gpu("Stub GPU", (8, 0), 10**9)] * 2
    monkeypatch.setattr(experiment_checks, "find_gpus", lambda: Driver((12, 4), gpus))
    with pytest.raises(CallboardError, match="2 learners on one machine cannot all have"):
        check_devices(PlacementPart(learners=2, learner_devices=setting), learners_here=2)


@pytest.mark.parametrize("setting", ["CPU:0,CPU:1", " CPU:0,CPU:1"])
def test_each_of_several_learners_has_one_device_of_the_processor(setting):
    with pytest.raises(CallboardError, match="each of 2 learners has one device of the processor, not 2"):
        check_devices(PlacementPart(learners=2, learner_devices=setting), learners_here=0)


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


@pytest.fixture
def told(monkeypatch):
    """What TensorFlow is told of each of two GPUs, where it would have them."""
    told = {}
    limits = {}
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", limits.get)
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", limits.__setitem__)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", told.__setitem__)
    monkeypatch.setattr(devices, "find_gpus", lambda: Driver((12, 4), [Gpu("Stub GPU", (8, 0), 10**10)] * 2))
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    yield lambda: {**told, **{gpu: [part.memory_limit for part in parts] for gpu, parts in limits.items()}}
    tf.config.experimental.enable_tensor_float_32_execution(before)


MIB_OF_8_GB = 8 * 10**9 >> 20


@pytest.mark.parametrize(
    "names, use, expected",
    [
        (1, GpuUse(), True),
        (1, GpuUse(memory=8), [MIB_OF_8_GB]),
        (2, GpuUse(memory=8), [MIB_OF_8_GB]),
        (4, GpuUse(memory=8), [MIB_OF_8_GB // 2] * 2),
        (4, GpuUse(), [85 * 10**8 // 2 >> 20] * 2),
    ],
)
def test_memory_of_a_gpu_grows_or_has_its_limit(told, names, use, expected):
    named = [f"GPU:{index}" for index in range(names)]
    prepare_devices(named, use)
    # The strategy that follows leaves it as it is.
    prepare_devices(named)
    assert told() == {"first": expected, "second": expected}


@pytest.mark.parametrize("tf32", [False, True])
def test_products_are_in_tf32_only_if_that_is_set(told, tf32):
    prepare_devices(["GPU:0"], GpuUse(tf32=tf32))
    prepare_devices(["GPU:0"])
    assert tf.config.experimental.tensor_float_32_execution_enabled() == tf32


def test_more_memory_than_a_gpu_has_is_refused(monkeypatch):
    monkeypatch.setattr(experiment_checks, "find_gpus", lambda: Driver((12, 4), [Gpu("Stub GPU", (8, 0), 4 * 10**9)]))
    check_devices(PlacementPart(gpu_memory=4.0), learners_here=1)
    with pytest.raises(CallboardError, match="gpu_memory is 5 GB, and a GPU of this machine has 4.0: lower it"):
        check_devices(PlacementPart(gpu_memory=5.0), learners_here=1)


def test_each_part_of_a_gpu_has_memory(told):
    prepare_devices([f"GPU:{index}" for index in range(16)], GpuUse(memory=0.1))
    assert all(limit > 0 for limits in told().values() for limit in limits)
    with pytest.raises(CallboardError, match="gpu_memory must be a number from 0.1"):
        check_ranges(PlacementPart(gpu_memory=0.001))


def strategies():
    """Kinds and replicas of the strategies over one device and over two, where there are two."""
    made = [make_strategy(names) for names in (["CPU:0", "CPU:1"], ["CPU:1"])]
    return [[type(strategy).__name__, strategy.num_replicas_in_sync] for strategy in made]


@pytest.mark.slow
def test_several_devices_mirror_each_other(on_two_devices):
    assert on_two_devices(__file__, "strategies") == [["MirroredStrategy", 2], ["OneDeviceStrategy", 1]]
