"""Windows with further goals: which goals, rewards and discounts, against a loop over single timesteps."""

import collections

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import timestep_streams
from dm_env import specs as dm_specs
from reading import read_batches

from callboard import specs
from callboard.errors import CallboardError
from callboard.replay import ReplayHandle, TransitionReplay, start_server
from callboard.replay.writing.hindsight import chosen_goals
from callboard.replay.writing.hindsight_writer import HindsightWriter
from callboard.settings.replay_settings import HindsightSettings, ReplaySettings

ENVS, STEPS, TIMESTEPS, GOALS = 3, 3, 50, 2
GOAL = dm_specs.Array((2,), np.float32)
SPEC = specs.EnvironmentSpec(
    observation={"body": GOAL, "achieved_goal": GOAL, "desired_goal": GOAL}, action=dm_specs.DiscreteArray(5)
)


def reward_of(achieved, desired, info):
    """Tells the goal that was achieved from the one to achieve, and knows the action's info."""
    return 100 * achieved[..., 1] - desired[..., 1] + info["number"] / 1024


class Rewards:
    """Of environments whose achieved goals are `[env, timestep]`; the info of an action is its timestep."""

    def __init__(self, terminates):
        self.terminates, self.number = terminates, -1

    def infos(self):
        self.number += 1
        return [{"number": self.number}] * ENVS

    def rewards(self, env, achieved, desired, infos):
        assert (achieved[:, 0] == env).all() and (desired[:, 0] == env).all()
        return np.array([reward_of(*one) for one in zip(achieved, desired, infos, strict=True)], np.float32)

    def terminated(self, env, achieved, desired, infos):
        return (achieved == desired).all(axis=-1) if self.terminates else None


def records_of(**options):
    """A stream of records with goals; the desired one is of no timestep."""
    records = []
    for record in timestep_streams.stream(ENVS, TIMESTEPS, **options):
        body = record.observation["body"]
        observation = {"body": body, "achieved_goal": body.copy(), "desired_goal": np.full_like(body, -1)}
        records.append(record._replace(observation=observation))
    return records


def replay_of(together=1, strategy="future", horizon=1000, steps=STEPS, rewards=None, **options):
    layout = timestep_streams.layout(ENVS, spec=SPEC)._replace(goal_rewards=rewards)
    limits = ReplaySettings(
        size=4000,
        min_size=8,
        samples_per_insert=1.0,
        error_buffer=1e8,
        sampled_together=together,
        hindsight=HindsightSettings(goals=GOALS, strategy=strategy, horizon=horizon),
    )
    return TransitionReplay(layout, limits, 600, n_step=steps, **options)


def episode_end(records, env, start, horizon):
    """The last timestep that is known to follow `start` in its episode, or in its part of `horizon` timesteps."""
    begin = start
    while begin > 0 and not records[begin].first[env]:
        begin -= 1
    end = begin
    while not records[end].last[env] and end + 1 < len(records) and not records[end + 1].first[env]:
        end += 1
    part = begin + (start - begin) // horizon * horizon
    return begin, min(end, part + horizon)


def expected_window(records, env, start, goal, steps, terminates, horizon):
    """Rewards, discounts and the number of the observation after them, of a window played for a timestep's goal."""
    _, end = episode_end(records, env, start, horizon)
    rewards, discounts = [], []
    for timestep in range(start, min(start + steps, end)):
        achieved, desired = np.array([env, timestep + 1.0]), np.array([env, goal])
        rewards.append(reward_of(achieved, desired, {"number": timestep}))
        over = timestep + 1 == goal if terminates else records[timestep].discount[env] == 0
        discounts.append(0.0 if over else 1.0)
        if over:
            break
    return rewards, discounts


@pytest.fixture
def written(tmp_path):
    """Writes records to a server; gives a function that samples windows."""
    servers = []

    def write(replay, records):
        weights = replay.window_weights(lambda table, priorities: client.mutate_priorities(table, priorities))
        server = start_server(replay.tables(), None, tmp_path)
        servers.append(server)
        client = server.localhost_client()
        handle = ReplayHandle(lambda: [f"localhost:{server.port}"], windows=lambda shard, timeout: weights)
        writer = replay.writer(handle, 0)
        for record in records:
            writer.append(record)
            assert writer.ready(60)
        writer.close()
        data = replay.dataset(handle, tf.distribute.InputContext()).dataset
        return writer, lambda count: read_batches(data, count)

    yield write
    for server in servers:
        server.stop()


def sampled_windows(samples):
    """`(env, start, goal)` of sampled windows, with their rewards and discounts; the goal is -1 if it is their own."""
    for sample in samples:
        record = sample.record
        for window in range(record.reward.shape[1]):
            env, start = record.observation["body"][0, window].astype(int).tolist()
            goals = record.observation["desired_goal"][:, window]
            assert (goals == goals[0]).all() and goals[0, 0] in (-1, env)
            valid = ~record.last[:-1, window]
            values = record.reward[:, window][valid].tolist(), record.discount[:, window][valid].tolist()
            yield (env, start, int(goals[0, 1])), values


def goal_timesteps(records, env, start, strategy, horizon):
    """The timesteps whose achieved goals a window may get; none if its first transition is not known."""
    begin, end = episode_end(records, env, start, horizon)
    part = begin + (start - begin) // horizon * horizon
    if start >= end:
        return []
    return {"future": range(start + 1, end + 1), "final": [end], "episode": range(part + 1, end + 1)}[strategy]


CASES = [
    pytest.param(
        together, strategy, terminates, ends, horizon, id=f"{together}-{strategy}-{terminates}-{horizon}-{number}"
    )
    for together, strategy, terminates, number, ends, horizon in [
        (1, "future", True, 0, tuple(timestep_streams.ENDS), 1000),
        (3, "future", False, 0, tuple(timestep_streams.ENDS), 1000),
        (3, "final", True, 1, ("termination", "time limit"), 1000),
        (1, "episode", False, 2, ("termination, same-step reset", "cut off, same-step reset"), 1000),
        (1, "episode", True, 0, tuple(timestep_streams.ENDS), 4),
    ]
]


@pytest.mark.slow("daily")
@pytest.mark.parametrize("together, strategy, terminates, ends, horizon", CASES)
def test_goals_rewards_and_discounts_are_those_of_a_loop(written, together, strategy, terminates, ends, horizon):
    """Whichever way episodes end, and where a horizon cuts them; with the probability of each."""
    records = records_of(ends=ends, seed=together)
    replay = replay_of(together, strategy, horizon, rewards=Rewards(terminates))
    writer, batches = written(replay, records)
    own = {
        (env, start): window
        for env in range(ENVS)
        for start, window in timestep_streams.windows(records, env, STEPS).items()
    }
    found, counts = collections.defaultdict(set), collections.Counter()
    for number, ((env, start, goal), (rewards, discounts)) in enumerate(sampled_windows(batches(12))):
        # Only those of different items are independent.
        counts[env, start, goal < 0] += number % together == 0
        if goal < 0:
            timesteps, terminated = own[env, start]
            taken = timesteps if terminated else timesteps[:-1]
            assert rewards == [records[one].reward[env] for one in taken]
            assert discounts == [records[one].discount[env] for one in taken]
            continue
        assert goal in goal_timesteps(records, env, start, strategy, horizon)
        expected = expected_window(records, env, start, goal, STEPS, terminates, horizon)
        np.testing.assert_allclose(rewards, expected[0], rtol=1e-6)
        assert discounts == expected[1]
        found[env, start].add(goal)
    possible = {window for window in own if goal_timesteps(records, *window, strategy, horizon)}
    assert found.keys() == possible and max(map(len, found.values())) <= GOALS
    if strategy != "final":
        assert len({goal - start for (_, start), goals in found.items() for goal in goals}) > 3
    # Each window is sampled as often with its own goal as with each of the others.
    weights = {(*window, True): 1 for window in own} | {(*window, False): GOALS for window in possible}
    assert counts.keys() == weights.keys()
    number, total = sum(counts.values()), sum(weights.values())
    observed = [counts[window] for window in weights]
    expected_counts = [weight * number / total for weight in weights.values()]
    assert scipy.stats.chisquare(observed, expected_counts).pvalue > 1e-4


@pytest.mark.slow("daily")
def test_first_priorities_are_of_the_rewards_for_each_goal(written):
    """The behavior policy's values are those for the goal that it played for."""
    records = records_of()
    seen = {}

    def first_priority(record):
        valid = ~record.last[:-1]
        priorities = 1 + np.where(valid, record.reward + record.discount, 0).sum(axis=0) % 7
        for column in range(record.reward.shape[1]):
            row = record.version[0, column, 0], record.extras["q"][0, column, 0]
            seen.setdefault(row, []).append(priorities[column])
        return priorities

    replay = replay_of(rewards=Rewards(True), priority_exponent=0.5, first_priority=first_priority)
    _, batches = written(replay, records)
    weights = {row: np.sqrt(own) for row, own in seen.items()}
    assert {len(own) for own in weights.values()} == {1 + GOALS}
    (sample,) = batches(1)
    record, probability = sample.record, sample.info.probability
    by_weight = collections.defaultdict(list)
    for column in range(record.reward.shape[1]):
        goal, start = sample.info.env[column] % (1 + GOALS), int(record.version[0, column, 0])
        env = int(record.observation["body"][0, column, 0])
        own = weights[start, records[start].extras["q"][env, 0]]
        assert (goal == 0) == (record.observation["desired_goal"][0, column, 0] == -1)
        by_weight[own[goal]].append(probability[column])
        valid = ~record.last[:-1, column]
        played = record.reward[:, column][valid] + record.discount[:, column][valid]
        np.testing.assert_allclose(own[goal] ** 2, 1 + played.sum() % 7, rtol=1e-4)
    ratios = [one / weight for weight, found in by_weight.items() for one in found]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-4)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_chosen_uniformly(strategy):
    length = 6
    chosen = chosen_goals(strategy, length, 20_000, np.random.default_rng(0))
    for timestep, goals in enumerate(chosen):
        allowed = {"future": range(timestep + 1, 7), "final": [6], "episode": range(1, 7)}[strategy]
        counts = np.bincount(goals, minlength=length + 1)
        assert set(np.flatnonzero(counts)) == set(allowed)
        assert scipy.stats.chisquare(counts[list(allowed)]).pvalue > 1e-4 or len(allowed) == 1


def test_a_timestep_is_held_back_for_as_long_as_an_episode():
    """So that at most one is written for each that comes, and what is held back is bounded."""

    class Inner:
        written, items_written = 0, 0

        def append_with(self, *arguments):
            self.written += 1

        def close(self):
            pass

    inner, length = Inner(), 7
    settings = HindsightSettings(goals=GOALS, horizon=10)
    writer = HindsightWriter(inner, STEPS, settings, Rewards(False), (1, 0), ENVS)
    held = []
    for number, record in enumerate(records_of()[:40]):
        record.first[:], record.last[:] = number % length == 0, number % length == length - 1
        if number > 20:  # One episode does not end any more.
            record.first[0] = record.last[0] = False
        before = inner.written
        writer.append(record)
        assert inner.written - before <= 1
        held.append(number + 1 - inner.written)
    assert max(held[:20]) == length - 1 and max(held) == 10
    writer.close()
    assert inner.written == 40


def goals_of(achieved, desired):
    return {"achieved_goal": achieved, "desired_goal": desired}


GOALS_AS = {"achieved_goal": GOAL, "desired_goal": dm_specs.Array((3,), np.float32)}


@pytest.mark.parametrize(
    "observation, options, message",
    [
        (GOAL, {}, "whose observations have the parts achieved_goal and desired_goal, and this is float32.2,."),
        ({"achieved_goal": GOAL}, {}, "have the parts achieved_goal and desired_goal"),
        (GOALS_AS, {}, "achieved_goal is float32.2,. and desired_goal is float32.3,.: make both one array"),
        ({**GOALS_AS, "achieved_goal": {"a": GOAL}}, {}, "an achieved goal becomes a desired one"),
        (goals_of(dm_specs.DiscreteArray(5), dm_specs.DiscreteArray(3)), {}, "is a choice of 5 and .* a choice of 3:"),
        (
            goals_of(specs.MultiDiscreteArray([5, 2]), specs.MultiDiscreteArray([5, 3])),
            {},
            r"\[5, 2\] and .* \[5, 3\]:",
        ),
        (goals_of(dm_specs.DiscreteArray(3), dm_specs.Array((), np.int32)), {}, r"a choice of 3 and .* int32\(\):"),
        (dict.fromkeys(GOALS_AS, dm_specs.Array((8, 8, 1), np.uint8)), {"stack": 2}, "set agent.frame_stack to 1"),
    ],
)
def test_goals_that_cannot_take_each_others_place_are_refused(observation, options, message):
    replay = replay_of(**options)
    spec = specs.EnvironmentSpec(observation, SPEC.action)
    layout = replay.layout._replace(spec=spec, record=None)
    with pytest.raises(CallboardError, match=message):
        TransitionReplay(layout, replay.settings, 600, n_step=STEPS, **options).check()


def test_a_writer_without_rewards_says_what_it_lacks():
    with pytest.raises(CallboardError, match="give the layout its goal_rewards"):
        replay_of().writer(ReplayHandle(lambda: ["localhost:1"]), 0)
