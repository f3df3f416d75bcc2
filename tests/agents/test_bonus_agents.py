"""Agents with an exploration bonus: what their learners report and save, and that nothing changes without one."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from agent_cases import SMALL_UPDATES
from dm_env import specs as dm_specs
from small_worlds import layout_of
from update_on_replicas import begin, distribute, made, random_sample

from callboard.agents.learning.exploration_bonus import is_spread
from callboard.agents.losses.exploration_bonus import row_weights
from callboard.agents.metric_names import BONUS_METRICS
from callboard.agents.r2d2 import R2D2
from callboard.agents.settings.bonus_settings import BonusSettings
from callboard.data import Timestep
from callboard.errors import CallboardError
from callboard.settings.nested_settings import from_values

WITH_BONUS = [name for name in SMALL_UPDATES if name.endswith(("-rnd", "-icm"))]
FAST = ("apex-rnd", "ppo-icm")


def cases():
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in WITH_BONUS]


def learner_of(agent, spec):
    return begin(agent, spec, tf.distribute.get_strategy(), None)


def keys(learner, directory):
    path = tf.train.Checkpoint(learner=learner).write(str(directory / "saved"))
    return {name for name, _ in tf.train.list_variables(path)}


def test_every_agent_with_the_setting_has_a_case():
    assert {name.partition("-")[0] for name in WITH_BONUS} == {"ppo", "impala", "a2c", "apex", "r2d2"}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", cases())
def test_learners_train_the_bonus_and_save_it(name, tmp_path):
    agent, spec, length = made(name)
    networks, learner, layout = learner_of(agent, spec)
    before = [variable.numpy() for variable in learner.bonus._networks.trained]
    acting = {variable.ref() for variable in networks.variables}
    metrics = learner.step(distribute(tf.distribute.get_strategy(), [[random_sample(layout, length)]])).metrics
    own = {metric.name for metric in BONUS_METRICS if name.partition("-")[0] in metric.agents}
    assert own <= set(metrics) and all(np.isfinite(float(metrics[metric])) for metric in own)
    assert float(metrics["bonus"]) > 0 and float(metrics["bonus_gradient_norm"]) > 0
    after = learner.bonus._networks.trained
    assert not any(variable.ref() in acting for variable in after)
    assert any((old != variable.numpy()).any() for old, variable in zip(before, after, strict=True))
    saved = keys(learner, tmp_path)
    for part in ("_normalizer", "_deviation", "_networks"):
        assert any(key.startswith(f"learner/bonus/{part}/") for key in saved), part
    # Another learner continues from there.
    _, other, _ = learner_of(agent, spec)
    tf.train.Checkpoint(learner=other).read(str(tmp_path / "saved")).assert_consumed()
    for one, restored in zip(learner.bonus.variables, other.bonus.variables, strict=True):
        np.testing.assert_array_equal(one, restored)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("name", cases())
def test_without_a_bonus_nothing_of_it_is_there(name, tmp_path):
    agent, spec, length = made(name)
    if is_spread(agent):  # The network takes the weight.
        agent = dataclasses.replace(agent, bonus=dataclasses.replace(agent.bonus, spread=False))
    plain = dataclasses.replace(agent, bonus=type(agent.bonus)())
    networks, learner, layout = learner_of(plain, spec)
    with_bonus, _, _ = learner_of(agent, spec)
    assert learner.bonus is None
    assert not any("bonus" in key for key in keys(learner, tmp_path))
    metrics = learner.step(distribute(tf.distribute.get_strategy(), [[random_sample(layout, length)]])).metrics
    assert not any("bonus" in metric for metric in metrics)
    # Actors fetch the same weights, which begin the same.
    for one, other in zip(with_bonus.variables, learner_of(plain, spec)[0].variables, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow("daily")
def test_munchausen_has_a_bonus_of_its_own_beside():
    agent, spec, length = made("apex-rnd")
    networks, learner, layout = learner_of(dataclasses.replace(agent, munchausen=0.9), spec)
    metrics = learner.step(distribute(tf.distribute.get_strategy(), [[random_sample(layout, length)]])).metrics
    assert float(metrics["bonus"]) > 0


@pytest.mark.slow("daily")
def test_the_weight_is_that_of_the_setting():
    assert BonusSettings(name="rnd", weight=0.25).weight == 0.25
    weighted = []
    for weight in (0.5, 2.0):
        agent, spec, length = made("apex-rnd")
        agent = dataclasses.replace(agent, bonus=dataclasses.replace(agent.bonus, weight=weight))
        networks, learner, layout = learner_of(agent, spec)
        for variable in networks.online.trainable_variables:
            variable.assign(tf.zeros_like(variable))
        for variable in networks.target.trainable_variables:
            variable.assign(tf.zeros_like(variable))
        sample = random_sample(layout, length)
        sample = sample._replace(record=sample.record._replace(reward=np.zeros_like(sample.record.reward)))
        metrics = learner.step(distribute(tf.distribute.get_strategy(), [[sample]])).metrics
        weighted.append(float(metrics["td_error"]))
    # With values and rewards of 0, errors are the sums of bonuses.
    assert weighted[1] == pytest.approx(4 * weighted[0], rel=1e-4) and weighted[0] > 0


SPREAD = {"bonus.name": "rnd", "bonus.spread": True}


def sums_of_bonuses(name, changed=lambda sample: sample):
    """The TD errors `[B]`, as new priorities, of an update with values and rewards of 0."""
    agent, spec, length = made(name)
    networks, learner, layout = learner_of(agent, spec)
    for variable in (*networks.online.trainable_variables, *networks.target.trainable_variables):
        variable.assign(tf.zeros_like(variable))
    sample = random_sample(layout, length)
    sample = changed(sample._replace(record=sample.record._replace(reward=np.zeros_like(sample.record.reward))))
    update = learner.step(distribute(tf.distribute.get_strategy(), [[sample]])).priorities
    return update.priority.numpy() - 1e-6


def test_every_row_of_a_batch_has_a_weight_of_its_own():
    spread, alike = map(sums_of_bonuses, ("apex-spread-rnd", "apex-rnd"))
    weights = row_weights(len(alike), 1.0)
    assert (alike > 0).any()
    np.testing.assert_allclose(spread, alike * weights, rtol=1e-4, atol=1e-6)


def test_a_sequence_has_the_weight_of_the_environment_that_made_it():
    def with_weight(weight):
        def changed(sample):
            extras = sample.record.extras
            weights = np.full_like(extras.bonus_weight, weight)
            return sample._replace(record=sample.record._replace(extras=extras._replace(bonus_weight=weights)))

        return sums_of_bonuses("r2d2-icm", changed)

    nothing, half, whole = map(with_weight, (0.0, 0.25, 0.5))
    assert (nothing < 1e-6).all() and (whole > 0).any()
    # Rescaled values are not proportional to sums of bonuses.
    assert (whole[whole > 1e-6] > half[whole > 1e-6]).all() and (half > 0).any()


@pytest.mark.parametrize("name", ["apex-spread-rnd", "r2d2-icm"])
def test_networks_see_the_weight_of_their_environment_and_of_none_in_evaluation(name):
    agent, spec, _ = made(name)
    layout = layout_of(spec, envs_per_actor=4)
    networks = agent.make_networks(layout)
    observation = np.ones((4, *spec.observation.shape), spec.observation.dtype)
    timestep = Timestep(
        observation=observation,
        first=np.ones(4, bool),
        last=np.zeros(4, bool),
        reward=np.zeros(4, np.float32),
        discount=np.ones(4, np.float32),
    )
    seen = {}
    for mode in ("train", "evaluate"):
        policy = agent.make_policy(networks, mode)
        weights = policy.bonus_weight(tf.range(4))
        outputs, _ = policy._acting.step(timestep, policy.initial_state(4), weights)
        seen[mode] = np.asarray(outputs), weights.numpy()
    values, weights = seen["train"]
    assert (np.diff(weights) < 0).all() and weights[0] == agent.bonus.weight
    assert len(np.unique(values.round(6), axis=0)) == 4
    # Recorded episodes are played in a slot beyond those of actors.
    np.testing.assert_array_equal(
        agent.make_policy(networks, "train").bonus_weight(tf.constant([9, 1])), weights[[3, 1]]
    )
    evaluated, nothing = seen["evaluate"]
    assert (nothing == 0).all() and len(np.unique(evaluated.round(6), axis=0)) == 1
    np.testing.assert_allclose(evaluated[0], values[-1], rtol=1e-5)


def test_what_a_spread_needs():
    agent, spec, _ = made("apex-spread-rnd")
    with pytest.raises(CallboardError, match="^agent.bonus.spread gives each environment .* there is one: raise envs_"):
        agent.check(layout_of(spec, envs_per_actor=1))
    parts = spec._replace(observation={"bonus_weight": dm_specs.Array((), np.float32), "place": spec.observation})
    with pytest.raises(CallboardError, match="^the observation has a part 'bonus_weight' already, which agent.bonus"):
        from_values(R2D2, SPREAD).check(layout_of(parts, envs_per_actor=2))
    with pytest.raises(CallboardError, match="^with agent.bonus.spread each row of a batch has another weight: set ag"):
        dataclasses.replace(agent, batch_size=1).check(layout_of(spec, envs_per_actor=2))


@pytest.mark.parametrize("kind", [tuple, dict])
def test_an_observation_without_named_parts_is_the_part_observation(kind):
    agent, spec, _ = made("apex-spread-rnd")
    parts = [spec.observation, dm_specs.DiscreteArray(2)]
    layout = layout_of(spec._replace(observation=kind(parts) if kind is tuple else dict(enumerate(parts))), 2)
    named = from_values(type(agent), {**SPREAD, "network.torsos": {"observation/0": "mlp", "bonus_weight": "mlp"}})
    named.check(layout)
    assert named.make_networks(layout).online.takes_bonus_weight
    with pytest.raises(
        CallboardError, match="^unknown part of the observation '0'; torsos may be for bonus_weight, obs"
    ):
        from_values(type(agent), {**SPREAD, "network.torsos": {"0": "mlp"}}).check(layout)
