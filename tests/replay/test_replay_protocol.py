"""Every replay kind implements the protocol, and its table, its writer and its dataset agree."""

import inspect

import pytest
import tensorflow as tf
import timestep_streams

from callboard.replay import (
    GradientQueue,
    Pace,
    Replay,
    SequenceQueue,
    SequenceReplay,
    TransitionReplay,
    Writer,
)
from callboard.settings.replay_settings import ReplaySettings

ENVS = 4
LAYOUT = timestep_streams.layout(ENVS)
LIMITS = ReplaySettings(size=100, min_size=1, samples_per_insert=1.0)
KINDS = {
    "queue": SequenceQueue(LAYOUT, length=2, batch_size=2 * ENVS),
    "queue with a limit": SequenceQueue(LAYOUT, length=2, batch_size=2 * ENVS, max_policy_lag=1),
    "sequences": SequenceReplay(LAYOUT, LIMITS, batch_size=8, length=3, period=2),
    "transitions": TransitionReplay(LAYOUT, LIMITS, batch_size=8, n_step=3),
}


def members(protocol):
    return {name: member for name, member in vars(protocol).items() if not name.startswith("_")}


def parameters(method):
    return list(inspect.signature(method).parameters)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_a_kind_has_the_members_of_the_protocol(kind):
    for name, member in members(Replay).items():
        own = inspect.getattr_static(type(kind), name)
        if isinstance(member, property):
            assert isinstance(own, property), name
        else:
            assert parameters(own) == parameters(member), name


@pytest.mark.slow("daily")
def test_what_a_writer_writes_is_in_the_table_of_the_dataset(serve, kind):
    kind.check()
    replay = serve(kind.tables())
    writer = kind.writer(replay, 0)
    assert writer.items_written == 0
    for record in timestep_streams.stream(ENVS, 4):
        writer.append(record, ())
    assert writer.items_written > 0 and writer.ready(10.0, max_pending=0)
    found = kind.dataset(replay, tf.distribute.InputContext())
    assert replay.client().server_info()[found.table].current_size == writer.items_written
    assert found.items_per_batch == (2 if kind.is_queue else 8)
    for name, member in members(Writer).items():
        if not isinstance(member, property):
            assert parameters(getattr(type(writer), name)) == parameters(member), name
    writer.close()


def test_only_queues_are_read_once_and_only_replays_with_priorities_may_weigh_windows():
    prioritized = TransitionReplay(LAYOUT, LIMITS, batch_size=8, n_step=3, priority_exponent=0.6)
    gradients = GradientQueue(LAYOUT, length=2, waiting=3, keeps_observations=False)
    kinds = [*KINDS.values(), gradients, prioritized]
    assert [kind.is_queue for kind in kinds] == [True, True, False, False, True, False]
    assert [kind.may_weigh_windows for kind in kinds] == [False] * 5 + [True]
    assert gradients.window_weights(lambda table, priorities: None) is None


def test_only_agents_that_learn_from_each_sequence_once_limit_how_far_actors_run_ahead():
    assert {name: kind.pace for name, kind in KINDS.items()} == {
        "queue": None,
        "queue with a limit": Pace(max_policy_lag=1, unroll_length=2, items_per_actor=2),
        "sequences": None,
        "transitions": None,
    }
