"""Runs of which only the settings and the metrics exist, written as a real run writes them."""

from callboard.launch.experiments.settings import parse_experiment, write_experiment
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.metrics import MetricsWriter


def write_metrics(path, evaluations, elapsed=None, total=None):
    """Writes evaluations, rows of training before each, and a last row.

    Args:
      path: the run directory.
      evaluations: environment steps and mean return of each.
      elapsed: seconds of each on the coordinator's clock; by default a thousandth of its steps.
      total: environment steps at the end of the run; by default those of the last evaluation.
    """
    writer = MetricsWriter(RunDirectory(path))
    last = {}
    for number, (steps, value) in enumerate(evaluations):
        seconds = steps / 1000 if elapsed is None else elapsed[number]
        row = {"time": 1e9 + seconds, "elapsed_seconds": float(seconds), "environment_steps": steps}
        writer.write({**row, "learner/loss": 1.0 / (1 + number), **last})
        last = {"evaluator/return": value, "evaluator/return_std": abs(value) / 10}
        last |= {"evaluator/environment_steps": steps, "evaluator/learner_step": number + 1}
        writer.write({**row, **last})
    if total is not None:
        writer.write({"time": 2e9, "elapsed_seconds": total / 1000, "environment_steps": total, **last})
    writer.close()


def write_run(path, evaluations, seed=1, agent="impala", env="CartPole-v1", options=(), **metrics):
    """Writes a run, see `write_metrics`; returns its path as text."""
    settings = [f"--env={env}", f"--seed={seed}", f"--run-dir={path}", *options]
    run = RunDirectory(path)
    run.create()
    write_experiment(parse_experiment(agent, {}, settings), run.experiment)
    write_metrics(path, evaluations, **metrics)
    return str(path)
