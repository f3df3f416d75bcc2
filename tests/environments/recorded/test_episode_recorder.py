"""Recording: which steps are episodes, what a Minari data set then holds, and what a reader makes of it."""

import contextlib
import threading
import time

import numpy as np
import pytest
from dm_env import specs as dm_specs
from gymnasium import spaces

from callboard.data import Timestep
from callboard.environments import make
from callboard.environments.batches.encoding import EnvironmentEncoding
from callboard.environments.batches.spaces import action_encoding, observation_encoding
from callboard.environments.recorded import EpisodeFeed, EpisodeFiles, EpisodeRecorder, open_data
from callboard.environments.recorded.episode_recorder import _WaitingBlocks
from callboard.runtime.deadlines import wait_until
from callboard.specs import EnvironmentSpec

minari = pytest.importorskip("minari")

NUMBERS = EnvironmentSpec(dm_specs.Array((), np.float32), dm_specs.DiscreteArray(9, np.int32))


def timestep(observation, first=(), last=(), reward=0.0, discount=None):
    size = len(observation)
    flags = [np.isin(np.arange(size), which) for which in (first, last)]
    return Timestep(
        np.asarray(observation, np.float32),
        np.broadcast_to(np.float32(reward), size),
        np.ones(size, np.float32) if discount is None else np.asarray(discount, np.float32),
        *flags,
    )


def recorded(steps, begin, spec=NUMBERS, **options):
    """Episodes that a recorder passes on, as (observations, actions, rewards, terminated, seed)."""
    taken = []
    recorder = EpisodeRecorder(spec, list(range(len(begin.first))), lambda new: taken.extend(new) or True, **options)
    recorder.begin(begin)
    for action, following in steps:
        recorder.step(np.asarray(action, np.int32), following)
    recorder.close()
    return [
        (
            episode.values["observations"].tolist(),
            episode.values["actions"].tolist(),
            episode.values["rewards"].tolist(),
            bool(episode.values["terminations"][-1]),
            episode.seed,
        )
        for episode in taken
    ]


def test_an_episode_ends_with_its_last_observation_and_the_action_after_it_is_left_out():
    steps = [
        ([1, 5], timestep([1, 11], reward=1)),
        ([2, 6], timestep([2, 12], last=[0], reward=2, discount=[0, 1])),
        ([3, 7], timestep([3, 13], first=[0], reward=3)),
        ([4, 8], timestep([4, 14], last=[0, 1], reward=4)),
    ]
    assert recorded(steps, timestep([0, 10], first=[0, 1])) == [
        ([0, 1, 2], [1, 2], [1, 2], True, 0),
        ([3, 4], [4], [4], False, None),
        ([10, 11, 12, 13, 14], [5, 6, 7, 8], [1, 2, 3, 4], False, 1),
    ]


def test_an_episode_whose_last_observation_is_lost_ends_before_it_unless_it_terminated():
    steps = [
        ([1, 5], timestep([1, 11], reward=1)),
        ([2, 6], timestep([2, 12], first=[0, 1], reward=2, discount=[0, 1])),
    ]
    assert recorded(steps, timestep([0, 10], first=[0, 1])) == [
        ([0, 1, 1], [1, 2], [1, 2], True, 0),
        ([10, 11], [5], [1], False, 1),
    ]


def test_open_episodes_and_those_before_a_new_beginning_are_left_out():
    taken = []
    recorder = EpisodeRecorder(NUMBERS, [0], lambda new: taken.extend(new) or True)
    for _ in range(2):
        recorder.begin(timestep([0], first=[0]))
        recorder.step(np.array([1], np.int32), timestep([1]))
    recorder.close()
    assert taken == []


def test_only_the_first_episodes_of_an_environment_are_recorded_up_to_a_quota():
    steps = [([1], timestep([1], first=[0], discount=[0])) for _ in range(3)]
    assert len(recorded(steps, timestep([0], first=[0]), quota=2)) == 2


def test_the_error_of_the_sink_is_raised_in_the_thread_that_steps():
    def fail(episodes):
        raise OSError("no space")

    recorder = EpisodeRecorder(NUMBERS, [0], fail)
    recorder.begin(timestep([0], first=[0]))
    recorder.step(np.array([1], np.int32), timestep([1], last=[0]))
    begun = time.monotonic()
    with pytest.raises(OSError, match="no space"):
        recorder.close()
    assert time.monotonic() - begun < 30, "it has waited for a thread that waits for it"


NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (40, 36, 3), np.uint8),
        "gray": spaces.Box(0, 255, (40, 36, 1), np.uint8),
        "first": spaces.Box(0, 255, (4, 84, 84), np.uint8),
        "arm/joint": spaces.Box(-1.0, 1.0, (2,), np.float64),
        "bytes": spaces.Box(0, 255, (3,), np.uint8),
        "flags": spaces.MultiBinary(3),
        "seen": spaces.Box(0, 1, (2,), np.bool_),
        "pair": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 4])]),
        "count": spaces.Box(0, 1000, (), np.int64),
    }
)
ACTIONS = spaces.Dict({"move": spaces.Discrete(4, start=-1), "push": spaces.Box(-2.0, 2.0, (2,), np.float32)})


def test_nested_values_of_any_dtype_are_read_as_they_were_played_by_us_and_by_minari(tmp_path):
    from callboard.environments.batches import encoding

    NESTED.seed(1)
    ACTIONS.seed(1)
    coding = EnvironmentEncoding(observation_encoding(NESTED), action_encoding(ACTIONS))
    played = [NESTED.sample() for _ in range(4)]
    acted = [ACTIONS.sample() for _ in range(3)]
    observed = [encoding.encode_one(coding.observation, one) for one in played]
    actions = [{"move": np.int32(one["move"] + 1), "push": one["push"]} for one in acted]

    def batch(one):
        import tree

        return tree.map_structure(lambda leaf: np.asarray(leaf)[np.newaxis], one)

    files = EpisodeFiles(tmp_path / "nested-v0", coding.spec(), {}, 1e9)
    recorder = EpisodeRecorder(coding.spec(), [7], files.append)
    recorder.begin(timestep([0], first=[0])._replace(observation=batch(observed[0])))
    for index in range(3):
        following = timestep([0], last=[0] if index == 2 else [], reward=index, discount=[index < 2])
        recorder.step(batch(actions[index]), following._replace(observation=batch(observed[index + 1])))
    recorder.close()

    found = minari.MinariDataset(str(tmp_path / "nested-v0" / "data"))
    (episode,) = list(found)
    for key in NESTED.spaces:
        for part, values in enumerate(episode.observations[key.replace("/", ".")]) if key == "pair" else [(None, None)]:
            values = episode.observations[key.replace("/", ".")] if part is None else values
            wanted = [one[key] if part is None else one[key][part] for one in played]
            if key == "gray":
                wanted = [one[..., 0] for one in wanted]  # As Minari reads any picture of one channel.
            if key != "arm/joint":
                np.testing.assert_array_equal(values, np.stack(wanted), err_msg=key)
            else:
                assert values.dtype == np.float64
                np.testing.assert_allclose(values, np.stack(wanted), atol=1e-7)
    assert episode.actions["move"].tolist() == [one["move"] for one in acted]
    assert episode.rewards.tolist() == [0, 1, 2] and episode.terminations.tolist() == [False, False, True]
    assert list(found.storage.get_episode_metadata([0]))[0]["seed"] == 7

    (ours,) = open_data(str(tmp_path / "nested-v0")).episodes([0])
    for index, one in enumerate(observed):
        for key, value in one.items():
            mine = ours.observation[key.replace("/", ".")]
            np.testing.assert_equal(
                [leaf[index] for leaf in mine] if isinstance(mine, tuple) else mine[index],
                list(value) if isinstance(value, tuple) else value,
            )
    np.testing.assert_array_equal(ours.action["move"], [one["move"] for one in actions])


def test_a_feed_plays_what_was_recorded_and_every_episode_before_any_again(tmp_path):
    files = EpisodeFiles(tmp_path / "numbers-v0", NUMBERS, {}, 1e9)
    recorder = EpisodeRecorder(NUMBERS, [0, 1], files.append)
    recorder.begin(timestep([0, 10], first=[0, 1]))
    recorder.step(np.array([1, 5], np.int32), timestep([1, 11], last=[0], reward=1, discount=[0, 1]))
    recorder.step(np.array([8, 6], np.int32), timestep([2, 12], first=[0], last=[1], reward=2))
    recorder.close()
    feed = EpisodeFeed([open_data(str(tmp_path / "numbers-v0"))], [1.0], 1, seed=3)
    seen = []
    for _ in range(5):
        one = feed.timestep
        seen.append((one.observation[0], one.reward[0], one.discount[0], one.first[0], one.last[0], feed.action()[0]))
        feed.advance()
    short = [(0, 0, 1, True, False, 1), (1, 1, 0, False, True, 1)]
    long = [(10, 0, 1, True, False, 5), (11, 1, 1, False, False, 6), (12, 2, 1, False, True, 6)]
    assert seen in (short + long, long + short)
    assert feed.steps == 3


def test_discounts_of_the_environment_are_those_that_a_feed_plays(tmp_path):
    files = EpisodeFiles(tmp_path / "discounts-v0", NUMBERS, {}, 1e9)
    recorder = EpisodeRecorder(NUMBERS, [0, 1], files.append)
    recorder.begin(timestep([0, 10], first=[0, 1]))
    recorder.step(np.array([1, 5], np.int32), timestep([1, 11], discount=[0.5, 0]))
    recorder.step(np.array([2, 6], np.int32), timestep([2, 12], last=[0], discount=[0.25, 0.1]))
    recorder.step(np.array([3, 7], np.int32), timestep([3, 13], first=[0], last=[1], discount=[1, 0]))
    recorder.step(np.array([4, 8], np.int32), timestep([4, 14], first=[1], last=[0], discount=[1, 1]))
    recorder.close()
    # Minari has no discounts, and reads the rest.
    found = minari.MinariDataset(str(tmp_path / "discounts-v0" / "data"))
    assert [bool(one.truncations[-1]) for one in found] == [True, False, True]
    data = open_data(str(tmp_path / "discounts-v0"))
    read = [(one.discount.tolist(), one.terminated) for one in data.all_episodes()]
    assert read == [([0.5, 0.25], False), ([0, np.float32(0.1), 0], True), ([1], False)]
    feed, played = EpisodeFeed([data], [1.0], 1, seed=3), set()
    for _ in range(10):
        played.add((feed.timestep.observation.item(), feed.timestep.discount.item()))
        feed.advance()
    wanted = {(1, 0.5), (2, 0.25), (11, 0), (12, float(np.float32(0.1))), (13, 0), (4, 1), (0, 1), (10, 1), (3, 1)}
    assert played == wanted


def test_many_small_blocks_may_wait_for_the_recording_thread_but_few_large_ones():
    waiting = _WaitingBlocks()
    for number in range(50):
        waiting.put([number], 1000)
    large = threading.Thread(target=lambda: [waiting.put([number], 2**22) for number in (50, 51)])
    large.start()
    wait_until(lambda: len(waiting._blocks) == 51, 10)
    large.join(0.1)
    assert large.is_alive(), "it has not waited"
    assert [waiting.get(10) for _ in range(52)] == [[number] for number in range(52)]
    assert waiting.get(0) == []


@pytest.mark.parametrize(
    ("env", "options", "own"),
    [
        ("CartPole-v1", {}, False),
        ("CartPole-v1", {"vectorized": False}, True),
        ("Pendulum-v1", {}, True),
        (["Pendulum-v1", "Pendulum-v1"], {}, True),
    ],
)
def test_seeds_are_those_of_single_environments_if_they_have_generators_of_their_own(env, options, own):
    with contextlib.closing(make(env, 2, [5, 6], options)) as environment:
        assert environment.has_own_seeds is own
        batch = environment.reset().observation
    with contextlib.closing(make(env, 2, [5, 99], options)) as environment:
        assert np.array_equal(batch[0], environment.reset().observation[0]) is own
