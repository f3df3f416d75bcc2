"""Acting: episodes of every kind of reset, evaluation, records, and what an observation may not be."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from recording_actor import Actor

from callboard.agents.policies.acting import CompiledPolicy, Episode, EpisodeTracker, evaluate, policy_seed
from callboard.data import Layout, Timestep, Version
from callboard.environments import BatchedEnvironment
from callboard.errors import CallboardError
from callboard.specs import EnvironmentSpec

SPEC = EnvironmentSpec(dm_specs.Array((2,), np.float32), dm_specs.DiscreteArray(5))


class Scripted(BatchedEnvironment):
    """Environments whose episodes have given lengths, over and over, and a reward of 1 for every step.

    The observation is `[episode, step]`.  The actions that were executed are kept.

    Args:
      lengths: for each environment, of its episodes in turn.
      same_step: whether the next episode begins in the step that ends one, or in the step after it.
      terminates: whether episodes terminate; they are cut off otherwise.
    """

    def __init__(self, lengths, same_step=False, terminates=True):
        self._lengths = lengths
        self._same_step = same_step
        self._end_discount = 0.0 if terminates else 1.0
        self._episode = [-1] * len(lengths)
        self._time = [0] * len(lengths)
        self._over = [False] * len(lengths)
        self.actions = []

    @property
    def spec(self):
        return SPEC

    @property
    def batch_size(self):
        return len(self._lengths)

    def reset(self):
        rows = []
        for env in range(self.batch_size):
            self._begin(env)
            rows.append((0.0, 1.0, True, False))
        return self._timestep(rows)

    def step(self, actions):
        self.actions.append(np.array(actions))
        rows = []
        for env, lengths in enumerate(self._lengths):
            if self._over[env]:
                self._begin(env)
                rows.append((0.0, 1.0, True, False))
                continue
            self._time[env] += 1
            ended = self._time[env] == lengths[self._episode[env] % len(lengths)]
            discount = self._end_discount if ended else 1.0
            if ended and self._same_step:
                self._begin(env)
                rows.append((1.0, discount, True, False))
            else:
                self._over[env] = ended
                rows.append((1.0, discount, False, ended))
        return self._timestep(rows)

    def _begin(self, env):
        self._episode[env] += 1
        self._time[env] = 0
        self._over[env] = False

    def _timestep(self, rows):
        reward, discount, first, last = zip(*rows, strict=True)
        return Timestep(
            np.stack([self._episode, self._time], axis=1).astype(np.float32),
            np.array(reward, np.float32),
            np.array(discount, np.float32),
            np.array(first),
            np.array(last),
        )

    def render(self):
        raise NotImplementedError

    def close(self):
        pass


class Remembering(tf.Module):
    """Acts at random; its state adds up all observations of the episode, and its extras show what it was given."""

    def initial_state(self, batch_size):
        return tf.zeros((batch_size, 2))

    def __call__(self, timestep, state, slot, seed):
        state = tf.where(timestep.first[:, tf.newaxis], 0.0, state)
        uniform = tf.random.stateless_uniform(tf.shape(slot), seed, maxval=5, dtype=tf.int32)
        extras = {"slot": slot, "seed": tf.tile(seed[tf.newaxis], (len(slot), 1)), "before": state}
        return uniform, extras, state + timestep.observation


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self):
        self.records = []
        self.states = []

    @property
    def items_written(self):
        return 0

    def append(self, record, state):
        self.records.append(record)
        self.states.append(state)

    def ready(self, timeout, max_pending=None):
        return True

    def close(self):
        pass


def compiled(slots, seed=1, incarnation=0):
    layout = Layout(
        spec=SPEC, envs_per_actor=len(slots), actors=1, shards=1, replicas=1, seed=seed, max_steps=1, record=None
    )
    return CompiledPolicy(Remembering(), layout, np.asarray(slots), seed, incarnation)


def timestep(reward, first, last, discount=1.0):
    """A timestep of one environment."""
    flags = np.array([first]), np.array([last])
    return Timestep(np.zeros((1, 2)), np.array([reward], np.float32), np.array([discount], np.float32), *flags)


def track(timesteps):
    tracker = EpisodeTracker(len(timesteps[0].reward))
    return [tracker.observe(timestep) for timestep in timesteps]


def test_an_episode_that_shows_its_end_is_reported_at_its_last_timestep_and_the_reset_adds_nothing():
    ended = track(
        [
            timestep(1.5, first=False, last=False),
            timestep(2.0, first=False, last=True, discount=0.0),
            # Whatever an environment says about the timestep of a reset, no action led to it.
            timestep(100.0, first=True, last=False),
            timestep(4.0, first=False, last=True),
            timestep(0.0, first=True, last=False),
            timestep(8.0, first=False, last=False),
        ]
    )
    assert ended == [[], [Episode(0, 3.5, 2)], [], [Episode(0, 4.0, 1)], [], []]


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_an_episode_that_is_reset_in_the_same_step_is_reported_at_the_first_timestep_of_the_next(discount):
    ended = track(
        [
            timestep(1.5, first=False, last=False),
            timestep(2.0, first=True, last=False, discount=discount),
            timestep(4.0, first=True, last=False, discount=discount),
            timestep(8.0, first=False, last=False),
        ]
    )
    assert ended == [[], [Episode(0, 3.5, 2)], [Episode(0, 4.0, 1)], []]


@pytest.mark.parametrize("same_step", [False, True])
@pytest.mark.parametrize("terminates", [False, True])
def test_environments_of_a_batch_are_tracked_each_by_itself(same_step, terminates):
    environment = Scripted([[3, 1], [2]], same_step, terminates)
    tracker = EpisodeTracker(2)
    environment.reset()
    episodes = [episode for _ in range(12) for episode in tracker.observe(environment.step(np.zeros(2, np.int32)))]
    of_env = [
        [(episode.episode_return, episode.length) for episode in episodes if episode.env == env] for env in (0, 1)
    ]
    # 12 timesteps: a reset in a step of its own costs one.
    lengths = ([3, 1, 3, 1, 3, 1], [2] * 6) if same_step else ([3, 1, 3, 1], [2] * 4)
    assert of_env == [[(float(length), length) for length in env] for env in lengths]


@pytest.mark.parametrize("same_step", [False, True])
def test_evaluation_plays_as_many_episodes_in_every_environment(same_step):
    """The first four to end would all be of the first environment."""
    episodes = evaluate(Scripted([[1], [12]], same_step), compiled([0, 1]), 4, stopped=lambda: False)
    assert episodes == [Episode(0, 1.0, 1), Episode(0, 1.0, 1), Episode(1, 12.0, 12), Episode(1, 12.0, 12)]


def test_evaluation_takes_the_episodes_of_an_environment_in_their_order():
    """Environment 0 has played seven episodes when the others are done: only its first two are taken."""
    episodes = evaluate(Scripted([[2, 9, 1], [9, 2], [20, 3]]), compiled([0, 1, 2]), 6, stopped=lambda: False)
    assert [(episode.env, episode.length) for episode in episodes] == [(0, 2), (0, 9), (1, 9), (1, 2), (2, 20), (2, 3)]


def test_a_second_evaluation_begins_with_episodes_of_its_own():
    environment, policy = Scripted([[5], [3, 7]]), compiled([0, 1])
    evaluate(environment, policy, 2, stopped=lambda: False)
    # Environment 1 stood within an episode of length 7, and is reset.
    episodes = evaluate(environment, policy, 2, stopped=lambda: False)
    assert [episode.length for episode in episodes] == [5, 3]


def test_an_evaluation_that_is_stopped_gives_nothing():
    left = iter([False, False, True])
    assert evaluate(Scripted([[1]]), compiled([0]), 5, stopped=lambda: next(left)) == []


class Spoilt(Scripted):
    """Shows NaN from some timestep on."""

    def __init__(self, timesteps):
        super().__init__([[9], [9]])
        self._timesteps = timesteps

    def _timestep(self, rows):
        self._timesteps -= 1
        made = super()._timestep(rows)
        return made._replace(observation=made.observation * np.nan) if self._timesteps < 0 else made


@pytest.mark.parametrize("timesteps", [0, 1, 3])
def test_actor_and_evaluation_end_at_the_first_such_observation_and_write_none_of_it(timesteps):
    with pytest.raises(CallboardError, match="NaN"):
        evaluate(Spoilt(timesteps), compiled([0, 1]), 2, stopped=lambda: False)
    writer = Kept()
    with pytest.raises(CallboardError, match="observation of environment 0"):
        actor = Actor(Spoilt(timesteps), compiled([0, 1]), writer)
        while True:
            actor.step()
    assert all(np.isfinite(record.observation).all() for record in writer.records)
    assert len(writer.records) == max(0, timesteps - 1)


@pytest.mark.parametrize("same_step", [False, True])
def test_a_record_joins_a_timestep_with_the_reward_and_discount_that_followed(same_step):
    environment, writer = Scripted([[2], [3, 1]], same_step), Kept()
    actor = Actor(environment, compiled([6, 7]), writer)
    twin = Scripted([[2], [3, 1]], same_step)
    actor.version = Version(3, 17)
    shown = twin.reset()
    for _ in range(9):
        actor.step()
        record = writer.records[-1]
        for name in ("observation", "first", "last"):
            np.testing.assert_array_equal(getattr(record, name), getattr(shown, name), name)
        # The environment was given the very action that stands in the record.
        np.testing.assert_array_equal(record.action, environment.actions[-1])
        assert record.version.dtype == np.int32 and record.version.tolist() == [[3, 17]] * 2
        shown = twin.step(record.action)
        np.testing.assert_array_equal(record.reward, shown.reward)
        np.testing.assert_array_equal(record.discount, shown.discount)
    rewards = np.stack([record.reward for record in writer.records])[:, 0].tolist()
    discounts = np.stack([record.discount for record in writer.records])[:, 0].tolist()
    if same_step:
        assert rewards == [1] * 9 and discounts == [1, 0] * 4 + [1]
    else:
        assert rewards == [1, 1, 0] * 3 and discounts == [1, 0, 1] * 3


def test_actions_that_were_ignored_are_no_environment_steps():
    # Of 12 timesteps, every third is the reset of environment 0; environment 1 has none.
    environment = Scripted([[2], [100]])
    actor = Actor(environment, compiled([0, 1]), Kept())
    episodes = [episode for _ in range(12) for episode in actor.step()]
    assert (actor.environment_steps, actor.ignored_timesteps) == (20, 4)
    assert episodes == [Episode(0, 2.0, 2)] * 4
    # Where episodes begin in the step that ends one, no action is ignored.
    actor = Actor(Scripted([[2], [100]], same_step=True), compiled([0, 1]), Kept())
    for _ in range(12):
        actor.step()
    assert (actor.environment_steps, actor.ignored_timesteps) == (24, 0)


def test_the_state_handed_to_the_writer_belongs_to_the_observation_of_the_record():
    writer = Kept()
    actor = Actor(Scripted([[2], [3, 1]]), compiled([0, 1]), writer)
    for _ in range(10):
        actor.step()
    expected = np.zeros((2, 2))
    for record, state in zip(writer.records, writer.states, strict=True):
        # The policy itself resets the state where an episode begins.
        np.testing.assert_array_equal(state, expected)
        before = np.where(record.first[:, np.newaxis], 0.0, expected)
        np.testing.assert_array_equal(record.extras["before"], before)
        expected = before + record.observation


def play(policy, timesteps=6):
    """Actions and extras of some timesteps of a batch of two."""
    shown = Scripted([[2], [3]]).reset()
    return [policy(shown) for _ in range(timesteps)]


def actions(policy):
    return np.stack([action for action, _ in play(policy, 12)])


def test_the_same_seed_gives_the_same_actions_and_another_seed_or_slot_others():
    reference = actions(compiled([4, 5]))
    np.testing.assert_array_equal(actions(compiled([4, 5])), reference)
    for other in (compiled([4, 5], seed=2), compiled([5, 6]), compiled([6, 7])):
        assert (actions(other) != reference).any()


def test_an_actor_that_starts_again_acts_by_other_seeds():
    seeds = [policy_seed(1, 4), policy_seed(1, 4, 1), policy_seed(1, 4, 2), policy_seed(1, 4, 1, 1), policy_seed(1, 5)]
    assert len(set(seeds)) == 5
    # Fresh runs continue to repeat the older ones under the same seed.
    assert seeds[0] == int(np.random.SeedSequence([1, 4]).generate_state(1)[0] >> 1)
    first, second = (compiled([4, 5], incarnation=incarnation) for incarnation in range(2))
    shown = Scripted([[9], [9]]).reset()
    assert any((first(shown)[0] != second(shown)[0]).any() for _ in range(10))


def test_a_policy_knows_its_slots_and_is_given_another_seed_at_every_timestep_and_in_every_actor():
    seeds = []
    for slots in ([0, 1], [2, 3], [32, 33]):
        for action, extras in play(compiled(slots)):
            assert extras["slot"].tolist() == slots
            assert isinstance(action, np.ndarray) and action.dtype == np.int32
            seeds.append(tuple(extras["seed"][0]))
    assert len(set(seeds)) == len(seeds)
