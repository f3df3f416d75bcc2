"""`load_policy`: the policy of a run, or of an export, as a function of observations."""

import logging
import os
import pathlib
from typing import Literal, NamedTuple

from ...agents.agent import Policy
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..experiments.experiment import Experiment
from ..experiments.settings import read_experiment
from ..run_directory.chosen_weights import chosen_checkpoint
from ..run_directory.remote_storage import is_url, local_copy
from ..run_directory.run_reference import parse_run_reference
from ..saved.saved_policies import policy_file, restored_policy, saved_spec
from .acting_policy import ActingPolicy
from .evaluation import with_evaluation_settings
from .exported_policy import is_export, read_export

_logger = logging.getLogger(__name__)


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
    if not isinstance(source, str | os.PathLike):
        raise CallboardError(f"name the policy by a path or a URL, not by a {type(source).__name__}")
    if not is_url(os.fspath(source)) and "\0" not in os.fspath(source) and is_export(pathlib.Path(source)):
        if (mode, seed, epsilon) != (None, None, None):
            raise CallboardError(
                f"{source} is an export and acts as its run's evaluations: leave mode, seed and epsilon out"
            )
        exported = read_export(pathlib.Path(source))
        return ActingPolicy(exported.policy, exported.spec)
    saved = read_saved_policy(source, mode, epsilon, seed, trust)
    experiment = saved.experiment
    return ActingPolicy(saved.policy, experiment.agent.acting_spec(saved.spec), experiment.seed)


class SavedPolicy(NamedTuple):
    """The policy of a run, as evaluations of it act."""

    policy: Policy
    spec: EnvironmentSpec
    """The spec of the run's environment."""
    experiment: Experiment
    """The experiment of the run, with the settings of the evaluation."""


def read_saved_policy(
    source: str | os.PathLike[str],
    mode: Literal["greedy", "sampled"] | None,
    epsilon: float | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> SavedPolicy:
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
        return SavedPolicy(restored_policy(experiment, experiment.acting_layout(spec), file), spec, experiment)
