"""A run that comes near the limit of a control group, which the kernel would enforce by killing its nodes."""

import os
import pathlib
import re

import pytest
from started_commands import CommandRun

GROUPS = pathlib.Path("/sys/fs/cgroup/memory")
LIMIT = 1300 * 2**20


@pytest.fixture
def group():
    """A group of version 1 with a limit."""
    directory = GROUPS / f"callboard-test-{os.getpid()}"
    try:
        directory.mkdir()
        (directory / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    yield directory
    directory.rmdir()


@pytest.mark.slow
def test_an_environment_that_leaks_is_named_before_the_limit_is_reached(group, tmp_path):
    join = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    arguments = "train impala --env leaking:Leaking --actors 2 --envs-per-actor 4 --max-steps 10000000 --no-evaluator"
    command = CommandRun([*arguments.split(), "--run-dir", tmp_path / "run"], tmp_path, ("bash", "-c", join, "bash"))
    command.wait_until(lambda: "memory runs out" in command.text(), 500.0)
    command.interrupt()
    command.wait()
    (line,) = re.findall(r".*memory runs out on .*", command.text())
    assert re.search(
        r"of 1\.3 GiB are in use \(memory\.limit_in_bytes of the control group /callboard-test-\d+\)", line
    )
    assert re.search(r"actor/[01] has .* MiB \(.* more than .* ago\)", line)
    assert line.endswith("lower actors or envs_per_actor")
    assert "SIGKILL" not in command.text()
