"""`callboard evaluate`: plays with the policy of a run."""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..environments.recorded import parse_record_infos, require_minari
from ..errors import CallboardError, counted, printable, with_deviation
from ..launch.experiments.experiment_checks import check_tasks
from ..launch.pictures.live_view import check_display
from ..launch.run_directory.found_runs import RunReference, runs_in
from ..launch.run_directory.remote_storage import is_url
from .command_parser import CommandParser
from .experiment_options import split_options
from .run_arguments import add_run_arguments, chosen_run, named_reference, notify, read_run

_EPISODE = "evaluator/episode/"
_EPISODES = 20
_SETTINGS = ("env", "env_options", "env_python", "env_wrappers", "evaluation_mapping", "evaluation_task", "policies")
"""Settings of the run that may be others in its evaluation."""


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard evaluate",
        description="Plays with the policy of a run, or of each run in a folder, such as one of seeds.",
        epilog="--env NAME plays in another environment with the same spaces; "
        "--env-options.NAME VALUE changes an option of the environment, --no-env-options.NAME removes it; "
        "--env-wrappers sets its wrappers, --env-python its interpreter; "
        "--evaluation-task VALUE sets the environments' task; --evaluation-mapping and --policies change who plays, if "
        "there are several policies.",
    )
    add_run_arguments(parser)
    parser.add_argument("--episodes", type=int, metavar="N", help="number of whole episodes (20)")
    parser.add_argument("--steps", type=int, metavar="N", help="number of environment steps instead of whole episodes")
    parser.add_argument(
        "--render", choices=("human",), help="human: play in one environment and show it in a window while it is played"
    )
    parser.add_argument(
        "--mode", choices=("greedy", "sampled"), help="best actions, or actions sampled from the policy; as in the run"
    )
    parser.add_argument("--epsilon", type=float, help="rate of random actions, for agents that learn action values")
    parser.add_argument("--seed", type=int, help="the run's own by default, so that the same episodes are played again")
    parser.add_argument("--video", action="store_true", help="record whole episodes as MP4 under RUN/videos")
    parser.add_argument("--video-episodes", type=int, default=1, metavar="N", help="episodes in the video (1)")
    parser.add_argument(
        "--record", metavar="PATH", help="append the episodes to a Minari data set, such as data/pendulum-expert-v0"
    )
    parser.add_argument(
        "--record-infos",
        default="",
        metavar="NAMES",
        help="infos of the environment that --record stores too, such as success,distance",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    settings, others = split_options(arguments, _SETTINGS)
    known = parser.parse_args(others)
    for name in ("episodes", "steps", "video_episodes"):
        number = getattr(known, name)
        if number is not None and number < 1:
            raise CallboardError(f"--{name.replace('_', '-')} must be at least 1, not {number}")
    if known.episodes is not None and known.steps is not None:
        raise CallboardError("--episodes and --steps are two measures of how much to play; leave one of them out")
    if known.record is not None:
        if known.steps is not None or known.render is not None:
            raise CallboardError("--record records whole episodes of a batch: leave --steps and --render out")
        require_minari("--record")
    elif parse_record_infos(known.record_infos):
        raise CallboardError("--record-infos names infos of recorded episodes: name their data set with --record")
    if known.render is not None:
        check_display("--video")
    runs = _runs(named_reference(known))
    if len(runs) > 1:
        return _evaluate_all(runs, known, settings)
    summary = _play(runs[0], known, settings)
    if known.json:
        print(json.dumps(summary))
    else:
        _print(summary, known.steps is not None)
    return 0


def _evaluate_all(runs: Sequence[RunReference], known: argparse.Namespace, settings: Sequence[str]) -> int:
    """Evaluates several runs; returns 1 if one of them could not be."""
    summaries = {}
    for reference in runs:
        run = reference.run
        try:
            summaries[run] = _play(reference, known, settings)
        except CallboardError as error:
            print(printable(f"callboard: {run} is left out: {error}"), file=sys.stderr)
            continue
        if not known.json:
            print(f"{printable(run)}:")
            _print(summaries[run], known.steps is not None)
    means = [summary["mean"] for summary in summaries.values() if summary["mean"] is not None]
    if known.json:
        print(json.dumps({"runs": summaries}))
    elif len(means) > 1:
        print(f"mean of {len(means)} runs {with_deviation(statistics.fmean(means), statistics.stdev(means))}")
    return int(len(summaries) < len(runs))


def _runs(reference: RunReference) -> list[RunReference]:
    """Returns the run, or those in a folder, such as one of seeds."""
    name = reference.run
    if is_url(name) or os.path.lexists(os.path.join(name, "experiment.yaml")):
        return [reference]
    return [reference._replace(run=run) for run in runs_in(name)] or [reference]


def _play(reference: RunReference, known: argparse.Namespace, settings: Sequence[str]) -> dict[str, Any]:
    """Plays with the policy of a run; returns what it has reached."""
    run = reference.run
    with stdout_to_stderr():  # Results are alone on stdout, whatever an environment prints.
        played = read_run(run, settings, known.trust)
        with chosen_run(reference, of_all=True) as (directory, checkpoint):
            experiment = played.experiment()
            from ..launch.trained.evaluation import evaluate_run, with_evaluation_settings

            experiment = with_evaluation_settings(experiment, known.mode, known.epsilon, known.seed)
            if experiment.evaluation_task is not None:
                check_tasks(experiment, [experiment.evaluation_task])
            video_episodes = known.video_episodes if known.video else 0
            result = evaluate_run(
                experiment,
                directory,
                _EPISODES if known.episodes is None else known.episodes,
                checkpoint,
                video_episodes,
                notify,
                known.steps,
                live=known.render is not None,
                record=None if known.record is None else pathlib.Path(os.path.abspath(known.record)),
                record_infos=parse_record_infos(known.record_infos),
            )
    policy, video = (path and f"{run}/{path.relative_to(directory.path)}" for path in (result.policy, result.video))
    agent, episodes = experiment.agent, result.episodes
    returns = [episode.episode_return for episode in episodes]
    return {
        "mean": statistics.fmean(returns) if returns else None,
        "std": statistics.pstdev(returns) if returns else None,
        "min": min(returns, default=None),
        "max": max(returns, default=None),
        "episodes": len(returns),
        "mean_length": statistics.fmean(episode.length for episode in episodes) if episodes else None,
        "steps": result.steps,
        "mean_reward": result.reward / max(1, result.steps),
        "policy": policy,
        "video": video,
        "video_returns": [episode.episode_return for episode in result.video_episodes],
        "mode": experiment.evaluation_mode,
        "epsilon": agent.evaluation_rate(),
        "seed": experiment.seed,
        "env_options": experiment.env_options,
        "episode_metrics": {
            name.removeprefix(_EPISODE): value for name, value in result.metrics.items() if name.startswith(_EPISODE)
        },
        "by_policy": {
            name.removeprefix("evaluator/"): value
            for name, value in result.metrics.items()
            if not name.startswith(_EPISODE)
        },
        "returns": returns,
    }


def _print(summary: Mapping[str, Any], counts_steps: bool) -> None:
    returns = summary["returns"]
    if returns:
        print(" ".join(f"{value:g}" for value in returns))
        print(
            f"mean {with_deviation(summary['mean'], summary['std'])} over {counted(len(returns), 'episode')} "
            f"(from {summary['min']:g} to {summary['max']:g}), of {summary['mean_length']:.0f} steps"
        )
    if counts_steps or not returns:
        ended = counted(len(returns), "episode") if returns else "no episode"
        print(f"{summary['steps']:,} steps, in which {ended} ended; mean reward of a step {summary['mean_reward']:.4g}")
    for name, value in summary["episode_metrics"].items():
        if f"{name}_min" in summary["episode_metrics"]:
            low, high = (summary["episode_metrics"][f"{name}{end}"] for end in ("_min", "_max"))
            print(printable(f"{name} {value:g} (from {low:g} to {high:g})"))
    for name, value in summary["by_policy"].items():
        print(printable(f"{name} {value:g}"))
    if summary["video"]:
        shown = " ".join(f"{value:g}" for value in summary["video_returns"])
        count = len(summary["video_returns"])
        what = "1 further episode with a return" if count == 1 else f"{count} further episodes with returns"
        print(printable(f"video: {summary['video']} ({what} of {shown}; --video-episodes sets how many)"))


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Sends to stderr what is printed meanwhile, by Python, by libraries in C and by processes that are started."""
    printed, stdout = sys.stdout, os.dup(1)
    printed.flush()
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        printed.flush()  # An environment may have kept it.
        ctypes.CDLL(None).fflush(None)  # What C has printed is in its buffer, unless stdout is a terminal.
        os.dup2(stdout, 1)
        os.close(stdout)
