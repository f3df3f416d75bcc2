"""SAC: what it refuses, how it acts, and its update against a loop over numbers."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tree
from dm_env import specs as dm_specs
from small_worlds import layout_of

from callboard.agents.acting import CompiledPolicy, trace_layout
from callboard.agents.sac import Sac, SacNetworks
from callboard.data import Record, Sample, Timestep
from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.run import run
from callboard.nested_settings import from_values
from callboard.networks import stateless_random as noise
from callboard.specs import EnvironmentSpec


def spec_of(shape=(2,), low: Any = -1.0, high: Any = 1.0, dtype: Any = np.float32) -> EnvironmentSpec:
    return EnvironmentSpec(dm_specs.Array((3,), np.float32), dm_specs.BoundedArray(shape, dtype, low, high))


# What is refused.


@pytest.mark.parametrize(
    "action, message",
    [
        (dm_specs.DiscreteArray(3), "sac has a Gaussian policy .* the environment's action is 3 discrete actions"),
        (dm_specs.BoundedArray((2,), np.int32, 0, 4), r"needs one action of floats .* action is int32\(2,\)"),
        (dm_specs.Array((2,), np.float32), r"needs one action of floats with bounds"),
        ((dm_specs.BoundedArray((1,), np.float32, 0, 1),) * 2, r"needs one action .* float32\(1,\), float32\(1,\)"),
        (dm_specs.BoundedArray((2,), np.float32, -np.inf, np.inf), r"needs finite ones.* float32\(2,\), has bounds"),
        (dm_specs.BoundedArray((2,), np.float32, -1.0, [1.0, np.inf]), "has bounds that are infinite"),
    ],
)
def test_actions_that_it_cannot_take_are_refused_in_one_line(action, message):
    with pytest.raises(CallboardError, match=message) as caught:
        Sac().check(layout_of(spec_of()._replace(action=action)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"hold": 0}, "agent.hold must be a whole number of at least 1, not 0"),
        ({"network.hidden_sizes": (0,)}, "agent.network.hidden_sizes must be a list of whole numbers of at least 1"),
        ({"discount": 1.5}, "agent.discount must be a number from 0 to 1"),
        ({"target_update_rate": 0.0}, "agent.target_update_rate must be a number above 0"),
        ({"temperature": 0.0}, "agent.temperature must be a number above 0"),
        (
            {"critic_optimizer.learning_rate": float("nan")},
            "critic_optimizer.learning_rate must be a number above 0",
        ),
        ({"target_entropy": float("inf")}, "agent.target_entropy must be a number that is finite or null, not inf"),
        ({"replay.size": 100, "replay.min_size": 100}, "smaller than a batch of 256"),
        ({"replay.error_buffer": 10.0}, "an agent.replay.error_buffer of 10 cannot keep 256 samples per insert"),
        ({"replay.min_size": 100_000}, "learning would never begin"),
        ({"network.torso": "resnet8"}, "set agent.network.torso to impala or nature, not resnet8"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings, message):
    with pytest.raises(CallboardError, match=message):
        from_values(Sac, settings).check(layout_of(spec_of()))


def test_a_torso_of_the_users_own_may_have_any_name():
    from_values(Sac, {"network.torso": "callboard.networks.torsos:NatureTorso"}).check(layout_of(spec_of()))


def test_actions_with_bounds_of_any_kind_are_fine():
    for spec in (spec_of(), spec_of((), -3.0, -2.0, np.float64), spec_of((2, 3), [0.0, -1.0, -2.0], 5.0)):
        Sac().check(layout_of(spec))


# How it acts.

SMALL = from_values(
    Sac,
    {
        "network.hidden_sizes": (8,),
        "batch_size": 4,
        "replay.min_size": 10,
        "replay.size": 100,
        "replay.samples_per_insert": 4.0,
    },
)


def timestep_of(batch: int, first: Any = False, observation: Any = None) -> Timestep:
    return Timestep(
        observation=np.zeros((batch, 3), np.float32) if observation is None else observation,
        reward=np.zeros(batch, np.float32),
        discount=np.ones(batch, np.float32),
        first=np.broadcast_to(first, batch),
        last=np.zeros(batch, bool),
    )


def acting(
    agent: Sac, spec: EnvironmentSpec, learning: bool, batch: int = 2, mode: Any = "train"
) -> tuple[SacNetworks, CompiledPolicy]:
    networks = agent.make_networks(layout_of(spec))
    networks.learning.assign(learning)
    policy = agent.make_policy(networks, mode)
    return networks, CompiledPolicy(policy, layout_of(spec), np.arange(batch), seed=1)


def mean_bias(networks: SacNetworks) -> tf.Variable:
    """The bias of the policy's last layer: D means, then D logarithms of standard deviations."""
    return networks.actor_critic.policy.trainable_variables[-1]


@pytest.mark.parametrize("mode", ["train", "evaluate"])
@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        spec_of((), -0.1, 0.3),
        spec_of((1,), 2.0, 7.0, np.float64),
        spec_of((2, 3), [[0.1, -1.0, -2.0], [0.7, 3.0, 0.0]], [[0.3, 1.0, 5.0], [0.7, 1e30, 1e-30]]),
        spec_of((2,), -np.finfo(np.float32).max, np.finfo(np.float32).max),
    ],
    ids=["scalar", "double", "matrix", "huge"],
)
def test_actions_are_of_the_environments_kind_and_within_its_bounds(spec, learning, mode):
    networks, policy = acting(SMALL, spec, learning, batch=50, mode=mode)
    size = networks.actor_critic.bounds.size
    for mean in (-100.0, 0.0, 100.0):
        mean_bias(networks).assign([mean] * size + [2.0] * size)
        action, extras = policy(timestep_of(50))
        assert extras == ()
        assert action.dtype == spec.action.dtype and action.shape == (50, *spec.action.shape)
        for one in action:
            spec.action.validate(one)


def test_actions_are_even_until_learning_begins_and_the_policys_then():
    spec = spec_of((2,), [-1.0, 10.0], [1.0, 20.0])
    networks, policy = acting(SMALL, spec, learning=False, batch=2000)
    mean_bias(networks).assign([1.0, -1.0, -10.0, -10.0])
    unit = (policy(timestep_of(2000))[0] - [0.0, 15.0]) / [1.0, 5.0]
    np.testing.assert_allclose(np.quantile(unit, [0.1, 0.5, 0.9], axis=0).T, [[-0.8, 0.0, 0.8]] * 2, atol=0.08)
    assert abs(np.corrcoef(unit.T)[0, 1]) < 0.1
    networks.learning.assign(True)
    unit = (policy(timestep_of(2000))[0] - [0.0, 15.0]) / [1.0, 5.0]
    np.testing.assert_allclose(unit, np.tile(np.tanh([1.0, -1.0]), (2000, 1)), atol=1e-3)
    assert unit.std() > 0


def test_an_evaluation_is_never_by_chance():
    networks, policy = acting(SMALL, spec_of(), learning=False, mode="evaluate")
    mean_bias(networks).assign([1.0, -1.0, 2.0, 2.0])
    np.testing.assert_allclose(policy(timestep_of(2))[0], np.tile(np.tanh([1.0, -1.0]), (2, 1)), rtol=1e-5)


def test_actors_fetch_the_policy_and_whether_it_learns_but_no_critics():
    networks, policy = acting(SMALL, spec_of(), learning=False)
    fetched = {id(variable) for variable in policy.policy.variables}
    assert fetched == {id(variable) for variable in (*networks.actor_critic.policy.variables, networks.learning)}


@pytest.mark.parametrize("learning", [False, True])
def test_exploratory_actions_are_held_until_an_episode_begins(learning):
    agent = from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3})
    _, policy = acting(agent, spec_of(), learning)
    begins = np.zeros((11, 2), bool)
    begins[0] = True
    begins[5, 1] = begins[6, 1] = True
    rng = np.random.default_rng(0)
    actions = [policy(timestep_of(2, first, rng.normal(size=(2, 3)).astype(np.float32)))[0] for first in begins]
    same = [(a == b).all(axis=-1) for a, b in itertools.pairwise(actions)]
    assert [t for t in range(1, 11) if not same[t - 1][0]] == [3, 6, 9]
    assert [t for t in range(1, 11) if not same[t - 1][1]] == [3, 5, 6, 9]


def test_nothing_is_held_by_default_nor_in_an_evaluation():
    for agent, mode in (
        (from_values(Sac, {"network.hidden_sizes": (8,)}), "train"),
        (from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3}), "evaluate"),
    ):
        _, policy = acting(agent, spec_of(), learning=True, mode=mode)
        assert policy.state == ()
        rng = np.random.default_rng(0)
        actions = [policy(timestep_of(2, False, rng.normal(size=(2, 3)).astype(np.float32)))[0] for _ in range(3)]
        assert not np.array_equal(actions[0], actions[1]) and not np.array_equal(actions[1], actions[2])


def test_an_environment_explores_in_the_same_way_whatever_batch_it_is_in():
    agent = from_values(Sac, {"network.hidden_sizes": (8,)})
    for learning in (False, True):
        policy = agent.make_policy(acting(agent, spec_of(), learning)[0], "train")
        whole, _, _ = policy(timestep_of(4), (), tf.range(4), tf.constant([1, 2]))
        part, _, _ = policy(timestep_of(2), (), tf.constant([3, 1]), tf.constant([1, 2]))
        np.testing.assert_allclose(part, tf.gather(whole, [3, 1]), rtol=1e-5)


def test_a_policy_that_holds_has_a_state_of_actions_that_replay_does_not_keep():
    agent = from_values(Sac, {"network.hidden_sizes": (8,), "hold": 3})
    layout = layout_of(spec_of((2, 2), 0.0, 3.0, np.float64))
    layout = trace_layout(agent, layout, agent.make_networks(layout))
    assert layout.record.action == tf.TensorSpec((2, 2), tf.float64) and layout.record.extras == ()
    assert [leaf.shape for leaf in tree.flatten(layout.state)] == [(4,), ()]
    (table,) = agent.make_replay(layout).tables()
    assert tree.flatten(table.info.signature.state) == []


# The update.

REPLICAS = 2


def random_sample(seed: int, spec: EnvironmentSpec, batch: int) -> Sample:
    """Transitions of which some terminate, and some do not count; the second half of them all do."""
    rng = np.random.default_rng(seed)
    half = np.arange(batch) < batch // 2
    ignored = half & (rng.random(batch) < 0.4)
    cut_off = half & (rng.random(batch) < 0.4)
    terminated = ~ignored & (rng.random(batch) < 0.3)
    return Sample(
        record=Record(
            observation=rng.normal(size=(2, batch, 3)).astype(np.float32),
            first=np.stack([np.zeros(batch, bool), cut_off | terminated]),
            last=np.stack([ignored, rng.random(batch) < 0.2]),
            action=rng.uniform(spec.action.minimum, spec.action.maximum, (1, batch, *spec.action.shape)),
            reward=rng.normal(size=(1, batch)).astype(np.float32),
            discount=np.where(terminated, 0.0, 1.0).astype(np.float32)[np.newaxis],
            extras=(),
            version=rng.integers(50, size=(1, batch, 2)).astype(np.int32),
        ),
        state=(),
    )


def weights_of(networks: SacNetworks) -> dict[str, np.ndarray]:
    parts = {
        "critic": networks.actor_critic.critic.variables,
        "actor": networks.actor_critic.policy.variables,
        "temperature": [networks.actor_critic.log_alpha],
        "target": networks.actor_critic.target_critic.variables,
    }
    return {
        name: np.concatenate([variable.numpy().ravel() for variable in variables]) for name, variables in parts.items()
    }


# Adam with a large epsilon: its update shows how long a gradient was.
LINEAR = from_values(
    Sac,
    {
        "batch_size": 6,
        "network.hidden_sizes": (),
        "actor_optimizer.learning_rate": 0.1,
        "critic_optimizer.learning_rate": 0.2,
        "temperature_optimizer.learning_rate": 0.3,
        "actor_optimizer.epsilon": 1.0,
        "critic_optimizer.epsilon": 1.0,
        "temperature_optimizer.epsilon": 1.0,
        "target_update_rate": 0.3,
        "discount": 0.9,
        "temperature": 0.7,
        "target_entropy": 0.4,
    },
)
LINEAR_SPEC = spec_of((1,), 2.0, 6.0)


@pytest.fixture(scope="module")
def update():
    """Weights before and after one update of linear networks, in float64."""
    tf.keras.backend.set_floatx("float64")
    try:
        layout, strategy = layout_of(LINEAR_SPEC), tf.distribute.get_strategy()
        networks = LINEAR.make_networks(layout)
        learner = LINEAR.make_learner(networks, strategy, layout)
        assert not networks.learning.numpy()
        before = weights_of(networks)
        learner.step(iter([random_sample(0, LINEAR_SPEC, LINEAR.batch_size)]))
        assert networks.learning.numpy()
        return before, weights_of(networks)
    finally:
        tf.keras.backend.set_floatx("float32")


def linear_losses(part: str, weights: np.ndarray, before: dict[str, np.ndarray], sample: Sample) -> float:
    """The loss of one part of linear networks as a function of its weights, transition by transition."""
    now = before | {part: weights}
    record, size = sample.record, LINEAR.batch_size
    normal = noise.standard_normal(np.array([1, 0]), np.arange(size), (2, 1), tf.float64).numpy()
    alpha = np.exp(now["temperature"][0])

    def q(critics: np.ndarray, x: np.ndarray, unit: float) -> list[float]:
        # Each critic: a weight for every component of the observation, one for the action, and a bias.
        return [float(x @ w[:3] + unit * w[3] + w[4]) for w in np.split(critics, 2)]

    def draw(x: np.ndarray, z: float) -> tuple[float, float]:
        kernel, bias = now["actor"][:6].reshape(3, 2), now["actor"][6:]
        mean, log_std = x @ kernel + bias
        unit = np.tanh(mean + np.exp(log_std) * z)
        log_density = -(z**2) / 2 - log_std - np.log(2 * np.pi) / 2
        return unit, log_density - np.log(1 - unit**2)

    total = 0.0
    for b in range(size):
        lost = record.first[1, b] and record.discount[0, b] != 0
        if record.last[0, b] or lost:
            continue
        x, x_next = record.observation[:, b].astype(np.float64)
        unit, log_prob = draw(x, normal[b, 0, 0])
        if part == "critic":
            unit_next, log_prob_next = draw(x_next, normal[b, 1, 0])
            soft_value = min(q(now["target"], x_next, unit_next)) - alpha * log_prob_next
            target = record.reward[0, b] + LINEAR.discount * record.discount[0, b] * soft_value
            taken = (record.action[0, b, 0] - 4.0) / 2.0
            total += sum((value - target) ** 2 / 2 for value in q(now["critic"], x, taken))
        elif part == "actor":
            total += alpha * log_prob - min(q(now["critic"], x, unit))
        else:
            assert LINEAR.target_entropy is not None
            total += -alpha * (log_prob + LINEAR.target_entropy)
    return total / size


def numerical_gradient(function: Any, at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    offsets = step * np.eye(len(at))
    return np.array([(function(at + offset) - function(at - offset)) / (2 * step) for offset in offsets])


@pytest.mark.parametrize(
    "part, rate",
    [
        ("critic", LINEAR.critic_optimizer.learning_rate),
        ("actor", LINEAR.actor_optimizer.learning_rate),
        ("temperature", LINEAR.temperature_optimizer.learning_rate),
    ],
)
def test_an_update_of_linear_networks_is_that_of_the_paper(update, part, rate):
    before, after = update
    sample = random_sample(0, LINEAR_SPEC, LINEAR.batch_size)
    gradient = numerical_gradient(lambda weights: linear_losses(part, weights, before, sample), before[part])
    # Adam's first step (Kingma and Ba 2015), with epsilon before the bias is corrected, as at section 2's end.
    shrink = np.sqrt(1 - 0.999)
    step = -rate * shrink * gradient / (shrink * np.abs(gradient) + LINEAR.actor_optimizer.epsilon)
    assert np.linalg.norm(step) > 1e-4
    np.testing.assert_allclose(np.subtract(after[part], before[part]), step, rtol=1e-5, atol=1e-10)


def test_target_critics_move_part_of_the_way_to_the_new_critics(update):
    before, after = update
    np.testing.assert_array_equal(before["target"], before["critic"])
    np.testing.assert_allclose(after["target"], 0.7 * before["target"] + 0.3 * after["critic"], rtol=1e-9)


# A run.


@pytest.mark.slow
def test_a_short_run_learns_and_ends_well(tmp_path):
    experiment = Experiment(
        agent=from_values(
            Sac,
            {
                "network.hidden_sizes": (8,),
                "batch_size": 8,
                "replay.samples_per_insert": 8.0,
                "replay.min_size": 20,
                "hold": 2,
            },
        ),
        env="Pendulum-v1",
        actors=1,
        envs_per_actor=2,
        evaluator=False,
        max_steps=60,
        run_dir=tmp_path / "run",
    )
    assert run(experiment, launcher="inline").exit_code == 0
