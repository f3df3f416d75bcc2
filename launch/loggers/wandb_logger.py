"""Metrics for Weights & Biases."""

from collections.abc import Mapping
from typing import Any

import wandb

from .metric_logger import LoggedRun, MetricLogger

_ID = "wandb"


class WandbLogger(MetricLogger):
    """Sends metrics to Weights & Biases, with `environment_steps` as the step.

    W&B's environment variables apply: `WANDB_PROJECT` (`callboard` by default), `WANDB_MODE=offline`, `WANDB_API_KEY`
    and so on.  A resumed run continues the same W&B run.
    """

    def __init__(self) -> None:
        self._run: Any = None

    def start(self, run: LoggedRun) -> None:
        settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
        known = run.recall(_ID)
        self._run = wandb.init(
            project=settings.project or "callboard",
            name=run.name,
            dir=str(run.directory),
            config=dict(run.settings),
            id=known or wandb.util.generate_id(),
            resume="allow" if known else None,
            settings=settings,
        )
        if not known:
            run.keep(_ID, self._run.id)
        self._run.define_metric("*", step_metric="environment_steps")

    def write(self, row: Mapping[str, Any]) -> None:
        self._run.log(dict(row))

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
        # Ends the process of the library.
        wandb.teardown()
