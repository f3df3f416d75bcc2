"""Trains in pieces: a curriculum by the rate of success, an own metric, a warm start, and a plot of three seeds.

Run from the root of the repository:

    python -m examples.open_run DIRECTORY
"""

import pathlib
import sys

from callboard import Callbacks, Experiment, Session, load_policy
from callboard.agents.ppo import Ppo
from callboard.callbacks import CallbackRun, EpisodeView
from callboard.studies.comparison.comparison import ComparisonSettings, compare, group_runs
from callboard.studies.comparison.curve_plots import plot_curves
from callboard.studies.comparison.run_results import read_results


class Progress(Callbacks):
    """Logs how many dials of the lock an episode has turned."""

    def on_episode_end(self, run: CallbackRun, episode: EpisodeView) -> dict[str, float]:
        return {"dials": episode.info["dial"]}


def train(run_dir: pathlib.Path, seed: int, length: int, begin_from: str | None = None) -> pathlib.Path:
    """Trains a run in pieces, and returns its last checkpoint."""
    experiment = Experiment(
        Ppo(),
        env="examples.combination_lock:CombinationLock",
        env_options={"length": length},
        callbacks=Progress(),
        episode_metrics="opened",
        init_from=begin_from,
        seed=seed,
        evaluate_every=5_000,
        max_steps=300_000,
        run_dir=run_dir,
    )
    with Session(experiment, launcher="threads") as session:
        for start in range(length - 3, -1, -3):
            session.update(task={"start": start})
            while session.train(steps=3_000).metrics["episode/opened"] < 0.8:
                pass
        session.update(learning_rate=1e-4)
        result = session.train(steps=6_000)
        print(f"seed {seed}: {session.evaluate(20).mean:.2f} after {result.environment_steps:,} steps")
        return session.save()


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    checkpoints = [train(folder / "three-seeds" / str(seed), seed, length=12) for seed in (1, 2, 3)]
    train(folder / "warm", seed=1, length=12, begin_from=str(folder / "three-seeds" / "1"))
    print("action of the first policy:", load_policy(checkpoints[0])(0)[0])
    results = read_results([str(folder / "three-seeds")])
    plot_curves(compare(group_runs(results.runs), ComparisonSettings(goal=1.0)), folder / "curves.png")
