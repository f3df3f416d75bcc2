"""`load_policy`, `evaluate` and `export`: what Python does with the policy of a run, or of an export."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from ...agents.agent import Policy
from ...environments import environment_text
from ...errors import CallboardError, exits_refused, named_path, type_text, unknown
from ...settings.setting_arguments import checked_names
from ...settings.setting_types import PositiveInt, converted
from ...specs import EnvironmentSpec
from ..experiments.parts.acting_part import ActingPart, Playing
from ..experiments.settings import read_experiment
from ..result import EvaluationResult, evaluation_result
from ..run_directory.chosen_weights import chosen_checkpoint
from ..run_directory.found_runs import parse_run_reference
from ..run_directory.remote_storage import is_url, local_copy
from ..saved.saved_policies import policy_file, restored_policy, saved_spec
from .acting_policy import ActingPolicy
from .evaluation import evaluate_run, with_evaluation_settings
from .export import Export, Format, export_run, is_export, read_export

_logger = logging.getLogger(__name__)


@exits_refused()
@checked_names
def evaluate(
    run: str | os.PathLike[str],
    episodes: int = 20,
    *,
    mode: Literal["greedy", "sampled"] | None = None,
    epsilon: float | None = None,
    seed: int | None = None,
    env: Any = None,
    env_options: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> EvaluationResult:
    """Plays whole episodes with the policy of a run.

        result = evaluate("runs/x@latest", episodes=10)
        print(result.mean, result.std, result.returns)

    Args:
      run: a run directory, a path or a URL, its weights with the best evaluation, or its latest if it has none; or
        `runs/x@latest`, or `runs/x@` and a learner step.
      episodes: number of episodes.
      mode: `greedy` takes the best actions, `sampled` samples them from the policy; None for the run's own.
      epsilon: rate of random actions, for agents that learn action values; None for the run's own.
      seed: None plays the same episodes as the run's evaluations, and as every other call.
      env: another environment with the same spaces, a name, a class or a function; None for the run's own.  A function
        without a name, such as a lambda, has to be given again.
      env_options: options of the environment; None for the run's own, or for none if another one is named.
      trust: whether the run may belong to another user: its settings name code, which is run.

    Raises:
      CallboardError: there is no such run or checkpoint, or an argument is wrong.
    """
    episodes = converted("episodes", episodes, PositiveInt)
    reference = parse_run_reference(run)
    experiment = with_environment(read_experiment(reference.run, trust=trust), env, env_options)
    experiment = with_evaluation_settings(experiment, mode, epsilon, seed)
    with local_copy(reference.run, reference.checkpoint) as directory:
        checkpoint = chosen_checkpoint(directory, reference.checkpoint, _logger.warning, reference.run, of_all=True)
        played = evaluate_run(experiment, directory, episodes, checkpoint, 0, lambda text: None)
    return evaluation_result(played.episodes, played.metrics)


@exits_refused()
@checked_names
def export(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    format: Format = "saved-model",
    *,
    mode: Literal["greedy", "sampled"] | None = None,
    epsilon: float | None = None,
    trust: bool = False,
) -> Export:
    """Writes the policy of a run as a SavedModel or an ONNX model, see docs/export.md; its environment is not needed.

    Args:
      run: as in `evaluate`.
      path: directory of the export, new or empty.
      format: `saved-model`, or `onnx`, which needs the packages of the extra `onnx`.
      mode: as in `evaluate`, as are `epsilon` and `trust`.

    Returns:
      The file of the weights, and the inputs and outputs of the export.

    Raises:
      CallboardError: there is no such run or checkpoint, `path` is a file or a directory that is not empty, an argument
        is wrong, or the policy has no such form.
    """
    if format not in get_args(Format):
        raise unknown("format", format, get_args(Format))
    target = pathlib.Path(named_path(path, "export"))
    reference = parse_run_reference(run)
    with local_copy(reference.run, reference.checkpoint) as directory:
        experiment = with_evaluation_settings(read_experiment(reference.run, trust=trust), mode, epsilon)
        checkpoint = chosen_checkpoint(directory, reference.checkpoint, _logger.warning, reference.run)
        return export_run(experiment, directory, target, checkpoint, format)


def with_environment(experiment: Playing, env: Any, options: Mapping[str, Any] | None) -> Playing:
    """Returns an experiment with another environment, or other options of its own; None leaves them unchanged."""
    if env is not None:
        given = dataclasses.replace(experiment, env=env, env_options=dict(options or {}))
        same = environment_text(given.env) == environment_text(experiment.env)
        return dataclasses.replace(given, env_options=experiment.env_options) if same and options is None else given
    if not isinstance(options, Mapping | None):
        raise CallboardError(f"env_options must be options by name, not {type_text(options)}")
    return experiment if options is None else dataclasses.replace(experiment, env_options=dict(options))


@exits_refused()
@checked_names
def load_policy(
    source: str | os.PathLike[str],
    mode: Literal["greedy", "sampled"] | None = None,
    seed: int | None = None,
    epsilon: float | None = None,
    trust: bool = False,
) -> ActingPolicy:
    """Returns a policy that acts on observations, without its environment and without actors.

        policy = load_policy("runs/x")
        action, state = policy(observation)

    Args:
      source: a run directory, its weights with the best evaluation, or its latest if it has none; `runs/x@latest`, or
        `runs/x@` and a learner step; a checkpoint (`runs/x/checkpoints/000000001000`); the same with the URL of a run;
        or a directory that `callboard export` has written.
      mode: `greedy` takes the best actions, `sampled` samples them from the policy; None acts as in the run's
        evaluations.  An export always acts as those of its run.
      seed: seed of sampled actions; None is that of the run.  An export samples with new seeds.
      epsilon: rate of random actions, for agents that learn action values; None is that of the run's evaluations.
      trust: whether the run may belong to another user: its settings name code, which is run.

    Returns:
      The policy; see `ActingPolicy`.

    Raises:
      CallboardError: there is no such policy, it is damaged, an argument is out of range, or the run is from before
        specs of environments were saved.
    """
    if not is_url(named_path(source, "policy")) and is_export(pathlib.Path(source)):
        if (mode, seed, epsilon) != (None, None, None):
            raise CallboardError(
                f"{source} is an export and acts as its run's evaluations: leave mode, seed and epsilon out"
            )
        exported = read_export(pathlib.Path(source))
        return ActingPolicy(exported.policy, exported.spec)
    saved = read_saved_policy(source, mode, epsilon, seed, trust)
    experiment = saved.experiment
    return ActingPolicy(saved.policy, experiment.agent.acting_spec(saved.spec), experiment.seed, saved.spec)


class RestoredPolicy(NamedTuple):
    """The policy of a run, as evaluations of it act."""

    policy: Policy
    spec: EnvironmentSpec
    """The spec of the run's environment."""
    experiment: ActingPart
    """The experiment of the run, with the settings of the evaluation."""


def read_saved_policy(
    source: str | os.PathLike[str],
    mode: Literal["greedy", "sampled"] | None,
    epsilon: float | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> RestoredPolicy:
    """Returns the policy of a run; its arguments and errors are those of `load_policy`."""
    reference = parse_run_reference(source)
    experiment = with_evaluation_settings(read_experiment(reference.run, trust=trust), mode, epsilon, seed)
    with local_copy(reference.run, reference.checkpoint) as directory:
        spec = saved_spec(directory)
        if spec is None:
            raise CallboardError(
                f"the run in {reference.run} is from before the specs of environments were saved: resume it, which "
                "writes them"
            )
        checkpoint = chosen_checkpoint(directory, reference.checkpoint, _logger.warning, reference.run)
        file = policy_file(directory, checkpoint)
        return RestoredPolicy(restored_policy(experiment, experiment.acting_layout(spec), file), spec, experiment)
