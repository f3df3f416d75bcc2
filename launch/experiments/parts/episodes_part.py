"""Tasks, callbacks and metrics of episodes."""

import dataclasses
from typing import Any

from ....callbacks import Callbacks
from ....environments.batches.episode_metrics import parse_episode_metrics
from ....settings.callback_settings import check_callbacks, overridden
from ..curriculum import Stage, depends_on_episodes


@dataclasses.dataclass(frozen=True)
class EpisodesPart:
    """Tasks, callbacks and metrics of episodes.

    Attributes:
      episode_metrics: metrics of episodes from the environment's infos, a list or separated by commas: `distance` for
        the last value of an episode, `distance:sum` for the sum over its steps, `distance:histogram` also for the
        distribution.  See docs/guides/callback.md.
      callbacks: classes of callbacks, `package.module:Class`, a list or separated by commas; in YAML with arguments as
        `{name: package.module:Class, argument: value}`.  See docs/guides/callback.md.
      curriculum: stages of the environments' tasks, see docs/guides/curriculum.md; a list of `{task: ..., steps: ...}`
        or `{task: ..., when: METRIC >= NUMBER}`.
      evaluation_task: the task of the environments in evaluations; None for their own.
    """

    episode_metrics: str | tuple[str, ...] = ()
    callbacks: str | tuple[str | dict[str, Any] | Callbacks, ...] | Callbacks = ()
    curriculum: tuple[Stage, ...] = ()
    evaluation_task: Any = None

    @property
    def watches_episodes(self) -> bool:
        """Whether actors keep metrics of episodes besides return and length."""
        methods = ("on_episode_start", "on_episode_step", "on_episode_end")
        return (
            bool(parse_episode_metrics(self.episode_metrics))
            or depends_on_episodes(self.curriculum)
            or any(overridden(kind, *methods) for kind in check_callbacks(self.callbacks))
        )
