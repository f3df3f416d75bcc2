"""The policies that an evaluator plays with: makes them, fetches their weights, and keeps the best of each."""

import contextlib
from collections.abc import Mapping, Sequence

from ....agents.agent import Policy
from ....agents.weights import WeightClient
from ....data import Version
from ...experiments.checked_run import Run
from ...run_directory.best_policy import BestPolicy
from ..acting.frozen_policies import fetch_frozen_agents
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
    saved = fetch_frozen_agents(plan, learners.values(), context)
    if saved is None:
        return None
    context.progress.works_slowly("building networks")
    learned, frozen = make_evaluated_policies(run.experiment, plan, saved)
    variables = {name: policy.variables for name, (policy, _) in frozen.items()}
    opponents = Opponents(list(learners.values()), variables, context)
    players = EvaluationPlayers(plan, {**learned, **frozen}, opponents.choose)
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
        self._parts = [
            _Evaluated(policies[part.policy], learners[part.policy], BestPolicy(part.directory, context.notify))
            for part in run.parts
            if part.policy in policies
        ]

    def mean_return(self) -> float:
        """Returns the mean return of the best policies so far; -inf if there are none."""
        return min(part.best.mean_return() for part in self._parts)

    def fetch(self) -> bool:
        """Applies the newest weights; returns False if a learner does not answer, or the run stops first."""
        if not all([fetch_weights(part.weights, part.learner) for part in self._parts]):
            return False
        for part in self._parts:
            part.weights.apply()
            if part.weights.version is None and not wait_for_weights(part.weights, part.learner, self._context):
                return False
        return True

    @property
    def versions(self) -> list[Version]:
        """The versions of the weights; empty before the first."""
        return [part.weights.version for part in self._parts if part.weights.version is not None]

    def final_versions(self) -> list[Version] | None:
        """Returns the final versions of the learners; None while one still learns, or if one does not answer."""
        versions = []
        for part in self._parts:
            self._context.progress.waits(f"weights of {part.learner.name}")
            try:
                final = part.learner.client(_CALL_SECONDS).final_version()
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
            for part in self._parts:
                assert part.weights.version is not None
                drafts.enter_context(part.best.draft(part.policy, mean_return, part.weights.version.step))


class _Evaluated:
    def __init__(self, policy: Policy, learner: NodeHandle, best: BestPolicy):
        self.policy = policy
        self.learner = learner
        self.best = best
        self.weights = WeightClient(learner.client(_CALL_SECONDS), policy.variables)


def mean_step(versions: Sequence[Version]) -> int:
    """Returns the learner step of a policy, or the mean over several."""
    return round(sum(version.step for version in versions) / max(1, len(versions)))
