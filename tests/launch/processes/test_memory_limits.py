"""The limits of memory, read from directories that stand in for those of the kernel."""

import contextlib
import resource

import pytest

from callboard.errors import CallboardError
from callboard.launch.processes.memory_limits import MemoryLimits, MemoryUse, check_addresses

MIB, GIB = 2**20, 2**30
V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V2 = "42 31 0:38 {root} /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"


def machine(root, files):
    files = {"proc/meminfo": f"MemTotal: {16 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {12 * 2**20} kB\n", **files}
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(content))
    return MemoryLimits(root).tightest()


def v2(directory, **files):
    return {f"sys/fs/cgroup/{directory}memory.{name}": value for name, value in files.items()}


def test_a_machine_without_groups_has_its_own_memory(tmp_path):
    assert machine(tmp_path, {}) == MemoryUse("the machine's memory", 4 * GIB, 16 * GIB)


def test_nothing_to_read_is_no_limit(tmp_path):
    assert MemoryLimits(tmp_path).tightest() is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"max": "max", "current": 15 * GIB}, "the machine's memory"),
        ({"max": 2 * GIB, "current": GIB}, "memory.max of the control group /job/run"),
        ({"max": 8 * GIB, "high": 2 * GIB, "current": GIB}, "memory.high of the control group /job/run"),
        ({"max": 64 * GIB, "current": GIB}, "the machine's memory"),
        ({"max": "damaged"}, "the machine's memory"),
    ],
)
def test_groups_of_version_2(tmp_path, files, expected):
    mounted = {"proc/self/cgroup": "0::/job/run\n", "proc/self/mountinfo": V2.format(root="/")}
    assert machine(tmp_path, mounted | v2("job/run/", **files)).name == expected


def test_the_group_around_may_be_tighter(tmp_path):
    mounted = {"proc/self/cgroup": "0::/job/run\n", "proc/self/mountinfo": V2.format(root="/")}
    inner, outer = v2("job/run/", max=8 * GIB, current=GIB), v2("job/", max=4 * GIB, current=3.9 * GIB // 1)
    outer["sys/fs/cgroup/job/memory.current"] = int(3.9 * GIB)
    assert machine(tmp_path, mounted | inner | outer).name == "memory.max of the control group /job"


def test_files_that_are_kept_for_later_do_not_count(tmp_path):
    mounted = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2.format(root="/")}
    stat = f"anon {GIB}\ninactive_file {GIB}\nactive_file 0\n"
    use = machine(tmp_path, mounted | v2("", max=2 * GIB, current=2 * GIB, stat=stat))
    assert use == MemoryUse("memory.max of the control group /", GIB, 2 * GIB)


@pytest.mark.parametrize(
    ("root", "directory"),
    [
        ("/", "docker/ab/"),
        ("/docker/ab", ""),  # In a container, its own group is the root of the mount.
        ("/elsewhere", ""),  # Or the path is one that is not visible from here.
        ("/../..", ""),
    ],
)
def test_groups_of_version_1(tmp_path, root, directory):
    at = f"sys/fs/cgroup/memory/{directory}memory"
    files = {
        "proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/ab\n1:cpu,cpuacct:/\n0::/\n",
        "proc/self/mountinfo": V1.format(root=root),
        f"{at}.limit_in_bytes": GIB,
        f"{at}.usage_in_bytes": 900 * MIB,
        f"{at}.stat": f"inactive_file 5\ntotal_inactive_file {100 * MIB}\n",
    }
    use = machine(tmp_path, files)
    assert (use.used, use.limit) == (800 * MIB, GIB) and use.room < 0


def test_no_limit_of_version_1_is_a_number_beyond_the_machine(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/\n",
        "proc/self/mountinfo": V1.format(root="/"),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 14 * GIB,
    }
    assert machine(tmp_path, files).name == "the machine's memory"


@pytest.mark.parametrize(
    ("limit", "left", "near"),
    [
        (512 * MIB, 150 * MIB, False),
        (512 * MIB, 120 * MIB, True),
        (2 * GIB, 250 * MIB, True),
        (2 * GIB, 260 * MIB, False),
        (16 * GIB, 1.7 * GIB, False),
        (16 * GIB, 1.5 * GIB, True),
        (1000 * GIB, 5 * GIB, False),
        (1000 * GIB, 4 * GIB, True),
    ],
)
def test_what_is_near(limit, left, near):
    assert (MemoryUse("x", limit - int(left), limit).room <= 0) == near


@pytest.mark.parametrize(
    "limit, refused", [(resource.RLIM_INFINITY, False), (11 * 2**28, False), (11 * 2**28 - 1, True)]
)
def test_a_limit_of_addresses_with_which_no_run_works_is_refused(monkeypatch, limit, refused):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, resource.RLIM_INFINITY))
    with pytest.raises(CallboardError, match="2.75 GiB of addresses") if refused else contextlib.nullcontext():
        check_addresses()
