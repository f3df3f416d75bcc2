"""Parts of an evaluator node: policies, environments of evaluations, and recorders of their videos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ....agents.policies.joint_policy import JointPolicy
from ....environments import BatchedEnvironment
from ....environments.batches.episode_metrics import parse_episode_metrics
from ...experiments.checked_run import Run
from ..acting.opponents import Opponents
from ..episodes.episode_watch import WatchedEnvironment
from ..node import NodeContext, NodeHandle
from ..progress import MarkedEnvironment
from .evaluated_policies import EvaluatedPolicies, make_players

if TYPE_CHECKING:
    from .evaluation_videos import EvaluationVideos


class PreparedEvaluator(NamedTuple):
    """Parts of an evaluator node."""

    policies: EvaluatedPolicies
    """The policies that learn: fetches their weights and keeps the best."""
    opponents: Opponents
    """Gets the weights of the others."""
    acting: JointPolicy
    """Acts with all of them."""
    environment: BatchedEnvironment
    """The environments of evaluations."""
    watched: WatchedEnvironment | None
    """Collects metrics of its episodes; None if there are none."""
    videos: EvaluationVideos | None
    """Takes videos after evaluations; None if none are wanted."""

    def close(self) -> None:
        """Closes the environments."""
        if self.videos is not None:
            self.videos.close()
        self.environment.close()


def prepare_evaluator(context: NodeContext, run: Run, learners: Mapping[str, NodeHandle]) -> PreparedEvaluator | None:
    """Builds what an evaluator consists of; weights have to be fetched.

    Args:
      context: context of the node; the result is None if the run stops first.
      run: the run.
      learners: handles of the learners, by policy.
    """
    progress = context.progress
    progress.works_slowly("building networks")
    found = make_players(run, learners, context)
    if found is None:
        return None
    players, learned, opponents = found
    policies = EvaluatedPolicies(run, learned, learners, context)
    progress.works_slowly("making environments")
    environment, acting = players.make(run.acting, run.evaluation.evaluation_batch())
    metrics = parse_episode_metrics(run.episodes.episode_metrics)
    watched = WatchedEnvironment(environment, metrics) if metrics else None
    videos = None
    if run.evaluation.video_every is not None:
        # Takes long to import.
        from .evaluation_videos import EvaluationVideos

        videos = EvaluationVideos(
            run.acting,
            players,
            run.directory,
            context.notify,
            lambda environment: MarkedEnvironment(environment, progress),
        )
    stepped = MarkedEnvironment(watched or environment, progress)
    return PreparedEvaluator(policies, opponents, acting, stepped, watched, videos)
