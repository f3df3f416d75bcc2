"""The policies that other runs have trained: their agents and weights."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...agents.agent import Agent
from ...errors import CallboardError
from ...specs import EnvironmentSpec, describe
from ..experiments.parts.policies_part import PoliciesPart
from ..experiments.policy_plan import make_plan
from ..experiments.policy_settings import TrainedPolicy
from ..experiments.settings import read_experiment
from ..experiments.warm_start_settings import check_source_exists
from ..run_directory.policy_weights import read_policy
from ..run_directory.remote_storage import check_owner, local_copy
from ..run_directory.run_reference import RunReference, parse_run_reference
from .saved_policies import policy_file, saved_spec


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
    check_owner(run, "copy the run, for example with cp -r")
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
