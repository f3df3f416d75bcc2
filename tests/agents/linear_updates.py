"""Updates of agents with an actor and critics, in float64 and so small that loops over numbers give the same."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from small_worlds import weights_of

from callboard.data import Layout, Record, Sample

ADAM_FIRST_STEP = np.sqrt(1 - 0.999)


def adam_that_shows_lengths(**rates: float) -> dict[str, Any]:
    """Settings of single updates of Adam with a large epsilon, which show how long a gradient was, by parts."""
    learning = {f"{part}_optimizer.learning_rate": rate for part, rate in rates.items()}
    return {
        **learning,
        **{f"{part}_optimizer.epsilon": 1.0 for part in rates},
        "updates_per_call": 1,
        "network.hidden_sizes": (),
        "network.normalize_observations": False,
    }


def random_windows(seed: int, batch: int, steps: int, action: Callable[[Any, tuple[int, ...]], Any]) -> Sample:
    """Windows of observations `[3]`.  In half of them some terminate, reach a time limit or lost an observation.

    Args:
      seed: of the numbers.
      batch: number of windows.
      steps: transitions in each.
      action: called with a generator and a shape, for the actions.
    """
    rng = np.random.default_rng(seed)
    half = np.arange(batch) < batch // 2
    last = half & (rng.random((steps + 1, batch)) < 0.3)
    terminated = half & ~last[:-1] & (rng.random((steps, batch)) < 0.3)
    cut_off = half & (rng.random((steps, batch)) < 0.3)
    return Sample(
        record=Record(
            observation=rng.normal(size=(steps + 1, batch, 3)).astype(np.float32),
            first=np.concatenate([np.zeros((1, batch), bool), terminated | cut_off | last[:-1]]),
            last=last,
            action=action(rng, (steps, batch)),
            reward=rng.normal(size=(steps, batch)).astype(np.float32),
            discount=np.where(terminated, 0.0, 1.0).astype(np.float32),
            extras=(),
            version=rng.integers(50, size=(steps, batch, 2)).astype(np.int32),
        ),
        state=(),
    )


def is_valid(record: Record, t: int, b: int) -> bool:
    """Whether a transition is learned from."""
    lost = record.first[t + 1, b] and record.discount[t, b] != 0
    return not (record.last[t, b] or lost)


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    tf.keras.backend.set_floatx("float64")
    try:
        yield
    finally:
        tf.keras.backend.set_floatx("float32")


def weights_after_updates(
    agent: Any,
    layout: Layout,
    samples: Sequence[Sample],
    parts: Callable[[Any], Mapping[str, Any]],
    begin: Callable[[Any], None] = lambda networks: None,
) -> list[dict[str, np.ndarray]]:
    """The weights of an agent's networks before and after each update with one of these samples, in float64.

    Args:
      agent: the agent.
      layout: its layout.
      samples: a batch each.
      parts: takes the networks and returns modules by name.
      begin: takes the networks, and may change what they begin with.
    """

    def weights() -> dict[str, np.ndarray]:
        return {name: weights_of(part) for name, part in parts(networks).items()}

    with in_float64():
        networks = agent.make_networks(layout)
        learner = agent.make_learner(networks, tf.distribute.get_strategy(), layout)
        begin(networks)
        assert not networks.learning.numpy()
        all_weights = [weights()]
        for sample in samples:
            learner.step(iter([sample]))
            all_weights.append(weights())
        assert networks.learning.numpy()
        return all_weights


def actor_and_targets(networks: Any) -> dict[str, tf.Module]:
    """The parts of networks with a target of the policy, too, for `weights_after_updates`."""
    learned = networks.actor_critic
    return {
        "critic": learned.critic,
        "actor": learned.policy,
        "target critic": learned.target_critic,
        "target actor": learned.target_policy,
    }


def assert_targets_begin_as_given(agent: Any, layout: Layout) -> None:
    """Asserts that a learner copies weights that were assigned after the networks were made to the targets."""
    networks = agent.make_networks(layout)
    learned = networks.actor_critic
    for variable in (*learned.policy.variables, *learned.critic.variables):
        variable.assign(tf.ones_like(variable))
    agent.make_learner(networks, tf.distribute.get_strategy(), layout)
    assert (weights_of(learned.target_critic) == 1).all() and (weights_of(learned.target_policy) == 1).all()


def spread(networks: Any) -> None:
    """Assigns weights that are not alike anywhere, so that it shows where each of the targets is used."""
    rng = np.random.default_rng(5)
    for variable in networks.actor_critic.variables:
        variable.assign(0.5 * rng.normal(size=variable.shape))


def assert_first_step_of_adam(before: np.ndarray, after: np.ndarray, loss: Callable[[Any], float], rate: float) -> None:
    """Asserts that weights moved by Adam's first step down a loss, of which the gradient is computed numerically.

    With an epsilon of 1 that is added before the bias is corrected (Kingma and Ba 2015, the end of section 2).
    """
    offsets = 1e-6 * np.eye(len(before))
    gradient = np.array([(loss(before + offset) - loss(before - offset)) / 2e-6 for offset in offsets])
    step = -rate * ADAM_FIRST_STEP * gradient / (ADAM_FIRST_STEP * np.abs(gradient) + 1.0)
    assert np.linalg.norm(step) > 1e-5
    np.testing.assert_allclose(after - before, step, rtol=1e-5, atol=1e-9)
