"""Conditions that end a run, such as `actor/episode_return >= 200`: their syntax, and the metrics they may name."""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ...agents.metric_names import BONUS_METRICS, LEARNER_METRICS, SCHEDULE_METRICS
from ...errors import CallboardError, unknown
from ...settings.setting_types import texts_of
from ..run_directory.metric_names import METRICS, PLACEHOLDERS

_PRECISION = 1e-6
"""Relative difference of numbers that are equal: rewards are float32, in which 0.7 is 0.699999988."""
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType({">": operator.gt, "<": operator.lt})
_CONDITION = re.compile(r"\s*([^\s<>=]+)\s*([<>]=?)\s*([^\s<>=]+)\s*")
_LEARNER = "learner/"
_NUMBERED = "_N"


class Condition(NamedTuple):
    """A comparison of a metric with a number."""

    metric: str
    operator: str
    """One of `>=`, `<=`, `>` and `<`."""
    value: float

    def __str__(self) -> str:
        return f"{self.metric} {self.operator} {self.value:g}"

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Returns whether the metric is there and compares as stated; NaN never does."""
        value = metrics.get(self.metric)
        if value is None:
            return False
        if math.isclose(value, self.value, rel_tol=_PRECISION):
            return self.operator.endswith("=")
        return _OPERATORS[self.operator[0]](value, self.value)


def reaches(value: float, goal: float) -> bool:
    """Returns whether a return is at least a goal, as exactly as rewards are known."""
    return value >= goal or math.isclose(value, goal, rel_tol=_PRECISION)


def parse_conditions(stop_when: str | Sequence[str], setting: str = "stop_when") -> list[Condition]:
    """Parses conditions: one or several, in a list or separated by commas; `setting` is named in messages.

    Raises:
      CallboardError: one is not of the form `METRIC >= NUMBER`.
    """
    return [_parse(text, setting) for text in texts_of(stop_when)]


def check_conditions(
    stop_when: str | Sequence[str],
    agent: str | None,
    nodes: Mapping[str, int],
    own_metrics: Sequence[str] = (),
    setting: str = "stop_when",
) -> None:
    """Refuses conditions that can never hold because the run has no such metric.

    The arguments that are not listed are those of `check_metric`.

    Args:
      stop_when: the conditions.
      setting: name of the setting with the conditions, for messages.

    Raises:
      CallboardError: names the condition and what would be right.
    """
    for condition in parse_conditions(stop_when, setting):
        what = f"{setting} {str(condition)!r}"
        check_metric(condition.metric, agent, nodes, own_metrics, setting, what)


def check_metric(
    name: str,
    agent: str | None,
    nodes: Mapping[str, int],
    own_metrics: Sequence[str],
    setting: str,
    what: str,
) -> None:
    """Refuses the name of a metric that the run does not have.

    Args:
      name: the name.
      agent: name of the agent; None if it is not known yet.  An agent of the user's own may report any metrics of the
        learner.
      nodes: number of nodes of each kind, such as `evaluator`.
      own_metrics: names of metrics that the run has besides the registered ones; those with `*` at the end stand for
        all that begin so.
      setting: name of the setting, for messages.
      what: the setting and its value, for messages.

    Raises:
      CallboardError: names the metric and what would be right.
    """
    known = [*metrics_of_run(nodes), *own_metrics]
    beginnings = tuple(one[:-1] for one in own_metrics if one.endswith("*"))
    if name not in known and not (beginnings and name.startswith(beginnings)):
        if name.startswith(_LEARNER) and (agent is None or ":" in agent):
            return
        raise unknown(f"metric in {setting}", name, known, 'the page "Metrics" of the documentation lists all')
    if name.startswith("evaluator/") and not nodes.get("evaluator"):
        raise CallboardError(f"{what} needs the evaluator: leave evaluator at true")
    agents = _agents_with(name)
    if agent is not None and ":" not in agent and agents and agent not in agents:
        raise CallboardError(f"{what} cannot work: {name} is a metric of {', '.join(agents)}, not of {agent}")


def metrics_of_run(nodes: Mapping[str, int]) -> list[str]:
    """Returns the names of the registered metrics of a run, with the numbers of its nodes.

    Names that a user chooses, such as those of episode metrics and policies, are not among them.
    """
    names = []
    for metric in (metric for section in METRICS.values() for metric in section):
        if any(placeholder in metric.name for placeholder in PLACEHOLDERS):
            continue
        if metric.name.endswith(_NUMBERED):
            count = nodes.get(metric.name.partition("/")[0], 0)
            names += [f"{metric.name.removesuffix(_NUMBERED)}_{number}" for number in range(count)]
        else:
            names.append(metric.name)
    return names


def _agents_with(name: str) -> Sequence[str]:
    """Returns the built-in agents that report a metric; empty for all."""
    metrics = (*LEARNER_METRICS, *BONUS_METRICS, *SCHEDULE_METRICS)
    return next((metric.agents for metric in metrics if f"{_LEARNER}{metric.name}" == name), ())


def _parse(text: str, setting: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    try:
        value = float(match[3]) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or math.isnan(value):
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise CallboardError(
            f"{setting} {shown!r} is no condition: write METRIC >= NUMBER (or >, <=, <), such as "
            "'evaluator/return >= 200', and several with commas between them"
        )
    return Condition(match[1], match[2], value)
