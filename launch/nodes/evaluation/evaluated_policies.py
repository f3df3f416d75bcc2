"""The policies that an evaluator plays with: makes them, fetches their weights, and keeps the best of each."""

import contextlib
from collections.abc import Mapping, Sequence

from ....agents.agent import Policy
from ....agents.variables.weights import WeightClient
from ....data import Version
from ...experiments.checked_run import Run
from ...run_directory.best_policy import BestPolicy
from ..acting.fixed_policies import fetch_trained_agents
from ..acting.opponents import Opponents
from ..acting.weight_fetching import fetch_weights, wait_for_weights
from ..node import NodeContext, NodeHandle, Unreachable
from .evaluation_players import EvaluationPlayers, make_evaluated_policies

_CALL_SECONDS = 5.0


def make_players(
    run: Run, learners: Mapping[str, NodeHandle], context: NodeContext
) -> tuple[EvaluationPlayers, dict[str, Policy], Opponents] | None:
    """Builds the policies that an evaluator plays with; their weights have to be fetched.

    Args:
      run: the run.
      learners: handles of the learners, by policy.
      context: context of the evaluator; the result is None if the run stops first.

    Returns:
      All policies, those that learn by name, and what gets the weights of the others.
    """
    plan = run.plan(evaluation=True)
    saved = fetch_trained_agents(plan, learners.values(), context)
    if saved is None:
        return None
    context.progress.works_slowly("building networks")
    learned, fixed = make_evaluated_policies(run.acting, plan, saved)
    variables = {name: policy.variables for name, (policy, _) in fixed.items()}
    opponents = Opponents(list(learners.values()), variables, context)
    players = EvaluationPlayers(plan, {**learned, **fixed}, opponents.choose)
    return players, {name: policy for name, (policy, _) in learned.items()}, opponents


class EvaluatedPolicies:
    """The policies of a run that learn.

    Args:
      run: the run.
      policies: the policies, by name.
      learners: handles of their learners.
      context: context of the evaluator.
    """

    def __init__(
        self, run: Run, policies: Mapping[str, Policy], learners: Mapping[str, NodeHandle], context: NodeContext
    ):
        self._context = context
        self._evaluated = [
            _Evaluated(policies[one.policy], learners[one.policy], BestPolicy(one.directory, context.notify))
            for one in run.policy_runs
            if one.policy in policies
        ]

    def mean_return(self) -> float:
        """Returns the mean return of the best policies so far; -inf if there are none."""
        return min(one.best.mean_return() for one in self._evaluated)

    def fetch(self) -> bool:
        """Applies the newest weights; returns False if a learner does not answer, or the run stops first."""
        for one in self._evaluated:
            self._context.progress.waits(f"weights of {one.learner.name}")
            if not fetch_weights(one.weights, one.learner, self._context):
                return False
        for one in self._evaluated:
            one.weights.apply()
            if one.weights.version is None and not wait_for_weights(one.weights, one.learner, self._context):
                return False
        return True

    @property
    def versions(self) -> list[Version]:
        """The versions of the weights; empty before the first."""
        return [one.weights.version for one in self._evaluated if one.weights.version is not None]

    def final_versions(self) -> list[Version] | None:
        """Returns the final versions of the learners; None while one still learns, or if one does not answer."""
        versions = []
        for one in self._evaluated:
            self._context.progress.waits(f"weights of {one.learner.name}")
            try:
                final = one.learner.client(_CALL_SECONDS).final_version()
            except Unreachable:
                return None
            if final is None:
                return None
            versions.append(Version(*final))
        return versions

    def save_best(self, mean_return: float) -> None:
        """Saves the current weights as the best.

        All files are complete before the first one replaces that of an earlier evaluation.

        Raises:
          OSError: a file could not be written; the best policies are unchanged.
        """
        with contextlib.ExitStack() as drafts:
            for one in self._evaluated:
                assert one.weights.version is not None
                drafts.enter_context(one.best.draft(one.policy, mean_return, one.weights.version.step))


class _Evaluated:
    def __init__(self, policy: Policy, learner: NodeHandle, best: BestPolicy):
        self.policy = policy
        self.learner = learner
        self.best = best
        self.weights = WeightClient(learner.client(_CALL_SECONDS), policy.variables)


def mean_step(versions: Sequence[Version]) -> int:
    """Returns the learner step of a policy, or the mean over several."""
    return round(sum(version.step for version in versions) / max(1, len(versions)))
