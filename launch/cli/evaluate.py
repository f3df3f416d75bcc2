"""`callboard evaluate`: plays with the policy of a run."""

import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from ...errors import CallboardError
from ..run_directory.remote_storage import local_copy
from .command_parser import CommandParser
from .experiment_options import split_options
from .run_arguments import add_run_arguments, read_run


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser(
        "callboard evaluate",
        description="Plays with the policy of a run.",
        epilog="--env-options.NAME VALUE changes an option of the run's environment, --no-env-options.NAME removes it.",
    )
    add_run_arguments(parser)
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="number of whole episodes (20)")
    parser.add_argument(
        "--mode", choices=("greedy", "sampled"), help="best actions, or actions sampled from the policy; as in the run"
    )
    parser.add_argument("--epsilon", type=float, help="rate of random actions, for agents that learn action values")
    parser.add_argument("--seed", type=int, help="the run's own by default, so that the same episodes are played again")
    parser.add_argument("--video", action="store_true", help="record whole episodes as MP4 under RUN/videos")
    parser.add_argument("--video-episodes", type=int, default=1, metavar="N", help="episodes in the video (1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    env_options, others = split_options(arguments, ["env_options"])
    known = parser.parse_args(others)
    for option, number in (("--episodes", known.episodes), ("--video-episodes", known.video_episodes)):
        if number < 1:
            raise CallboardError(f"{option} must be at least 1, not {number}")
    experiment = read_run(known.run, env_options)
    from ..evaluation import evaluate_run, with_evaluation_settings

    experiment = with_evaluation_settings(experiment, known.mode, known.epsilon, known.seed)

    def notify(text: str) -> None:
        print(text, file=sys.stderr)

    with local_copy(known.run, known.checkpoint) as directory:
        video_episodes = known.video_episodes if known.video else 0
        result = evaluate_run(experiment, directory, known.episodes, known.checkpoint, video_episodes, notify)
    policy, video = (
        path and f"{known.run}/{path.relative_to(directory.path)}" for path in (result.policy, result.video)
    )
    returns = [episode.episode_return for episode in result.episodes]
    summary: dict[str, Any] = {
        "mean": statistics.fmean(returns),
        "std": statistics.pstdev(returns),
        "min": min(returns),
        "max": max(returns),
        "episodes": len(returns),
        "mean_length": statistics.fmean(episode.length for episode in result.episodes),
        "policy": policy,
        "video": video,
        "video_returns": [episode.episode_return for episode in result.video_episodes],
        "mode": experiment.evaluation_mode,
        "epsilon": getattr(experiment.agent, "evaluation_epsilon", None),
        "seed": experiment.seed,
        "env_options": experiment.env_options,
        "episode_metrics": {name.removeprefix("evaluator/episode/"): value for name, value in result.metrics.items()},
    }
    if known.json:
        print(json.dumps({**summary, "returns": returns}))
        return 0
    print(" ".join(f"{value:g}" for value in returns))
    print(
        f"mean {summary['mean']:.1f} ± {summary['std']:.1f} over {len(returns)} episodes "
        f"(from {summary['min']:g} to {summary['max']:g}), of {summary['mean_length']:.0f} steps"
    )
    for name, value in summary["episode_metrics"].items():
        if f"{name}_min" in summary["episode_metrics"]:
            low, high = (summary["episode_metrics"][f"{name}{end}"] for end in ("_min", "_max"))
            print(f"{name} {value:g} (from {low:g} to {high:g})")
    if video:
        shown = " ".join(f"{value:g}" for value in summary["video_returns"])
        print(f"video: {video} (episodes with a return of {shown})")
    return 0
