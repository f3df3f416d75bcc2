"""Plots the returns of runs against environment steps, from their `metrics.jsonl`.

python examples/plot_run.py runs/a [runs/b ...] --output returns.png
"""

import argparse
import json
import pathlib

import matplotlib
import matplotlib.pyplot as plt

LABELS = {"actor/episode_return": "training episodes", "evaluator/return": "evaluation"}


def points(run: pathlib.Path, metric: str) -> tuple[list[int], list[float]]:
    """Returns the environment steps at which the metric was written, and its values."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [(row["environment_steps"], row[metric]) for row in rows if row.get(metric) is not None]
    steps, values = zip(*found, strict=True) if found else ((), ())
    return list(steps), list(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=pathlib.Path, help="run directories")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("returns.png"), help="the picture")
    parser.add_argument("--title", default="")
    settings = parser.parse_args()
    matplotlib.use("Agg")
    figure, axes = plt.subplots(figsize=(7, 4))
    for run in settings.runs:
        name = f"{run.name}, " if len(settings.runs) > 1 else ""
        for metric, label in LABELS.items():
            axes.plot(*points(run, metric), label=name + label, marker="o" if "evaluator" in metric else None)
    axes.set(xlabel="environment steps", ylabel="return", title=settings.title)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    figure.tight_layout()
    figure.savefig(settings.output, dpi=110)


if __name__ == "__main__":
    main()
