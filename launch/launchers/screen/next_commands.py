"""Next steps after a run: commands that evaluate and continue it, and the same in Python."""

import contextlib
import json
import shlex
from collections.abc import Sequence

from ....environments.external.spaces_only import RECORDED_PREFIX
from ....environments.recorded import open_data
from ....errors import CallboardError, printable
from ...experiments.checked_run import Run
from ...experiments.option_parsing import option_name
from ...experiments.parts.environment_part import EnvironmentPart
from ...experiments.parts.limits_part import LimitsPart
from ...experiments.recorded_metadata import is_harmless, recorded_environment
from ...experiments.settings import experiment_settings
from ...experiments.stop_conditions import parse_conditions
from ...nodes.coordination.stopping_rules import setting_that_ended
from ...run_directory.layout import RunDirectory, is_checkpoint_name
from ..run_outcome import Outcome

_OF_SCRIPT = "__main__:"
"""Beginning of the names of classes and functions of the program that was started, or of a notebook."""


def next_commands(run: Run, location: str, outcome: Outcome, options: Sequence[str]) -> tuple[str, ...]:
    """Returns commands that evaluate the policy of a run, if there is one, and that continue the run.

    Commands cannot import what is in the program that was started; for a run with such an environment, these are calls
    in Python.

    Args:
      run: the run.
      location: its directory, as the user may name it.
      outcome: how it ended.
      options: options of `callboard train` with which it is resumed, such as `("--launcher", "threads")`.
    """
    further = _settings_to_train_further(run.experiment, outcome.reason)
    # Without an evaluation there are no best weights, which are taken by default.
    newest = outcome.best_score is None
    checkpoint = "latest" if newest else "best" if outcome.ended_below_best else ""
    has_policy = not newest or bool(run.directory.url) or _has_checkpoint(run.directory)
    if _OF_SCRIPT in json.dumps(experiment_settings(run.experiment)):
        changes = "".join(f", {name}={value!r}" for name, value in {"run_dir": location, **further}.items())
        launcher = dict(zip(options, options[1:], strict=False)).get("--launcher")
        given = "" if launcher is None else f"{launcher!r}, "
        again = f"callboard.run(dataclasses.replace(experiment{changes}), {given}resume=True)"
        policy = f"callboard.load_policy({location + f'@{checkpoint}' * bool(checkpoint)!r})"
        return (policy, again) if has_policy else (again,)
    limits = [word for name, value in further.items() for word in (option_name(name), _option_value(value))]
    again = shlex.join(["callboard", "train", "--resume", "--run-dir", location, *options, *limits])
    words = ["callboard", "evaluate", location, *(["--checkpoint", checkpoint] if checkpoint else [])]
    evaluate = shlex.join([*words, *_environment_to_evaluate(run.experiment)])
    return (evaluate, again) if has_policy else (again,)


def _environment_to_evaluate(environment: EnvironmentPart) -> list[str]:
    """Returns the option that names an environment, for a run from recorded episodes alone, which has none."""
    dataset = str(environment.env).removeprefix(RECORDED_PREFIX)
    if dataset == environment.env or not isinstance(environment.env, str):
        return []
    named = None
    with contextlib.suppress(CallboardError):
        named = recorded_environment(open_data(dataset).metadata)
    return ["--env", printable(named[0]) if named is not None and is_harmless(named[0], {}) else "NAME"]


def _settings_to_train_further(limits: LimitsPart, reason: str) -> dict[str, object]:
    """Returns the limit or goal that ended a run, with a value with which the run continues; empty for another end."""
    name = setting_that_ended(reason)
    if name in ("max_steps", "max_learner_steps", "max_seconds"):
        return {name: 2 * getattr(limits, name)}
    if name == "stop_when":
        held = [condition for condition in parse_conditions(limits.stop_when) if str(condition) in reason]
        return {name: [str(other) for other in parse_conditions(limits.stop_when) if other not in held]}
    return {} if name is None else {name: None}


def _option_value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _has_checkpoint(directory: RunDirectory) -> bool:
    parts = [directory, *directory.policies.values()]
    return any(is_checkpoint_name(path.name) for part in parts for path in part.checkpoints.glob("*"))
