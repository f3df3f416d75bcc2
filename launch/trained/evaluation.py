"""Evaluates the policy of an earlier run."""

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ...agents.agent import Policy
from ...agents.policies.acting import BatchPolicy, Episode, Stepper, evaluate
from ...environments import ONLY_AGENT, BatchedEnvironment, environment_seeds, environment_text
from ...environments.batches.episode_metrics import parse_episode_metrics
from ...environments.recorded import EpisodeFiles, EpisodeRecorder, RecordedEnvironment
from ...environments.recorded.chosen_infos import ChosenInfos
from ...environments.recorded.episode_columns import EpisodeColumns
from ...errors import CallboardError, writing
from ...settings.setting_types import UnitInterval, check_ranges, converted
from ..experiments.checked_run import Run
from ..experiments.parts.acting_part import ActingPart, Playing
from ..experiments.policy_plan import PolicyPlan, make_plan
from ..experiments.policy_settings import Snapshots, TrainedPolicy
from ..experiments.recorded_metadata import recorded_metadata
from ..nodes.episodes.episode_watch import WatchedEnvironment
from ..nodes.episodes.joint_episodes import joint_evaluation_metrics
from ..nodes.episodes.metric_windows import evaluation_metrics
from ..nodes.evaluation.evaluation_players import EvaluationPlayers, make_evaluated_policies
from ..nodes.evaluation.evaluation_watch import EvaluationWatch
from ..nodes.evaluation.video import Recorded, make_drawing, record_video
from ..pictures.live_view import check_display, live_view
from ..pictures.video_files import check_video_file
from ..processes.forked_process import check_tensorflow_works
from ..run_directory.layout import RunDirectory
from ..run_directory.policy_weights import assign_weights, load_weights
from ..saved.saved_policies import check_same_spaces, policy_file, read_trained, trained_agent


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    policy: pathlib.Path
    """The file from which the weights were loaded."""
    episodes: list[Episode]
    video: pathlib.Path | None
    video_episodes: list[Episode]
    metrics: dict[str, float]
    """Metrics of the episodes from the environments' infos, as `evaluator/episode/...`; without those of the video."""
    steps: int = 0
    """Environment steps that were played, without those of the video."""
    reward: float = 0.0
    """Sum of the rewards of those steps."""


class Played(NamedTuple):
    """Episodes that were played."""

    episodes: list[Episode]
    metrics: dict[str, float]
    """As in `Evaluation`."""
    steps: int = 0
    """Environment steps, also those of episodes that did not end."""
    reward: float = 0.0
    """Sum of the rewards of those steps."""


def with_evaluation_settings(
    experiment: Playing,
    mode: Literal["greedy", "sampled"] | None = None,
    epsilon: float | None = None,
    seed: int | None = None,
) -> Playing:
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
        agent: Any = experiment.agent
        if agent.evaluation_rate() is None:
            raise CallboardError(
                f"{type(agent).__name__} takes no epsilon, which is for agents that learn action values; "
                "leave it out; the mode sampled samples actions"
            )
        epsilon = converted("epsilon", epsilon, UnitInterval)
        experiment = dataclasses.replace(experiment, agent=dataclasses.replace(agent, evaluation_epsilon=epsilon))
    if seed is not None:
        experiment = dataclasses.replace(experiment, seed=seed)
    if mode is not None:
        mode = converted("mode", mode, Literal["greedy", "sampled"])
        experiment = dataclasses.replace(experiment, evaluation_mode=mode)
    check_ranges(experiment)
    experiment.evaluation_policy_mode()
    return experiment


def evaluate_run(
    experiment: ActingPart,
    run_directory: RunDirectory,
    episodes: int,
    checkpoint: str,
    video_episodes: int,
    notify: Callable[[str], None],
    steps: int | None = None,
    live: bool = False,
    record: pathlib.Path | None = None,
    record_infos: Sequence[str] = (),
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
      steps: number of environment steps to play instead of whole episodes, without metrics from infos; None for
        episodes.
      live: whether to play in one environment alone and show it in a window; the user ends it by closing the window.
      record: folder of the data set to which the episodes are appended, see `EpisodeFiles`; None for none.
      record_infos: names of infos that are recorded with them, see `parse_record_infos`.

    Raises:
      CallboardError: there is no such checkpoint, the environment cannot render, there is no display, or the episodes
        cannot be recorded.
    """
    if live:
        check_display("--video")
    path = run_directory.videos / f"{checkpoint}.mp4"
    if video_episodes:
        check_video_file(path)
    players, weights = saved_players(experiment, run_directory, checkpoint)
    if live:
        played = _play_live(experiment, players, episodes, steps)
    elif steps is not None:
        played = _play_steps(experiment, players, steps)
    else:
        played = play_episodes(experiment, players, episodes, notify, record, record_infos)
    amount = played.steps, played.reward
    if not video_episodes:
        return Evaluation(weights, played.episodes, None, [], played.metrics, *amount)
    recorded = record_video(experiment, players, path, video_episodes, notify)
    return Evaluation(weights, played.episodes, path, recorded, played.metrics, *amount)


def play_episodes(
    experiment: ActingPart,
    players: EvaluationPlayers,
    episodes: int,
    notify: Callable[[str], None],
    record: pathlib.Path | None = None,
    record_infos: Sequence[str] = (),
) -> Played:
    """Plays whole episodes, the same number in each of up to `evaluation_envs` environments.

    Args:
      experiment: defines the environments.
      players: what acts, in environments that it makes.
      episodes: number of episodes.
      notify: receives a line for the user if an episode takes long.
      record: see `evaluate_run`.
      record_infos: see `evaluate_run`.
    """
    envs = experiment.evaluation_batch(episodes)
    environment, policy = players.make(experiment, envs)
    if record is not None:
        if ONLY_AGENT not in players.plan.slots:
            environment.close()
            raise CallboardError("episodes of several agents are recorded in training alone: leave the recording out")
        environment = _recorded(experiment, environment, record, episodes // envs, notify, record_infos)
    metrics, watched = parse_episode_metrics(experiment.episode_metrics), None
    if metrics:
        environment = watched = WatchedEnvironment(environment, metrics, notify=notify)
    watch = EvaluationWatch(episodes, math.inf, lambda: False, notify, experiment)
    try:
        played = evaluate(environment, policy, episodes, watch.stopped, watch.episode_ended)
        found = {} if watched is None else evaluation_metrics(watched.take_ended(), episodes // envs)
        found |= joint_evaluation_metrics(policy.view.take_episodes(), episodes // envs)
        steps, reward = (sum(getattr(one, name) for one in played) for name in ("length", "episode_return"))
        return Played(played, found, steps, reward)
    finally:
        environment.close()


def _recorded(
    experiment: ActingPart,
    environment: BatchedEnvironment,
    folder: pathlib.Path,
    quota: int,
    notify: Callable[[str], None],
    infos: Sequence[str],
) -> BatchedEnvironment:
    """Returns environments that append their first `quota` episodes each to a data set, with infos of these names."""
    try:
        if infos:
            environment.keep_infos()
        metadata = recorded_metadata(experiment.agent, experiment, experiment.seed)
        with writing(folder):
            files = EpisodeFiles(folder, environment.spec, metadata, math.inf)
    except CallboardError:
        environment.close()
        raise

    def append(episodes: Sequence[EpisodeColumns]) -> bool:
        with writing(folder):
            return files.append(episodes)

    seeds: list[int | None] = [None] * environment.batch_size
    if environment.has_own_seeds:
        seeds = list(environment_seeds(experiment.seed, "evaluator", 0, len(seeds)))
    chosen = ChosenInfos(infos, environment_text(experiment.env), notify) if infos else None
    recorder = EpisodeRecorder(environment.spec, seeds, append, notify, quota, chosen)
    return RecordedEnvironment(environment, recorder)


def _play_steps(experiment: ActingPart, players: EvaluationPlayers, steps: int) -> Played:
    environment, policy = players.make(experiment, min(steps, experiment.evaluation_batch()))
    with contextlib.closing(environment):
        return _play(environment, policy, lambda played: played.steps >= steps)


def _play_live(experiment: ActingPart, players: EvaluationPlayers, episodes: int, steps: int | None) -> Played:
    def enough(played: Played) -> bool:
        return view.closed or (len(played.episodes) >= episodes if steps is None else played.steps >= steps)

    environment, policy = make_drawing(experiment, players, hidden=False)
    with contextlib.closing(environment):
        with live_view(f"{experiment.env} - Callboard", environment.frames_per_second) as view:
            return _play(Recorded(environment, view.show), policy, enough)


def _play(environment: BatchedEnvironment, policy: BatchPolicy, enough: Callable[[Played], bool]) -> Played:
    """Plays until there is enough; then unfinished episodes are left."""
    stepper = Stepper(environment)
    played = Played([], {})
    while not enough(played):
        action, _ = policy(stepper.timestep)
        played.episodes.extend(stepper.step(action))
        reward = played.reward + float(stepper.timestep.reward.sum())
        played = Played(played.episodes, {}, stepper.environment_steps, reward)
    return played


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
    check_tensorflow_works()
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
