"""Warnings about learning that goes wrong, from the rows of metrics: what a default cannot know."""

import collections
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import tree
from dm_env import specs as dm_specs

from ....agents.settings.shared_settings import LARGEST_REWARD
from ....agents.watched import Gradient, Quantity, Returns, Watch, Watched
from ....settings.nested_settings import values_of
from ....specs import MultiDiscreteArray
from ...experiments.checked_run import Run
from ...node_names import metric_of

_ROWS = 20
"""Rows with new learner steps over which something must last, about as many seconds or thousands of steps."""
_LONG_GRADIENT = 100.0
_SMALL_ENTROPY = 0.01
_HIGH_TEMPERATURE = 10.0
_LARGE_VALUE = 10.0
_LONG_LAG = 10.0
_EVALUATIONS = 2
_SMALL_GAIN = 0.1

Row = Mapping[str, float]


class LearningWarnings:
    """Finds in the rows of a run's metrics that learning goes wrong; says each once.

    Args:
      run: the run.
    """

    def __init__(self, run: Run):
        self._checks = [check for one in run.policy_runs for check in _checks_of(one)]
        self._step = -1.0

    def new(self, row: Row) -> list[str]:
        """Returns the warnings that a row gives and no earlier one did, one line each."""
        steps = row.get("learner_steps", 0)
        if steps == self._step and "evaluator/return" not in row:
            return []
        self._step = steps
        lines = [(check, check(row)) for check in self._checks]
        self._checks = [check for check, line in lines if not line]
        return [line for _, line in lines if line]


class _Above:
    """Says a line once a metric has been too large in all of the last rows that have it.

    Args:
      metric: name of the metric.
      largest: the largest value that is not too large.
      line: returns the line for the newest value.
    """

    def __init__(self, metric: str, largest: float, line: Callable[[float], str]):
        self._metric = metric
        self._largest = largest
        self._line = line
        self._above = 0

    def __call__(self, row: Row) -> str:
        value = row.get(self._metric, math.nan)
        if math.isfinite(value):
            self._above = self._above + 1 if value > self._largest else 0
        return self._line(value) if self._above >= _ROWS and math.isfinite(value) else ""


class _Temperature:
    """Whether the temperature is far above its initial value, and still grows."""

    def __init__(self, names: Callable[[str], str], initial: float):
        self._metric = names("learner/temperature")
        self._initial = initial
        self._last: collections.deque[float] = collections.deque(maxlen=_ROWS)

    def __call__(self, row: Row) -> str:
        now = row.get(self._metric, math.nan)
        if not math.isfinite(now):
            return ""
        self._last.append(now)
        grows = now > max(_HIGH_TEMPERATURE * max(1.0, self._initial), 1.5 * self._last[0])
        if len(self._last) < _ROWS or not grows:
            return ""
        return (
            f"{self._metric} grows without end ({now:.3g}, at first {self._initial:g}): the policy does not reach the "
            f"target of its entropy; try a lower agent.target_entropy"
        )


class _Entropy:
    """Whether the entropy has collapsed while the return is no better than at first."""

    def __init__(self, names: Callable[[str], str], largest: float):
        self._names = names
        self._largest = largest
        self._first: list[float] = []
        self._low = 0

    def __call__(self, row: Row) -> str:
        entropy, found = row.get(self._names("learner/entropy")), row.get(self._names("actor/episode_return"))
        if entropy is None or found is None:
            return ""
        self._first = [*self._first, found][:3]
        self._low = self._low + 1 if entropy < _SMALL_ENTROPY * self._largest else 0
        first = sum(self._first) / len(self._first)
        if self._low < _ROWS or found > first + 0.1 * max(1.0, abs(first)):
            return ""
        return (
            f"{self._names('learner/entropy')} is {entropy:.2g} of at most {self._largest:.2g}, and the return is no "
            f"better than at first: the policy no longer explores; try a larger agent.entropy_cost"
        )


class _Fallen:
    """Whether more than half of what had been gained is lost again, each as a median of rows."""

    def __init__(self, names: Callable[[str], str], optimizer: str):
        self._names = names
        self._optimizer = optimizer
        self._last: collections.deque[float] = collections.deque(maxlen=_ROWS)
        self._lowest = math.inf
        self._before = math.inf
        self._best = -math.inf

    def __call__(self, row: Row) -> str:
        found = row.get(self._names("actor/episode_return"))
        if found is None:
            return ""
        self._last.append(found)
        if len(self._last) < _ROWS:
            return ""
        now = statistics.median(self._last)
        self._lowest = min(self._lowest, now)
        if now > self._best:
            self._best, self._before = now, self._lowest
        gained = self._best - self._before
        if gained < max(_SMALL_GAIN, 0.5 * abs(self._before)) or self._best - now < 0.5 * gained:
            return ""
        return (
            f"{self._names('actor/episode_return')} has fallen from {self._best:.3g} to {now:.3g}, and was "
            f"{self._before:.3g} before: learning is unstable; try a lower agent.{self._optimizer}.learning_rate"
        )


class _Value:
    """Whether values are far beyond what the returns of episodes and the discount allow."""

    def __init__(self, names: Callable[[str], str], settings: Mapping[str, Any]):
        self._names = names
        self._settings = settings
        self._longest = 1.0 / max(1e-6, 1.0 - settings["discount"])
        # Normalized rewards are clipped.
        clipped = settings["reward_scale"] * LARGEST_REWARD * self._longest
        self._allowed = clipped if settings["normalize_rewards"] else 1.0
        self._beyond = 0

    def __call__(self, row: Row) -> str:
        names = self._names
        value = row.get(names("learner/value"))
        found, length = row.get(names("actor/episode_return")), row.get(names("actor/episode_length"))
        if value is None or found is None or not length:
            return ""
        if not self._settings["normalize_rewards"]:
            # After a time limit rewards continue, for 1 / (1 - discount) steps or so.
            longer = max(1.0, self._longest / length)
            self._allowed = max(self._allowed, self._settings["reward_scale"] * abs(found) * longer)
        entropy = row.get(names("learner/temperature"), 0.0) * abs(row.get(names("learner/entropy"), 0.0))
        allowed = self._allowed + entropy * self._longest
        self._beyond = self._beyond + 1 if abs(value) > _LARGE_VALUE * allowed else 0
        if self._beyond < _ROWS:
            return ""
        remedy = "lower learning rates, or a smaller agent.reward_scale"
        if not self._settings.get("network.normalize_observations", True):
            remedy = "agent.network.normalize_observations true"
        return (
            f"{names('learner/value')} is {value:.3g}, and the returns of episodes and the discount allow about "
            f"{allowed:.3g}: the values diverge; try {remedy}"
        )


class _Greedy:
    """Whether evaluations with the most likely actions lose most of what training has gained."""

    def __init__(self, names: Callable[[str], str]):
        self._names = names
        self._first: float | None = None
        self._below = 0

    def __call__(self, row: Row) -> str:
        found, greedy = row.get(self._names("actor/episode_return")), row.get(self._names("evaluator/return"))
        if found is None:
            return ""
        if self._first is None:
            self._first = found
        if greedy is None:
            return ""
        gained, lost = found - self._first, found - greedy
        spread = row.get(self._names("evaluator/return_std"), 0.0)
        far = gained > 0 and lost > 0.5 * gained and lost > spread
        self._below = self._below + 1 if far else 0
        if self._below < _EVALUATIONS:
            return ""
        return (
            f"evaluations take the most likely actions and have a return of {greedy:.3g}, training samples them and "
            f"has {found:.3g}: try evaluation_mode sampled, or train for longer"
        )


class _Lost:
    """Whether the final evaluation, or two in a row, have lost more than half of what the best one had gained."""

    def __init__(self, names: Callable[[str], str]):
        self._names = names
        self._first = math.inf
        self._below = 0

    def __call__(self, row: Row) -> str:
        names = self._names
        found = row.get(names("evaluator/return"), math.nan)
        # The first policy is that of the first evaluation or, if that comes late, of the first training episodes.
        if math.isinf(self._first):
            self._first = row.get(names("actor/episode_return"), found if math.isfinite(found) else math.inf)
        if not math.isfinite(found):
            return ""
        self._first = min(self._first, found)
        best = row.get(names("evaluator/best_return"), found)
        lost = best - found
        far = lost > max(_SMALL_GAIN, 0.5 * (best - self._first), row.get(names("evaluator/return_std"), 0.0))
        self._below = self._below + 1 if far else 0
        if self._below < (1 if "evaluator/final" in row else _EVALUATIONS):
            return ""
        return (
            f"{names('evaluator/return')} is {found:.3g}, and was {best:.3g} at best: the policy has lost what it had "
            f"learned; the best one is kept, see callboard evaluate RUN --checkpoint best"
        )


class _NoReward:
    """Whether every training episode and every evaluation so far has returned 0."""

    def __init__(self, names: Callable[[str], str]):
        self._names = names
        self._rows = 0

    def __call__(self, row: Row) -> str:
        found = row.get(self._names("actor/episode_return"))
        if found is None or self._rows < 0:
            return ""
        if found or row.get(self._names("evaluator/return")):
            self._rows = -1
            return ""
        self._rows += 1
        if self._rows < _ROWS:
            return ""
        remedy = "try rewards on the way to the goal, or train for longer"
        return f"every episode has returned 0, so no reward has been found and there is nothing to learn from: {remedy}"


class _NeverEnds:
    """Whether evaluations last as long as the longest episodes, which are those of a time limit, and cost the same."""

    def __init__(self, names: Callable[[str], str]):
        self._names = names
        self._longest = 0.0
        self._last: tuple[float, float] | None = None
        self._alike = 0

    def __call__(self, row: Row) -> str:
        names = self._names
        self._longest = max(self._longest, row.get(names("actor/episode_length"), 0.0))
        found, length = row.get(names("evaluator/return")), row.get(names("evaluator/episode_length"))
        if found is None or length is None:
            return ""
        costs = found < 0.0 and found >= row.get(names("evaluator/best_return"), found)
        alike = costs and row.get(names("evaluator/return_std")) == 0.0 and length >= self._longest > 1.0
        self._alike = self._alike + 1 if alike and self._last in (None, (found, length)) else int(alike)
        self._last = found, length
        if self._alike < _EVALUATIONS:
            return ""
        return (
            f"every episode of the last {_EVALUATIONS} evaluations ended after {length:g} steps, as at a time limit, "
            f"with a return of {found:.5g}: the policy never reaches an end; try a larger agent.entropy_cost, rewards "
            f"on the way to the goal, or train for longer"
        )


def _checks_of(policy_run: Run) -> list[Callable[[Row], str]]:
    agent = policy_run.agent

    def names(name: str) -> str:
        return metric_of(policy_run.policy, name)

    settings = values_of(agent)
    checks = [check for watch in agent.watched for check in _checks_for(watch, settings, policy_run, names)]
    if policy_run.evaluation.evaluation_mode == "greedy" and "sample" in agent.modes():
        checks.append(_Greedy(names))
    return checks


def _checks_for(
    watch: Watch, settings: Mapping[str, Any], policy_run: Run, names: Callable[[str], str]
) -> list[Callable[[Row], str]]:
    """Returns the checks for what an agent has declared.

    Args:
      watch: the declaration.
      settings: the agent's settings by name.
      policy_run: the run of its policy.
      names: returns the name of a metric of the policy.
    """
    match watch:
        case Gradient(optimizer):
            clip = settings[f"{optimizer}.max_gradient_norm"]
            metric = names(f"learner/{optimizer.removesuffix('optimizer')}gradient_norm")
            normalizes = settings.get("normalize_rewards", True)
            remedy = f"a larger agent.{optimizer}.max_gradient_norm" if normalizes else "agent.normalize_rewards true"
            if clip is not None:
                line = (
                    f"{metric} stays above {_LONG_GRADIENT:g} times the norm that it is clipped to ({{:.3g}}, clipped "
                    f"to {clip:g}): the size of losses no longer matters; try {remedy}"
                )
                return [_Above(metric, _LONG_GRADIENT * clip, line.format)]
        case Watched(name, largest, meaning):
            metric = names(f"learner/{name}")
            return [_Above(metric, largest, lambda value: f"{metric} stays above {largest:g} ({value:.3g}): {meaning}")]
        case Quantity.ENTROPY:
            largest = _largest_entropy(policy_run.layout.spec.action)
            return [_Entropy(names, largest)] if largest else []
        case Quantity.TEMPERATURE:
            return [_Temperature(names, settings["temperature"])]
        case Quantity.VALUES:
            return [_Value(names, settings)]
        case Quantity.LAG:
            metric, size = names("learner/policy_lag"), settings["batch_size"]
            return [
                _Above(
                    metric,
                    _LONG_LAG,
                    lambda value: (
                        f"{metric} stays above {_LONG_LAG:g} ({value:.3g}): the learner is slower than the actors, and "
                        "many steps in a row follow what an old policy has done; try agent.batch_size "
                        f"{size * math.ceil(2 * value / _LONG_LAG)}, or fewer actors"
                    ),
                )
            ]
        case Returns(optimizer):
            # Returns also fall where tasks become harder, or other policies better.
            if not policy_run.policy and not policy_run.episodes.curriculum:
                return [_Fallen(names, optimizer), _Lost(names), _NoReward(names), _NeverEnds(names)]
    return []


def _largest_entropy(action: Any) -> float:
    """Returns the entropy of uniform actions, in nats; 0 if a part of the action is not discrete."""
    total = 0.0
    for leaf in tree.flatten(action):
        if isinstance(leaf, dm_specs.DiscreteArray):
            total += math.log(leaf.num_values)
        elif isinstance(leaf, MultiDiscreteArray):
            total += sum(map(math.log, leaf.num_values.ravel()))
        else:
            return 0.0
    return total
