"""Writers of single environments, side by side: items of some of them, of the newest timesteps, with priorities."""

import numpy as np
import pytest
import reverb

from callboard.errors import CallboardError
from callboard.replay.writing.batch_writers import CHUNK_LENGTH, PerEnvironmentWriters

ENVS, LENGTH, SIZE = 3, 2, 5


def rows(timestep):
    """Rows of bytes, full of 10 times the timestep plus the environment."""
    return [np.full(SIZE, 10 * timestep + env, np.uint8) for env in range(ENVS)]


def contents(replay, count, table="items"):
    """The first bytes of the items' columns, by priority."""
    samples = replay.client().sample(table, count, emit_timesteps=False)
    return {sample.info.priority: [np.asarray(column)[..., 0].tolist() for column in sample.data] for sample in samples}


@pytest.fixture
def replay(serve):
    return serve([reverb.Table.queue("items", 100)])


@pytest.mark.parametrize("stack", [1, 3])
def test_an_item_holds_the_newest_timesteps_of_its_environment(replay, stack):
    writers = PerEnvironmentWriters(replay, 0, ENVS, LENGTH + stack, keeps_state=False)
    newest = 2 * CHUNK_LENGTH
    for timestep in range(newest + 1):
        writers.append(rows(timestep))
    writers.create_items("items", [2, 0], [0.5, 2.0], LENGTH, stack)
    assert writers.ready(10.0, max_pending=0)
    timesteps = range(newest - LENGTH - stack + 1, newest + 1)
    assert contents(replay, 2) == {
        0.5: [[10 * timestep + 2 for timestep in timesteps]],
        2.0: [[10 * timestep for timestep in timesteps]],
    }
    writers.close()


def test_an_item_holds_the_state_at_the_first_timestep_after_its_stack(replay):
    stack = 2
    writers = PerEnvironmentWriters(replay, 0, ENVS, LENGTH + stack, keeps_state=True)
    for timestep in range(6):
        # Timestep 3 is that of the state: the newest is 5, and an item has two transitions.
        states = np.array([[100 + 10 * timestep + env] for env in range(ENVS)], np.uint8)
        writers.append(rows(timestep), states if timestep in (0, 3) else None)
    writers.create_items("items", [1], [1.0], LENGTH, stack)
    assert writers.ready(10.0, max_pending=0)
    assert contents(replay, 1) == {1.0: [[21, 31, 41, 51], 131]}
    writers.close()


@pytest.mark.parametrize("priority", [float("nan"), float("inf"), -1.0])
def test_a_priority_that_is_no_number_is_refused(replay, priority):
    writers = PerEnvironmentWriters(replay, 0, ENVS, LENGTH + 1, keeps_state=False)
    for timestep in range(LENGTH + 1):
        writers.append(rows(timestep))
    with pytest.raises(CallboardError, match=f"the first priority of an item is {priority}") as caught:
        writers.create_items("items", [0, 1], [1.0, priority], LENGTH, 1)
    assert "\n" not in str(caught.value)
    # Nor were the others written.
    assert writers.ready(10.0, max_pending=0)
    assert replay.client().server_info()["items"].current_size == 0
    writers.close()


def test_a_priority_of_zero_is_allowed(replay):
    writers = PerEnvironmentWriters(replay, 0, ENVS, LENGTH + 1, keeps_state=False)
    for timestep in range(LENGTH + 1):
        writers.append(rows(timestep))
    writers.create_items("items", [1], [0.0], LENGTH, 1)
    assert writers.ready(10.0, max_pending=0) and list(contents(replay, 1)) == [0.0]
    writers.close()


def test_a_full_table_holds_the_writers_back(serve):
    replay = serve([reverb.Table.queue("items", 1)])
    writers = PerEnvironmentWriters(replay, 0, ENVS, LENGTH + 1, keeps_state=False)
    for timestep in range(LENGTH + 1):
        writers.append(rows(timestep))
    for _ in range(2):
        writers.create_items("items", [0], [1.0], LENGTH, 1)
    assert not writers.ready(0.1, max_pending=0)
    assert writers.ready(0.1, max_pending=1)
    contents(replay, 1)
    assert writers.ready(10.0, max_pending=0)
    writers.close()
