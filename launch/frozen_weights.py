"""The policies of other runs that play in a run without learning."""

from typing import NamedTuple

import numpy as np

from ..agents.agent import Agent
from ..errors import CallboardError
from ..specs import EnvironmentSpec, describe
from .experiment import Experiment
from .policy_settings import FrozenPolicy
from .run_directory.checkpoints import read_policy
from .run_directory.remote_storage import local_copy
from .run_directory.run_reference import parse_run_reference
from .saved_policies import policy_file, saved_spec
from .settings import read_experiment


class FrozenWeights(NamedTuple):
    """A saved policy."""

    spec: EnvironmentSpec | None
    """Spec of the agent that it was trained as; None for old runs."""
    values: list[np.ndarray]
    """The values of the policy's variables, in order."""


def frozen_agent(policy: FrozenPolicy) -> Agent:
    """Returns the agent of a saved policy.

    Raises:
      CallboardError: there is no such run.
    """
    return read_experiment(parse_run_reference(policy.weights).run).agent


def read_frozen(policy: FrozenPolicy) -> FrozenWeights:
    """Reads a saved policy.

    Raises:
      CallboardError: there is no such run or checkpoint, or it is damaged.
    """
    reference = parse_run_reference(policy.weights)
    frozen_agent(policy)
    with local_copy(reference.run, reference.checkpoint) as directory:
        return FrozenWeights(saved_spec(directory), read_policy(policy_file(directory, reference.checkpoint)).values)


def check_frozen_policies(experiment: Experiment) -> None:
    """Rejects saved policies that cannot play for the agents that the mappings give them.

    Raises:
      CallboardError: one does not exist, is damaged, or was trained with other spaces.
    """
    for evaluation in (False, True):
        plan = experiment.plan(evaluation)
        if plan is None:
            return
        for name, slots in plan.slots.items():
            policy = plan.policies[name]
            if isinstance(policy, FrozenPolicy):
                _check(name, policy, slots.spec)


def _check(name: str, policy: FrozenPolicy, spec: EnvironmentSpec) -> None:
    found = read_frozen(policy).spec
    if found is not None and (found.observation, found.action) != (spec.observation, spec.action):
        texts = [f"{describe(one.observation)} with {describe(one.action)}" for one in (found, spec)]
        raise CallboardError(
            f"the policy {name!r} cannot play with {policy.weights}, which was trained for {texts[0]}: its agents have "
            f"{texts[1]}"
        )
