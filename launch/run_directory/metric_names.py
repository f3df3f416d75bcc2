"""The names of all metrics of a run, with units and meanings, and the reference page made from them.

Learners of a user's own agent may report other names, which are written as they are.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...agents.metric_names import BONUS_METRICS, LEARNER_METRICS, SCHEDULE_METRICS, Metric

RUN_METRICS = (
    Metric("time", "wall-clock time of the row, since the epoch", "s", bookkeeping=True),
    Metric("elapsed_seconds", "time since the coordinator started, by a monotonic clock", "s", bookkeeping=True),
    Metric("environment_steps", "actions executed by the actors, over the whole run", "steps", bookkeeping=True),
    Metric("learner_steps", "learner steps made, over the whole run, including those lost with a learner", "steps"),
    Metric("episodes", "training episodes that ended, over the whole run"),
    Metric("restarts", "restarts of nodes in this run; not with `--launcher inline`", bookkeeping=True),
    Metric(
        "ignored_timesteps",
        "actions that were ignored because their episode had ended, over the whole run",
        bookkeeping=True,
    ),
)
_ACTORS = (
    Metric(
        "actor/steps_per_second",
        "environment steps per second of all actors, over the last 10 s, or four learner steps if they take longer",
        "1/s",
    ),
    Metric("actor/present", "actors that have reported in the last 30 s; only where they come and go"),
    Metric("actor/episode_return", "mean return of the last 100 training episodes, with exploration"),
    Metric("actor/episode_length", "mean length of the last 100 training episodes", "steps"),
    Metric(
        "actor/waiting_for_learner",
        "time for which actors waited for replay to take data or for newer weights, over the last seconds; not with "
        "`--launcher inline`",
        "fraction",
    ),
    Metric(
        "actor/waiting_for_inference",
        "time for which actors waited for an inference node; not with `--launcher inline`",
        "fraction",
    ),
)
_LEARNERS = (
    Metric("learner/step", "step of the newest weights; decreases when a learner restarts from a checkpoint", "steps"),
    Metric("learner/final", "1 once the learner has made its last step; absent before", bookkeeping=True),
    Metric(
        "learner/steps_per_second",
        "learner steps per second, over the last 10 s, or four learner steps if they take longer",
        "1/s",
    ),
    Metric(
        "learner/waiting_for_data",
        "time for which learners waited for a batch, over the last seconds; not with `--launcher inline`",
        "fraction",
    ),
    Metric(
        "learner/duplicate_items",
        "items that arrived a second time and were dropped, over the whole run",
        "items",
        bookkeeping=True,
    ),
    Metric(
        "learner/dropped_priorities",
        "priorities that a failed shard did not accept, since the learner started",
        bookkeeping=True,
    ),
)
NAMES_OF_LEARNERS = frozenset(metric.name.removeprefix("learner/") for metric in _LEARNERS)
"""Names that metrics of a learner's step cannot have, since the run has them."""
_EVALUATIONS = (
    Metric("evaluator/return", "mean return of the evaluation's episodes"),
    Metric("evaluator/return_std", "standard deviation of the return over the episodes"),
    Metric("evaluator/return_min", "lowest return"),
    Metric("evaluator/return_max", "highest return"),
    Metric("evaluator/best_return", "highest mean return of all evaluations of the run so far, including this one"),
    Metric("evaluator/episode_length", "mean length of the episodes", "steps"),
    Metric("evaluator/learner_step", "step of the weights that were evaluated", "steps", bookkeeping=True),
    Metric(
        "evaluator/environment_steps",
        "environment steps of the run when the evaluation began",
        "steps",
        bookkeeping=True,
    ),
    Metric("evaluator/seconds", "duration of the evaluation", "s", bookkeeping=True),
    Metric("evaluator/final", "1 in the row of the final evaluation; absent in all others", bookkeeping=True),
    Metric(
        "evaluator/generalization_gap",
        "mean return of the last 100 training episodes minus that of the evaluation; where training levels are limited "
        "(Procgen) and evaluations sample actions",
    ),
)
_HOOKS = (
    Metric("episode/NAME", "the episode metric or callbacks' metric NAME, mean of the last 100 training episodes"),
    Metric("episode/NAME_min", "its lowest value in these episodes"),
    Metric("episode/NAME_max", "its highest value in these episodes"),
    Metric("evaluator/episode/NAME", "the episode metric NAME in the evaluation; also with `_min` and `_max`"),
    Metric("evaluator/callbacks/NAME", "what callbacks returned as NAME for the evaluation"),
    Metric("callbacks/NAME", "what callbacks returned as NAME for the row"),
    Metric("callbacks/seconds", "time spent in callbacks by all nodes, over the whole run", "s", bookkeeping=True),
    Metric("curriculum/stage", "number of the curriculum's stage, from 1 on"),
)
_REPLAY = (
    Metric("replay/fill_N", "items in shard N, of the most that it can hold", "fraction"),
    Metric("replay/items_N", "items in shard N", "items"),
    Metric("replay/inserted_N", "items inserted into shard N since its table was made", "items", bookkeeping=True),
    Metric("replay/sampled_N", "items sampled from shard N since its table was made", "items", bookkeeping=True),
)
_KINDS = ("coordinator", "replay", "learner", "inference", "actor", "evaluator", "feeder", "recorder")
_MEMORY = (
    *(
        Metric(f"{kind}/memory_N", f"memory of the process of {kind}/N, with those it started", "bytes")
        for kind in _KINDS
    ),
    *(
        Metric(f"{kind}/memory_max", f"that of the largest {kind}, in place of those of more than 64", "bytes")
        for kind in ("actor", "inference", "replay")
    ),
)
_RECORDED = (
    Metric("recorder/episodes", "episodes in the run's data set"),
    Metric("recorded_steps", "recorded actions that feeders have written to replay, over the whole run", "steps"),
)
_INFERENCE = (Metric("inference/actors_per_batch_N", "mean actors that shared a forward pass of inference node N"),)
_POLICY_SERVER = (
    Metric("policy_server/open_episodes", "episodes of simulators that have not ended"),
    Metric(
        "policy_server/cut_off_episodes",
        "episodes that were cut off since the server started, by their simulators or because these were silent",
    ),
    Metric("policy_server/requests_per_batch", "mean requests that shared a forward pass, since the server started"),
)
POLICY_METRICS = (
    Metric("POLICY/learner_steps", "learner steps of the policy, over the whole run", "steps"),
    Metric("POLICY/agent_steps", "actions of its agents that were executed, over the whole run", "steps"),
    Metric("POLICY/episode_return", "mean return of its agents in the last 100 training episodes"),
    Metric("POLICY/score", "mean of the last 100 games against other policies: 1 if won, 0.5 if tied, 0 if lost"),
    Metric("POLICY/rating", "its Elo rating; `_N` for that of snapshot N"),
    Metric("agent/AGENT/episode_return", "mean return of an agent in the last 100 training episodes"),
    Metric("evaluator/POLICY/return", "mean return of the policy's agents in the evaluation"),
    Metric(
        "evaluator/POLICY/score",
        "mean result of games of two agents in the evaluation: 1 if won, 0.5 if tied, 0 if lost",
    ),
    Metric("evaluator/agent/AGENT/return", "mean return of an agent in the evaluation"),
)

METRICS: Mapping[str, Sequence[Metric]] = MappingProxyType(
    {
        "The run": RUN_METRICS,
        "Actors": _ACTORS,
        "Learners": _LEARNERS,
        "Learner steps": tuple(metric._replace(name=f"learner/{metric.name}") for metric in LEARNER_METRICS),
        "Exploration bonuses": tuple(metric._replace(name=f"learner/{metric.name}") for metric in BONUS_METRICS),
        "Schedules": tuple(metric._replace(name=f"learner/{metric.name}") for metric in SCHEDULE_METRICS),
        "Evaluations": _EVALUATIONS,
        "Episode metrics, callbacks and curriculum": _HOOKS,
        "Replay": _REPLAY,
        "Memory": _MEMORY,
        "Recorded episodes": _RECORDED,
        "Central inference": _INFERENCE,
        "Policy server": _POLICY_SERVER,
        "Several policies": POLICY_METRICS,
    }
)
"""All metrics, by section of the reference page.  `NAME` stands for a name of the user's own, `POLICY` and `AGENT` for
those of a run with several agents, where all metrics of learners and replay also begin with `POLICY/`, and `_N` at the
end of a name for a number, such as a shard's."""

PLACEHOLDERS = ("NAME", "POLICY", "AGENT")
"""Parts of the registry's names, each of which stands for a name of the user's own."""
_OPEN = ("episode/", "callbacks/", "evaluator/episode/", "evaluator/callbacks/")
"""Beginnings of the names of metrics that a user names."""

_NAMES = frozenset(metric.name for metrics in METRICS.values() for metric in metrics)
_BOOKKEEPING = frozenset(metric.name for metrics in METRICS.values() for metric in metrics if metric.bookkeeping)
_NUMBER = re.compile(r"_\d+$")


def is_known(name: str) -> bool:
    """Returns whether a metric is in the registry."""
    if name.startswith(_OPEN):
        return True
    return _NUMBER.sub("_N", name) in _NAMES


def is_bookkeeping(name: str) -> bool:
    """Returns whether a metric only serves to read `metrics.jsonl`; in a run with several policies, of any of them."""
    whole = _NUMBER.sub("_N", name)
    return whole in _BOOKKEEPING or whole.partition("/")[2] in _BOOKKEEPING


def reference_tables() -> str:
    """Returns the tables of the reference page, in Markdown."""
    return "\n".join(_section(title, metrics) for title, metrics in METRICS.items())


def _section(title: str, metrics: Sequence[Metric]) -> str:
    has_agents = any(metric.agents for metric in metrics)
    columns = ["metric", "unit", "meaning", *(["agents"] if has_agents else [])]
    rows = [columns, ["---"] * len(columns)]
    for metric in metrics:
        row = [f"`{metric.name}`", metric.unit, metric.meaning]
        rows.append([*row, ", ".join(metric.agents) or "all"] if has_agents else row)
    return "\n".join([f"## {title}", "", *(f"| {' | '.join(row)} |" for row in rows), ""])
