"""APPO: its loss against a loop over numbers."""

import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs as dm_specs
from impala_samples import log_softmax, random_sample
from small_worlds import ACTIONS, SPEC, FixedNetwork, layout_of

from callboard.agents.appo import Appo
from callboard.agents.learning.gradient_step import divided
from callboard.data import Record
from callboard.errors import CallboardError
from callboard.networks.heads import PolicyValue


def loss_by_loops(agent: Appo, logits, value, record: Record) -> dict[str, float]:
    """PPO's equation (7) with the advantages of IMPALA's section 4.2, not weighted, transition by transition."""
    valid = 0
    parts = dict.fromkeys(("policy_loss", "baseline_loss", "entropy", "clip_fraction", "approximate_kl"), 0.0)
    for b in range(agent.batch_size):
        vs_next, ends = value[-1, b], True
        for t in reversed(range(agent.unroll_length)):
            lost = record.first[t + 1, b] and record.discount[t, b] != 0
            if record.last[t, b] or lost:
                vs_next, ends = value[t, b], True
                continue
            valid += 1
            log_pi, log_mu = log_softmax(logits[t, b]), log_softmax(record.extras.logits[t, b])
            log_ratio = log_pi[record.action[t, b]] - log_mu[record.action[t, b]]
            ratio = np.exp(log_ratio)
            discount = agent.discount * record.discount[t, b]
            delta = min(agent.clip_rho, ratio) * (record.reward[t, b] + discount * value[t + 1, b] - value[t, b])
            c = agent.lambda_ * min(agent.clip_c, ratio)
            vs = value[t, b] + delta + (0.0 if ends else discount * c * (vs_next - value[t + 1, b]))
            advantage = record.reward[t, b] + discount * vs_next - value[t, b]
            within = max(1 - agent.clip, min(1 + agent.clip, ratio))
            parts["policy_loss"] -= min(ratio * advantage, within * advantage)
            parts["baseline_loss"] += (vs - value[t, b]) ** 2 / 2
            parts["entropy"] -= (np.exp(log_pi) * log_pi).sum()
            parts["clip_fraction"] += abs(ratio - 1) > agent.clip
            parts["approximate_kl"] += ratio - 1 - log_ratio
            vs_next, ends = vs, False
    loss = parts["policy_loss"] + agent.baseline_cost * parts["baseline_loss"] - agent.entropy_cost * parts["entropy"]
    return {"loss": loss, **{name: part / valid for name, part in parts.items()}}


@pytest.mark.parametrize(
    "agent",
    [
        Appo(unroll_length=7, batch_size=5),
        Appo(unroll_length=9, batch_size=4, clip=0.6, discount=0.8, lambda_=0.9, clip_rho=1.4, clip_c=0.6),
    ],
    ids=["defaults", "other"],
)
def test_the_loss_is_the_clipped_one_with_v_trace_advantages_in_float64(agent):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sample = random_sample(rng, agent)
        logits = rng.normal(size=(agent.unroll_length + 1, agent.batch_size, ACTIONS))
        value = rng.normal(size=(agent.unroll_length + 1, agent.batch_size))
        network = FixedNetwork(PolicyValue(tf.constant(logits), tf.constant(value)))
        loss, metrics, _ = agent.loss(network, sample)
        expected = loss_by_loops(agent, logits, value, sample.record)
        assert 0.1 < expected["clip_fraction"] < 1
        for name, part in expected.items():
            np.testing.assert_allclose(
                {**divided(metrics), "loss": loss}[name], part, rtol=1e-6, atol=1e-9, err_msg=name
            )


def test_an_action_is_refused_by_its_own_name():
    action = dm_specs.BoundedArray((2,), np.int32, 0, 3)
    with pytest.raises(CallboardError, match=r"^appo needs actions that are discrete or floats .* is int32\(2,\)"):
        Appo().check(layout_of(SPEC._replace(action=action), envs_per_actor=16))
