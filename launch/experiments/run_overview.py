"""An overview of a run, from its files: its state, steps, score and age."""

import dataclasses
import os
import time
from collections.abc import Mapping
from typing import Any, Literal

from ...errors import CallboardError
from ...files.guarded_files import read_json_lines
from ..run_directory.found_runs import files_of_run
from ..run_directory.layout import MOST_METRICS_BYTES, RunDirectory
from .stop_conditions import reaches
from .yaml_files import read_yaml

State = Literal["running", "done", "stopped", "no results", "damaged"]
_RETURN = "evaluator/return"


@dataclasses.dataclass(frozen=True)
class RunOverview:
    """A run at a glance.

    Attributes:
      run: the run directory.
      state: `running`; `done` if a limit or the goal was reached; `stopped` if it was ended before, or has failed;
        `no results` if it has written no metrics; `damaged` if its files cannot be read.
      agent: name of the agent; of several policies, the names of their agents.
      env: the environment.
      seed: seed of the run.
      steps: environment steps.
      max_steps: their limit, if there is one.
      learner_steps: learner steps, and `max_learner_steps` their limit.
      scores: mean returns of the last evaluation by policy, without a name if there is one policy.
      age: seconds since the last metrics were written, or the start.
    """

    run: str
    state: State
    agent: str = ""
    env: str = ""
    seed: int | None = None
    steps: int = 0
    max_steps: int | None = None
    learner_steps: int = 0
    max_learner_steps: int | None = None
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    age: float = 0.0


def overview_of_run(run: str) -> RunOverview:
    """Reads what became of a run; files that cannot be read make it `damaged`.

    Args:
      run: the run directory, a path or a URL.
    """
    try:
        with files_of_run(run) as (directory, is_running):
            return _overview(run, directory, is_running)
    except (CallboardError, OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return RunOverview(run, "damaged")


def _overview(run: str, directory: RunDirectory, is_running: bool) -> RunOverview:
    settings = read_yaml(directory.experiment, links=False)
    last: dict[str, Any] = {}
    scores: dict[str, float] = {}
    best = -float("inf")
    for row in read_json_lines(directory.metrics, MOST_METRICS_BYTES) if directory.metrics.exists() else ():
        last = row
        for name, value in row.items():
            if name.endswith(_RETURN) and isinstance(value, int | float):
                scores[name.removesuffix(_RETURN).rstrip("/")] = float(value)
                best = max(best, float(value))
    steps, learner_steps = (int(last.get(name, 0)) for name in ("environment_steps", "learner_steps"))
    limit, learner_limit = settings.get("max_steps"), settings.get("max_learner_steps")
    if not isinstance(limit, int | None) or not isinstance(learner_limit, int | None):
        raise TypeError(f"the limits of steps are {limit!r} and {learner_limit!r}")
    state: State = "stopped" if last else "no results"
    if is_running:
        state = "running"
    elif last and (
        _reached(steps, limit)
        or _reached(learner_steps, learner_limit)
        or _reached(last.get("elapsed_seconds", 0), settings.get("max_seconds"))
        or (isinstance(goal := settings.get("stop_return"), int | float) and reaches(best, goal))
    ):
        state = "done"
    written = directory.metrics if directory.metrics.exists() else directory.experiment
    return RunOverview(
        run=run,
        state=state,
        agent=_agent(settings),
        env=_env(settings.get("env")),
        seed=int(settings["seed"]),
        steps=steps,
        max_steps=limit,
        learner_steps=learner_steps,
        max_learner_steps=learner_limit,
        scores=scores,
        age=time.time() - float(last.get("time", os.path.getmtime(written))),
    )


def _reached(value: float, limit: Any) -> bool:
    return isinstance(limit, int | float) and value >= limit


def _agent(settings: Mapping[str, Any]) -> str:
    policies = settings.get("policies") or {}
    agents = [one.get("agent") for one in policies.values() if isinstance(one, Mapping)]
    own = [agent["name"] if isinstance(agent, Mapping) else str(agent) for agent in agents if agent]
    return ", ".join(dict.fromkeys(own)) or str(settings["agent"]["name"])


def _env(env: Any) -> str:
    entries = env if isinstance(env, list) else [env]
    return ", ".join(str(entry["name"] if isinstance(entry, Mapping) else entry) for entry in entries)
