"""Limits of replay: what works, and what is said of what cannot."""

import pytest
import reverb
import timestep_streams

from callboard.errors import CallboardError
from callboard.replay import WindowFormat, replay_table
from callboard.settings.replay_settings import ReplaySettings

LAYOUT = timestep_streams.layout(envs=4, actors=2)
GOOD = dict(size=1000, min_size=100, samples_per_insert=4.0)


@pytest.mark.parametrize(
    ("limits", "layout", "message"),
    [
        (dict(size=50), {}, "a replay of 50 items .* smaller than a batch of 64: set agent.replay.size to at least 64"),
        (dict(size=100), dict(shards=2), "set agent.replay.size to at least 128"),
        (
            dict(min_size=2000),
            {},
            r"agent.replay.min_size must lie between 1 and agent.replay.size \(1000\), not be 2000",
        ),
        (dict(min_size=0), {}, "agent.replay.min_size must lie between 1"),
        (dict(), dict(max_steps=80), "learning would never begin: agent.replay.min_size is 100, .* max_steps = 80"),
        (dict(samples_per_insert=0.0), {}, "agent.replay.samples_per_insert must be more than 0, not 0"),
        (dict(samples_per_insert=float("inf")), {}, "agent.replay.samples_per_insert must be more than 0"),
        (dict(error_buffer=70.0), {}, "error_buffer of 70 cannot keep 4 samples per insert: .*batch of 64.* least 80"),
        (dict(), dict(replicas=3), "a batch of 64 items cannot be shared by 3 learner devices.*multiple of 3"),
    ],
)
def test_limits_that_cannot_work_explain_themselves(limits, layout, message):
    with pytest.raises(CallboardError, match=message) as raised:
        ReplaySettings(**{**GOOD, **limits}).check(LAYOUT._replace(**layout), batch_size=64)
    assert "\n" not in str(raised.value)


def test_the_steps_of_an_environment_count_for_each_of_its_agents():
    limits = ReplaySettings(**GOOD)
    limits.check(LAYOUT._replace(max_steps=60, agents_per_env=2), batch_size=64)
    with pytest.raises(
        CallboardError, match="min_size is 100, and the run ends after max_steps = 60 environment steps"
    ):
        limits.check(LAYOUT._replace(max_steps=60), batch_size=64)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("error_buffer", [None, 80.0, 500.0])
@pytest.mark.parametrize("samples_per_insert", [0.25, 4.0, 300.0])
def test_a_learner_and_its_actors_never_wait_for_each_other(samples_per_insert, error_buffer, shards):
    """Whatever passed the check: batch by batch and timestep by timestep, one of the two can always continue."""
    layout = LAYOUT._replace(shards=shards)
    limits = ReplaySettings(**{**GOOD, "samples_per_insert": samples_per_insert}, error_buffer=error_buffer)
    try:
        limits.check(layout, batch_size=64)
    except CallboardError:
        assert error_buffer is not None and samples_per_insert == 300
        return
    table = replay_table("replay", WindowFormat(layout, 1).signature(), layout, limits, 64)
    info = table.info.rate_limiter_info
    inserts, samples = 0, 0

    def error():
        return inserts * samples_per_insert - samples

    for _ in range(2000):
        if inserts < info.min_size_to_sample or error() + 4 * samples_per_insert <= info.max_diff:
            inserts += 4
        if inserts >= info.min_size_to_sample and error() - 64 >= info.min_diff:
            samples += 64
        can_insert = error() + 4 * samples_per_insert <= info.max_diff
        can_sample = error() - 64 >= info.min_diff
        assert inserts < info.min_size_to_sample or can_insert or can_sample
    drift = samples - samples_per_insert * (inserts - info.min_size_to_sample)
    assert samples > 1000 and abs(drift) <= limits.buffer(layout, 64)
    if error_buffer is None:
        while error() - 64 >= info.min_diff:
            samples += 64
        assert -64 < samples - samples_per_insert * (inserts - info.min_size_to_sample) <= 0


def test_a_shard_has_its_part_of_everything():
    layout = LAYOUT._replace(shards=2)
    limits = ReplaySettings(**GOOD)
    limits.check(layout, 64)
    table = replay_table("replay", WindowFormat(layout, 1).signature(), layout, limits, 64, priority_exponent=0.6)
    assert table.info.max_size == 500 and table.info.rate_limiter_info.min_size_to_sample == 50
    assert table.info.sampler_options.prioritized.priority_exponent == 0.6
    even = replay_table("replay", WindowFormat(layout, 1).signature(), layout, limits, 64)
    assert even.info.sampler_options.uniform and isinstance(even, reverb.Table)


@pytest.mark.parametrize("together", [1, 4])
def test_a_smallest_size_that_cannot_be_divided_evenly_makes_a_table(together):
    layout = LAYOUT._replace(shards=2)
    limits = ReplaySettings(**{**GOOD, "min_size": 101})
    table = replay_table("replay", WindowFormat(layout, 1).signature(), layout, limits, 64, together=together)
    info = table.info.rate_limiter_info
    assert info.min_diff <= info.samples_per_insert * info.min_size_to_sample
