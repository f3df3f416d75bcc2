"""The saved or current policies of a run, as players of its evaluations."""

import pathlib
from collections.abc import Callable, Mapping

import numpy as np

from ...agents.agent import Policy
from ...environments import ONLY_AGENT
from ...errors import CallboardError
from ..experiments.checked_run import Run
from ..experiments.parts.acting_part import ActingPart
from ..experiments.policy_plan import PolicyPlan, make_plan
from ..experiments.policy_settings import Snapshots, TrainedPolicy
from ..nodes.evaluation.evaluation_players import EvaluationPlayers, make_evaluated_policies
from ..run_directory.layout import RunDirectory
from ..run_directory.policy_weights import assign_weights, load_weights
from ..saved.saved_policies import check_same_spaces, policy_file
from ..saved.trained_policy_sources import read_trained, trained_agent


def saved_players(
    experiment: ActingPart, run_directory: RunDirectory, checkpoint: str
) -> tuple[EvaluationPlayers, pathlib.Path]:
    """Returns the saved policies of a run as players, and the file that the weights of the first policy come from.

    Args:
      experiment: experiment of the run, perhaps with other settings of evaluations.
      run_directory: directory of the run.
      checkpoint: `best`, `latest` or a learner step, of every policy that learns.

    Raises:
      CallboardError: there is no such checkpoint, or it is damaged.
    """
    agents = experiment.agent_specs()
    if ONLY_AGENT not in agents and not run_directory.policies:
        raise CallboardError(f"{run_directory.path} has one of the policies of a run; evaluate the whole run")
    plan = make_plan(experiment, agents, evaluation=True)
    directories = {name: run_directory.of_policy(name) for name in plan.learning if name in plan.slots}
    files = {
        name: policy_file(directory, checkpoint, list(directories.values())) for name, directory in directories.items()
    }
    for name, directory in directories.items():
        check_same_spaces(
            directory,
            plan.slots[name].spec,
            "the policy cannot act in this environment",
            "name one with the same spaces",
        )

    def load(name: str, policy: Policy) -> None:
        load_weights(files[name], policy.variables)

    return _with_weights(experiment, plan, run_directory, load), next(iter(files.values()))


def current_players(
    experiment: ActingPart, run: Run, weights: Mapping[str, Mapping[str, np.ndarray]]
) -> EvaluationPlayers:
    """Returns the policies of a run as they are now as players.

    Args:
      experiment: experiment of the run, perhaps with other settings of evaluations.
      run: the run.
      weights: weights of the policies that learn, by policy and by name.
    """
    plan = make_plan(experiment, run.agents, evaluation=True)
    return _with_weights(experiment, plan, run.directory, lambda name, policy: assign_weights(policy, weights[name]))


def _with_weights(
    experiment: ActingPart, plan: PolicyPlan, run_directory: RunDirectory, load: Callable[[str, Policy], None]
) -> EvaluationPlayers:
    """Returns the policies of a run with weights as players.

    Args:
      experiment: experiment of the run.
      plan: its policies in evaluations.
      run_directory: has the snapshots.
      load: assigns the weights of a policy that learns, given its name and the policy.
    """
    saved = {name: trained_agent(policy) for name, policy in plan.saved.items()}
    policies, fixed = make_evaluated_policies(experiment, plan, saved)
    for name, (policy, _) in policies.items():
        load(name, policy)
    members: dict[str, list[str]] = {}
    for name, (policy, layout) in fixed.items():
        of_policy, _, number = name.partition("/")
        setting = plan.policies[of_policy]
        if isinstance(setting, TrainedPolicy):
            for variable, value in zip(policy.variables, read_trained(setting).values, strict=True):
                variable.assign(value)
        elif isinstance(setting, Snapshots):
            snapshots = list(run_directory.of_policy(setting.snapshots_of).snapshots_of(of_policy).values())
            if not snapshots:
                raise CallboardError(
                    f"the policy {of_policy!r} has no snapshots in {run_directory.path}: train for longer, or leave it "
                    "out of evaluation_mapping"
                )
            if int(number) >= len(snapshots):
                continue
            load_weights(snapshots[int(number)], policy.variables)
            members.setdefault(of_policy, []).append(name)
        policies[name] = policy, layout

    def choose(policy: str, rng: np.random.Generator) -> str:
        return members[policy][int(rng.integers(len(members[policy])))]

    return EvaluationPlayers(plan, policies, choose)
