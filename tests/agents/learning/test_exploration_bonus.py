"""The exploration bonus of a learner: its statistics, what it sees, and that it falls where the learner has been."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import layout_of

from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.learning.exploration_bonus import make_bonus
from callboard.agents.learning.gradient_step import GradientStep, LossOutput
from callboard.agents.losses.exploration_bonus import Prediction
from callboard.agents.losses.replicas import global_mean
from callboard.data import Record
from callboard.networks.network_settings import QNetworkSettings
from callboard.settings.nested_settings import from_values
from callboard.specs import EnvironmentSpec
from callboard.transitions import valid_transitions

STEPS, BATCH = 6, 8
SIZES = {"bonus.hidden_sizes": (8,), "bonus.features": 5}
IMAGES = {"network__filters": ((4, 3, 2),), "network__image_features": 8}
VECTOR = EnvironmentSpec(dm_specs.Array((2,), np.float32), dm_specs.DiscreteArray(3))
PARTS = EnvironmentSpec(
    {
        "action_mask": dm_specs.BoundedArray((3,), np.int8, 0, 1),
        "camera": dm_specs.BoundedArray((12, 12, 3), np.uint8, 0, 255),
        "room": dm_specs.DiscreteArray(4),
        "count": dm_specs.Array((2,), np.int64),
        "position": dm_specs.Array((2,), np.float64),
    },
    {
        "choice": dm_specs.DiscreteArray(3),
        "push": dm_specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [1.0, np.inf]),
    },
)


def random_record(rng, spec):
    def values(leaf, length):
        shape = (length, BATCH, *leaf.shape)
        if leaf.dtype.kind == "f":
            return rng.normal(size=shape).astype(leaf.dtype)
        return rng.integers(0, getattr(leaf, "num_values", 2), size=shape).astype(leaf.dtype)

    last = rng.random((STEPS + 1, BATCH)) < 0.2
    first = np.concatenate([np.zeros((1, BATCH), bool), last[:-1] | (rng.random((STEPS, BATCH)) < 0.2)])
    return Record(
        observation=tree.map_structure(lambda leaf: values(leaf, STEPS + 1), spec.observation),
        first=first,
        last=last,
        action=tree.map_structure(lambda leaf: values(leaf, STEPS), spec.action),
        reward=np.zeros((STEPS, BATCH), np.float32),
        discount=np.where(rng.random((STEPS, BATCH)) < 0.3, 0.0, 1.0).astype(np.float32),
        extras=(),
        version=np.zeros((STEPS, BATCH, 2), np.int32),
    )


def bonus_of(agent, spec, has_values=False, **settings):
    tf.keras.utils.set_random_seed(1)
    agent = from_values(agent, {**SIZES, **{name.replace("__", "."): value for name, value in settings.items()}})
    return make_bonus(agent, layout_of(spec), has_values)


def learn(bonus, record, updates):
    """Trains the bonus's networks alone, and gives the bonus of a record before the first and after the last update."""
    step = GradientStep([bonus.objective()], tf.distribute.get_strategy())
    mean = global_mean(STEPS * BATCH, tf.float32)

    @tf.function(autograph=False)
    def update():
        measured = bonus.measured(record)
        loss = bonus.trained_too(LossOutput(tf.zeros(()), {}), measured, mean).loss
        step(lambda: LossOutput(bonus.trained_too(LossOutput(0.0, {}), measured, mean).loss["bonus_loss"], {}))
        return measured.bonus, loss["bonus_loss"]

    outcomes = [[part.numpy() for part in update()] for _ in range(updates)]
    return outcomes[0], outcomes[-1]


def test_there_is_none_by_default():
    assert make_bonus(Apex(), layout_of(VECTOR), has_values=False) is None


def test_the_bonus_is_the_error_divided_by_its_deviation():
    record = random_record(np.random.default_rng(0), VECTOR)
    bonus = bonus_of(Apex, VECTOR, bonus__name="rnd", discount=0.9)
    measured = bonus.measured(record)
    has_bonus = valid_transitions(record.first, record.last, record.discount) & ~record.first[1:]
    # A termination that is shown with the first observation of the next episode is a transition without a bonus.
    valid = np.asarray(measured.valid)
    assert (valid & ~has_bonus).any() and (~valid).any()
    seen = record.observation[1:][has_bonus].astype(np.float64)
    normalized = np.clip((record.observation[1:] - seen.mean(axis=0)) / seen.std(axis=0), -10, 10)
    rows = normalized.reshape(-1, 2).astype(np.float32)
    networks = bonus._networks
    error = np.square(networks.predictor(rows) - networks.target(rows)).sum(axis=-1).reshape(STEPS, BATCH)
    expected = np.where(has_bonus, error / error[has_bonus].std() * np.sqrt(1 - 0.9**2), 0.0)
    np.testing.assert_allclose(measured.bonus, expected, rtol=1e-4)
    # The next batch is divided by the deviation of both.
    more = random_record(np.random.default_rng(1), VECTOR)
    assert np.isfinite(bonus.measured(more).bonus).all()
    assert float(bonus._deviation._count) > has_bonus.sum()


def test_the_bonus_falls_with_the_errors_of_a_long_run(monkeypatch):
    size, sizes = 100_000, []
    record = Record(
        observation=np.zeros((2, size, 2), np.float32),
        first=np.zeros((2, size), bool),
        last=np.zeros((2, size), bool),
        action=np.zeros((1, size), np.int32),
        reward=np.zeros((1, size), np.float32),
        discount=np.ones((1, size), np.float32),
        extras=(),
        version=np.zeros((1, size, 2), np.int32),
    )
    bonus = bonus_of(Apex, VECTOR, bonus__name="rnd")
    errors = tf.random.uniform((1, size), seed=0)
    for scale, updates in ((1.0, 10), (0.01, 40)):
        monkeypatch.setattr(bonus, "_predicted", lambda part, scale=scale: Prediction(scale * errors, scale * errors))
        for _ in range(updates):
            measured = bonus.measured(record)
        sizes.append(float(tf.reduce_mean(measured.bonus)))
    # With the deviation of the newest 500,000 it would be 0.4 of that at the beginning.
    assert 0.01 < sizes[1] / sizes[0] < 0.03


@pytest.mark.slow("daily")
def test_what_is_not_a_transition_changes_nothing():
    record = random_record(np.random.default_rng(2), VECTOR)
    invalid = ~valid_transitions(record.first, record.last, record.discount)
    assert invalid.any()
    outcomes = []
    for action in (record.action, np.where(invalid, (record.action + 1) % 3, record.action)):
        bonus = bonus_of(Impala, VECTOR, True, bonus__name="icm")
        changed = record._replace(action=action)
        measured = bonus.measured(changed)
        target = tf.where(measured.valid, measured.bonus, np.nan if action is record.action else 1e9)
        output = bonus.trained_too(
            LossOutput(tf.zeros(()), {}), measured._replace(target=target), global_mean(1.0, tf.float32)
        )
        assert (measured.bonus.numpy()[invalid] == 0).all()
        outcomes.append(
            [measured.bonus.numpy(), output.loss["bonus_loss"].numpy(), bonus._normalizer._means[0].numpy()]
        )
    for one, other in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", ["rnd", "icm"])
@pytest.mark.parametrize("spec", [VECTOR, PARTS])
def test_the_bonus_falls_where_the_learner_has_been(name, spec):
    record = random_record(np.random.default_rng(3), spec)
    bonus = bonus_of(Apex, spec, bonus__name=name, bonus__learning_rate=0.02, **(IMAGES if spec is PARTS else {}))
    fixed = [variable.numpy() for variable in bonus._networks.target.variables] if name == "rnd" else []
    (before, first_loss), (after, last_loss) = learn(bonus, record, updates=20)
    assert np.isfinite(before).all() and before.max() > 0
    assert last_loss < 0.8 * first_loss
    if name == "rnd":
        assert after.sum() < before.sum()
        for old, variable in zip(fixed, bonus._networks.target.variables, strict=True):
            np.testing.assert_array_equal(old, variable)


@pytest.mark.slow("daily")
def test_masks_are_not_seen():
    record = random_record(np.random.default_rng(4), PARTS)
    other = {**record.observation, "action_mask": 1 - record.observation["action_mask"]}
    measured = [
        bonus_of(Apex, PARTS, bonus__name="icm").measured(one) for one in (record, record._replace(observation=other))
    ]
    np.testing.assert_array_equal(*(one.bonus for one in measured))
    assert "action_mask" not in measured[0].transitions.observation


def test_stacks_and_precision_are_those_of_the_agent():
    spec = EnvironmentSpec(dm_specs.BoundedArray((12, 12, 1), np.uint8, 0, 255), dm_specs.DiscreteArray(3))
    network = dataclasses.asdict(QNetworkSettings(hidden_sizes=(), activation="relu", stream_size=0))
    assert network["precision"] == "float32"
    bonus = bonus_of(
        Apex,
        spec,
        bonus__name="rnd",
        frame_stack=2,
        **IMAGES,
        network__precision="bfloat16",
    )
    stacked = spec._replace(observation=dm_specs.BoundedArray((12, 12, 2), np.uint8, 0, 255))
    measured = bonus.measured(random_record(np.random.default_rng(5), stacked))
    assert measured.bonus.dtype == tf.float32 and np.isfinite(measured.bonus).all()
    assert all(variable.dtype == tf.float32 for variable in bonus._networks.variables)
