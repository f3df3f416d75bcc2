"""`estimate_value`: what a policy would gain, from recorded episodes alone."""

import os
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tree

from ...agents.fast_function import as_arrays
from ...agents.policies.acting import policy_seed
from ...data import Nest, Timestep
from ...environments.recorded import open_data
from ...environments.recorded.importance_sampling import ValueEstimate, importance_sampling
from ...environments.recorded.recorded_data import RecordedData
from ...errors import CallboardError, exits_refused
from ...launch.trained.saved_runs import read_saved_policy
from ...networks.action_policy import DiscretePolicy
from ...settings.setting_arguments import checked_names
from ...settings.setting_types import NonNegativeInt, UnitInterval, converted
from ...specs import EnvironmentSpec
from .fitted_q_evaluation import FittedQSettings, Transitions, fitted_q_evaluation

_ROWS_AT_ONCE = 4096
_ACTIONS = 4
"""Actions of the policy that are sampled at each observation."""


@exits_refused()
@checked_names
def estimate_value(
    policy: str | os.PathLike[str],
    dataset: str | os.PathLike[str],
    method: Literal["fqe", "wis", "is"] = "fqe",
    *,
    behavior: str | os.PathLike[str] | None = None,
    mode: Literal["greedy", "sampled"] | None = None,
    discount: float | None = None,
    settings: FittedQSettings | None = None,
    seed: int = 0,
    trust: bool = False,
) -> ValueEstimate:
    """Estimates the mean discounted return of a policy from recorded episodes, without its environment.

        estimate = estimate_value("runs/iql", "runs/ppo", discount=0.99)
        print(estimate.value, estimate.error)

    Args:
      policy: the run whose policy is evaluated, as `evaluate` takes it.
      dataset: the recorded episodes, as `dataset_info` takes them.
      method: `fqe` for fitted Q evaluation, for any policy without a memory; `wis` for weighted importance sampling and
        `is` for importance sampling, for policies with probabilities of one discrete action.
      behavior: for importance sampling, the run whose policy acted in the data set, by sampling; where it is not known,
        one of `bc` that has imitated the data set.
      mode: how the policy acts, as in `evaluate`; importance sampling evaluates its probabilities.
      discount: γ; None for that of the policy's agent, or 0.99 if it has none.
      settings: of fitted Q evaluation.
      seed: of sampled actions, batches and networks.
      trust: as in `evaluate`.

    Returns:
      The estimate.  Its error is that over episodes; neither the bias of critics nor actions that the data set does
      not hold are in it.

    Raises:
      CallboardError: there is no such run or data set, or they do not fit each other or the method.
    """
    seed = converted("seed", seed, NonNegativeInt)
    settings = converted("settings", FittedQSettings() if settings is None else settings, FittedQSettings)
    if method not in ("fqe", "wis", "is"):
        raise CallboardError(f"the method is fqe, wis or is, not {method!r}")
    if (behavior is None) != (method == "fqe"):
        needs = "takes no behavior: leave it out"
        if behavior is None:
            needs = "needs behavior, the run whose policy acted: where there is none, a run of bc on the same data set"
        raise CallboardError(f"method {method} {needs}")
    evaluated, spec, experiment = read_saved_policy(policy, mode if method == "fqe" else "sampled", trust=trust)
    own_discount = experiment.agent.reward_discount()
    gamma = (
        (0.99 if own_discount is None else float(own_discount))
        if discount is None
        else converted("discount", discount, UnitInterval)
    )
    data = open_data(dataset)
    data.require_fit(spec)
    if not data.total_episodes:
        raise CallboardError(f"the data set {data.name} holds no episode")
    if method == "fqe":
        if tree.flatten(evaluated.initial_state(1)):
            raise CallboardError(f"the policy of {policy} has a memory, which fitted Q evaluation does not follow")
        return _fitted(evaluated, data, spec, gamma, settings, seed)
    acted = read_saved_policy(behavior or "", "sampled", trust=trust).policy
    for one, name in ((evaluated, policy), (acted, behavior)):
        check_probabilities(one, str(name))
    rewards, ratios = [], []
    for episode in data.all_episodes():
        steps = tree.map_structure(lambda leaf: leaf[:-1], episode.observation)
        # Importance sampling knows of no discount but gamma.
        rewards.append(episode.reward * np.cumprod([1.0, *episode.discount[:-1]]))
        ratios.append(_log_prob(evaluated, steps, episode.action) - _log_prob(acted, steps, episode.action))
    return importance_sampling(rewards, ratios, gamma, weighted=method == "wis", seed=seed)


def _fitted(
    policy: Any, data: RecordedData, spec: EnvironmentSpec, discount: float, settings: FittedQSettings, seed: int
) -> ValueEstimate:
    rows, first = [], []
    for episode in data.all_episodes():
        before = tree.map_structure(lambda leaf: leaf[:-1], episode.observation)
        after = tree.map_structure(lambda leaf: leaf[1:], episode.observation)
        rows.append((before, episode.action, episode.reward, episode.discount, after))
        first.append(tree.map_structure(lambda leaf: leaf[:1], episode.observation))
    before, action, reward, kept, after = tree.map_structure(lambda *leaves: np.concatenate(leaves), *rows)
    begun = tree.map_structure(lambda *leaves: np.concatenate(leaves), *first)
    transitions = Transitions(before, action, reward, kept, after, _actions(policy, after, seed))
    return fitted_q_evaluation(spec, transitions, begun, _actions(policy, begun, seed + 1), discount, settings, seed)


def _actions(policy: Any, observation: Nest, seed: int) -> Nest:
    """Returns several actions of a policy at each of N observations, arrays `[N, K, ...]`."""

    def act(rows: Nest, number: int) -> Nest:
        timestep = _timestep(rows)
        count = len(timestep.first)
        key = np.array([policy_seed(seed, number), 0], np.int32)
        return as_arrays(policy(timestep, policy.initial_state(count), np.arange(count, dtype=np.int32), key)[0])

    each = [
        _in_parts(observation, lambda rows, index, number=number: act(rows, _ACTIONS * index + number))
        for number in range(_ACTIONS)
    ]
    return tree.map_structure(lambda *leaves: np.stack(leaves, axis=1), *each)


def _log_prob(policy: Any, observation: Nest, action: Nest) -> np.ndarray:
    """Returns the log-probabilities `[T]` of actions."""
    return action_log_prob(policy, _timestep(observation), tf.constant(action)).numpy().astype(np.float64)


def _in_parts(observation: Nest, act: Any) -> Nest:
    size = len(tree.flatten(observation)[0])
    parts = [
        act(tree.map_structure(lambda leaf, begin=begin: leaf[begin : begin + _ROWS_AT_ONCE], observation), index)
        for index, begin in enumerate(range(0, size, _ROWS_AT_ONCE))
    ]
    return tree.map_structure(lambda *leaves: np.concatenate(leaves), *parts)


def _timestep(observation: Nest) -> Timestep:
    count = len(tree.flatten(observation)[0])
    ones = np.ones(count, np.float32)
    return Timestep(
        tree.map_structure(tf.constant, observation), tf.zeros((count,)), tf.constant(ones), ones > 0, ones < 0
    )


def check_probabilities(policy: Any, name: str) -> None:
    """Refuses a policy whose probabilities cannot be computed.

    Args:
      policy: an `agent.Policy`.
      name: what the user calls it.

    Raises:
      CallboardError: it is not over one discrete action, has a memory, or learns action values instead.
    """
    if not isinstance(getattr(policy, "actions", None), DiscretePolicy) or not hasattr(policy, "acting"):
        raise CallboardError(
            "importance sampling needs probabilities of one discrete action, as those of ppo, impala, a2c, bc, awr and "
            f"iql, and the policy of {name} has none: use fitted Q evaluation"
        )
    if tree.flatten(policy.acting.initial_state(1)):
        raise CallboardError(f"the policy of {name} has a memory, which importance sampling does not follow")


def action_log_prob(policy: Any, timestep: Timestep, action: Nest) -> tf.Tensor:
    """Returns the log-probabilities `[B]` of actions `[B]`; `check_probabilities` has accepted the policy."""
    outputs, _ = policy.acting.step(timestep, policy.acting.initial_state(1))
    return policy.actions.evaluate(outputs, timestep.observation, action).log_prob
