"""Metrics for Weights & Biases."""

import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

import wandb

from .metric_logger import LoggedRun, MetricLogger

_ID = "wandb"


class WandbLogger(MetricLogger):
    """Sends metrics and videos of evaluations to Weights & Biases, with `environment_steps` as the step.

    W&B's environment variables apply: `WANDB_PROJECT` (`callboard` by default), `WANDB_MODE=offline`, `WANDB_API_KEY`
    and so on.  A resumed run continues the same W&B run.
    """

    def __init__(self) -> None:
        self._run: Any = None
        self._videos: pathlib.Path | None = None
        self._sent: set[str] = set()

    def start(self, run: LoggedRun) -> None:
        self._videos = run.directory / "videos"
        # Those of the part of the run before a resume have been sent.
        self._sent = {path.name for path in self._new_videos()}
        settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
        known = run.recall(_ID)
        self._run = wandb.init(
            project=settings.project or "callboard",
            name=run.name,
            dir=str(run.directory),
            config=dict(run.settings),
            id=known or uuid.uuid4().hex[:8],
            resume="allow" if known else None,
            settings=settings,
        )
        if not known:
            run.keep(_ID, self._run.id)
        self._run.define_metric("*", step_metric="environment_steps")

    def write(self, row: Mapping[str, Any]) -> None:
        self._run.log(dict(row))
        self._send_videos()

    def close(self) -> None:
        if self._run is not None:
            self._send_videos()
            self._run.finish()
        # Ends the process of the library.
        wandb.teardown()

    def _send_videos(self) -> None:
        for path in self._new_videos():
            self._sent.add(path.name)
            steps = int(path.stem.rpartition("-")[2])
            self._run.log({"environment_steps": steps, "videos/evaluation": wandb.Video(str(path))})

    def _new_videos(self) -> list[pathlib.Path]:
        """Returns the videos that were not sent, the oldest first; files appear complete."""
        there = [] if self._videos is None else sorted(self._videos.glob("evaluation-*.mp4"))
        return [path for path in there if path.name not in self._sent]
