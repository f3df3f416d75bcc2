"""The policies that a run has saved: their files, policies with their weights, and the spaces they act in."""

import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tree
from dm_env import specs

from ...agents.agent import Agent, Policy
from ...data import Layout, Nest
from ...environments.batches.spec_files import parse_spec
from ...errors import CallboardError
from ...files.guarded_files import read_regular
from ...specs import EnvironmentSpec, describe
from ..experiments.parts.acting_part import ActingPart
from ..experiments.parts.environment_part import PoliciesPart
from ..experiments.policy_plan import make_plan
from ..experiments.policy_settings import TrainedPolicy
from ..experiments.settings import read_experiment
from ..experiments.warm_start_settings import check_source_exists
from ..processes.forked_process import check_tensorflow_works
from ..run_directory.best_policy import BestPolicy
from ..run_directory.checkpoints import Checkpoints
from ..run_directory.chosen_weights import chosen_checkpoint, no_checkpoint
from ..run_directory.found_runs import RunReference, parse_run_reference
from ..run_directory.layout import RunDirectory
from ..run_directory.policy_weights import load_weights, read_policy
from ..run_directory.remote_storage import check_run_owner, local_copy

_logger = logging.getLogger(__name__)


def policy_file(run_directory: RunDirectory, checkpoint: str, others: Sequence[RunDirectory] = ()) -> pathlib.Path:
    """Returns the file of the weights to act with.

    Args:
      run_directory: directory of the run.
      checkpoint: as in `RunReference`.
      others: directories of other policies that act with the same checkpoint, for the advice in the error.

    Raises:
      CallboardError: the run has no such checkpoint, or its policies have directories of their own.
    """
    checkpoint = chosen_checkpoint(run_directory, checkpoint, others=others)
    checkpoints = Checkpoints(run_directory, read_only=True)
    if checkpoint == "best":
        problems: list[str] = []
        found = BestPolicy(run_directory, problems.append, read_only=True).path()
        for problem in problems if found is not None else ():
            _logger.warning(problem)
    elif checkpoint == "latest":
        found = _policy_of(checkpoints.latest())
    else:
        found = _policy_of(checkpoints.named(checkpoint))
    if found is None:
        raise no_checkpoint(run_directory, checkpoint, others)
    return found


def saved_spec(run_directory: RunDirectory) -> EnvironmentSpec | None:
    """Returns the spec of a run's environment; None for runs from before it was saved.

    Raises:
      CallboardError: the file is damaged.
    """
    try:
        return parse_spec(read_regular(run_directory.environment).decode("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CallboardError(
            f"{run_directory.environment} cannot be read: {error}; replace it by a copy, or resume the run without it, "
            "which writes it again"
        ) from error


def restored_policy(experiment: ActingPart, layout: Layout, weights: pathlib.Path) -> Policy:
    """Returns the policy of an experiment, as in its evaluations, with weights from a file.

    Raises:
      CallboardError: the file is damaged, or does not fit the networks.
    """
    check_tensorflow_works()
    agent = experiment.agent
    policy = agent.make_policy(agent.make_networks(layout), experiment.evaluation_policy_mode())
    load_weights(weights, policy.variables)
    return policy


def _policy_of(checkpoint: pathlib.Path | None) -> pathlib.Path | None:
    return None if checkpoint is None else checkpoint / "policy.npz"


def check_same_spaces(directory: RunDirectory, spec: EnvironmentSpec, problem: str, fix: str) -> None:
    """Refuses an environment on which the policy of a run cannot act; bounds may differ.

    Args:
      directory: directory of the run, or of one of its policies; any spec is accepted if it has none.
      spec: spec of the environment.
      problem: beginning of the message, such as `a resumed run cannot change its environment`.
      fix: end of the message.

    Raises:
      CallboardError: observations or actions have another structure, shape, dtype or number of choices; or the saved
        spec is damaged.
    """
    saved = saved_spec(directory)
    if saved is None:
        return
    before, now = ((_form(one.observation), _form(one.action)) for one in (saved, spec))
    if before != now:
        raise CallboardError(
            f"{problem}: it was trained with observations {before[0]} and actions {before[1]}, and these are "
            f"{now[0]} and {now[1]}; {fix}"
        )


def _form(spec: Nest) -> str:
    """Describes all of a nest of specs but its bounds, such as `{camera: uint8(64, 64, 3), speed: float32(2,)}`."""
    parts = [(".".join(map(str, path)), _leaf_form(leaf)) for path, leaf in tree.flatten_with_path(spec)]
    if [name for name, _ in parts] == [""]:
        return parts[0][1]
    return f"{{{', '.join(f'{name}: {form}' for name, form in parts)}}}"


def _leaf_form(leaf: specs.Array) -> str:
    if isinstance(leaf, specs.DiscreteArray):
        return f"{leaf.num_values} choices"
    numbers = getattr(leaf, "num_values", None)
    if numbers is not None:
        return f"choices {np.asarray(numbers).tolist()}"
    return f"{np.dtype(leaf.dtype).name}{tuple(leaf.shape)}"


class TrainedPolicyWeights(NamedTuple):
    """The weights of a saved policy."""

    spec: EnvironmentSpec | None
    """Spec of the agent that it was trained as; None for old runs."""
    values: list[np.ndarray]
    """The values of the policy's variables, in order."""


def trained_agent(policy: TrainedPolicy) -> Agent:
    """Returns the agent of a saved policy.

    Raises:
      CallboardError: there is no such run.
    """
    run = _existing(policy).run
    check_run_owner(run, "copy the run, for example with cp -r")
    return read_experiment(run).agent


def read_trained(policy: TrainedPolicy) -> TrainedPolicyWeights:
    """Reads a saved policy.

    Raises:
      CallboardError: there is no such run or checkpoint, or it is damaged.
    """
    reference = _existing(policy)
    with local_copy(reference.run, reference.checkpoint) as directory:
        weights = read_policy(policy_file(directory, reference.checkpoint))
        return TrainedPolicyWeights(saved_spec(directory), weights.values)


def check_trained_policies(experiment: PoliciesPart, agents: Mapping[str, EnvironmentSpec]) -> None:
    """Rejects saved policies that cannot play for the agents that the mappings give them.

    Only the machine of the first learner must have them, which serves them to the nodes that act.

    Args:
      experiment: the experiment.
      agents: spec of each agent of the environment.

    Raises:
      CallboardError: one does not exist, is damaged, or was trained with other spaces.
    """
    plans = make_plan(experiment, agents), make_plan(experiment, agents, evaluation=True)
    specs: dict[str, list[EnvironmentSpec]] = {}
    for plan in plans:
        for name in plan.saved:
            specs.setdefault(name, []).append(plan.slots[name].spec)
    for name, of_agents in specs.items():
        policy = experiment.policies[name]
        trained_agent(policy)  # Its settings must be readable too.
        found = read_trained(policy).spec
        for spec in of_agents:
            if found is not None and (found.observation, found.action) != (spec.observation, spec.action):
                texts = [f"{describe(one.observation)} with {describe(one.action)}" for one in (found, spec)]
                raise CallboardError(
                    f"the policy {name!r} cannot play with {policy.weights}, which was trained for {texts[0]}: its "
                    f"agents have {texts[1]}"
                )


def _existing(policy: TrainedPolicy) -> RunReference:
    """Returns where a saved policy is.

    Raises:
      CallboardError: there is no such run on this machine.
    """
    reference = parse_run_reference(policy.weights)
    check_source_exists(reference, "weights of a policy")
    return reference
