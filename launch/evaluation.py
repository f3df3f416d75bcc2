"""Evaluates the policy of an earlier run."""

import dataclasses
import math
import pathlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from ..agents.acting import CompiledPolicy, Episode, evaluate
from ..environments.episode_metrics import parse_episode_metrics
from ..errors import CallboardError
from .experiment import Experiment
from .nodes.acting_setup import make_environments
from .nodes.episode_watch import WatchedEnvironment
from .nodes.evaluation_watch import EvaluationWatch
from .nodes.metric_windows import evaluation_metrics
from .run_directory.layout import RunDirectory
from .saved_policies import policy_file, restored_policy
from .video import record_video


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    policy: pathlib.Path
    """The file from which the weights were loaded."""
    episodes: list[Episode]
    video: pathlib.Path | None
    video_episodes: list[Episode]
    metrics: dict[str, float]
    """Metrics of the episodes from the environments' infos, as `evaluator/episode/...`; without those of the video."""


class Played(NamedTuple):
    """Episodes that were played."""

    episodes: list[Episode]
    metrics: dict[str, float]
    """As in `Evaluation`."""


def with_evaluation_settings(
    experiment: Experiment,
    mode: Literal["greedy", "sampled"] | None = None,
    epsilon: float | None = None,
    seed: int | None = None,
) -> Experiment:
    """Returns the experiment with other evaluation settings; None leaves a setting unchanged.

    Args:
      experiment: experiment of the run.
      mode: `greedy` or `sampled`.
      epsilon: the agent's `evaluation_epsilon`, for agents that learn action values.
      seed: seed of the environments and of sampled actions.

    Raises:
      CallboardError: the agent has no such setting, or its value is out of range.
    """
    if epsilon is not None:
        if not hasattr(experiment.agent, "evaluation_epsilon"):
            raise CallboardError(
                f"{type(experiment.agent).__name__} takes no epsilon, which is for agents that learn action values; "
                "leave it out, or set the mode to sampled"
            )
        if not 0 <= epsilon <= 1:
            raise CallboardError(f"epsilon must lie between 0 and 1, not {epsilon:g}")
        agent: Any = experiment.agent
        experiment = dataclasses.replace(experiment, agent=dataclasses.replace(agent, evaluation_epsilon=epsilon))
    if seed is not None:
        if not 0 <= seed < 2**31:
            raise CallboardError(f"seed must lie between 0 and {2**31 - 1}, not {seed}")
        experiment = dataclasses.replace(experiment, seed=seed)
    if mode is not None:
        experiment = dataclasses.replace(experiment, evaluation_mode=mode)
    experiment.evaluation_policy_mode()
    return experiment


def evaluate_run(
    experiment: Experiment,
    run_directory: RunDirectory,
    episodes: int,
    checkpoint: str,
    video_episodes: int,
    notify: Callable[[str], None],
) -> Evaluation:
    """Plays whole episodes with the policy of a run, the same number in each of up to `evaluation_envs` environments.

    The seeds are those of the run's evaluator: every call plays the same episodes.

    Args:
      experiment: experiment of the run, see `with_evaluation_settings`.
      run_directory: directory of the run.
      episodes: number of episodes to play.
      checkpoint: `best`, `latest` or a learner step.
      video_episodes: number of additional episodes to play in one environment and record as MP4; 0 for no video.
      notify: receives a line for the user.

    Raises:
      CallboardError: there is no such checkpoint, or the environment cannot render.
    """
    weights = policy_file(run_directory, checkpoint)
    layout = experiment.acting_layout()
    policy = restored_policy(experiment, layout, weights)

    def compiled_for(count: int) -> CompiledPolicy:
        return CompiledPolicy(policy, layout, np.arange(count), experiment.seed)

    played = play_episodes(experiment, compiled_for, episodes, notify)
    if not video_episodes:
        return Evaluation(weights, played.episodes, None, [], played.metrics)
    path = run_directory.videos / f"{checkpoint}.mp4"
    recorded = record_video(experiment, compiled_for(1), path, video_episodes, notify)
    return Evaluation(weights, played.episodes, path, recorded, played.metrics)


def play_episodes(
    experiment: Experiment,
    compiled_for: Callable[[int], CompiledPolicy],
    episodes: int,
    notify: Callable[[str], None],
) -> Played:
    """Plays whole episodes, the same number in each of up to `evaluation_envs` environments.

    Args:
      experiment: defines the environments.
      compiled_for: returns the policy for a number of environments.
      episodes: number of episodes.
      notify: receives a line for the user if an episode takes long.
    """
    envs = max(count for count in range(1, min(episodes, experiment.evaluation_envs) + 1) if episodes % count == 0)
    environment = make_environments(experiment, "evaluator", 0, envs)
    metrics, watched = parse_episode_metrics(experiment.episode_metrics), None
    if metrics:
        environment = watched = WatchedEnvironment(environment, metrics, notify=notify)
    watch = EvaluationWatch(episodes, math.inf, lambda: False, notify)
    try:
        played = evaluate(environment, compiled_for(envs), episodes, watch.stopped, watch.episode_ended)
        found = {} if watched is None else evaluation_metrics(watched.take_ended(), episodes // envs)
        return Played(played, found)
    finally:
        environment.close()
