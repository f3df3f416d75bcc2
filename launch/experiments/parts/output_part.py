"""Parts of an experiment: recorded episodes, checkpoints, logs, metrics, time limits and ports of nodes, directory."""

import dataclasses
import pathlib
from typing import Literal

from .environment_part import AgentPart, EnvironmentPart
from .quantities import CheckpointCount, Gigabytes, Port, Seconds, StepCount


@dataclasses.dataclass(frozen=True)
class RecordingPart:
    """Recorded episodes: those that are learned from, and those that are written.

    Attributes:
      dataset: data sets of recorded episodes to learn from, see docs/guides/recorded_data.md: runs, paths, or names in
        Minari's folder, each with its share such as `PATH:0.3`; a list or separated by commas.  With `actors` 0 alone,
        and else beside what the actors play.
      record_episodes: whether whole training episodes are written to `episodes/` in the run directory, as a Minari data
        set; see docs/guides/recorded_data.md.
      record_infos: names of infos of the environment that are recorded with the episodes, such as `success,distance`;
        a list, or separated by commas.  `a.b` is the key `b` in a mapping `a`.
      record_limit: gigabytes of the data set beyond which no more episodes are recorded.
    """

    dataset: str | tuple[str, ...] = ()
    record_episodes: bool = False
    record_infos: str | tuple[str, ...] = ()
    record_limit: Gigabytes = 10.0


@dataclasses.dataclass(frozen=True)
class CheckpointsPart:
    """Published weights and checkpoints.

    Attributes:
      publish_every_steps: learner steps between two versions of the weights that actors get; 1 for the newest whenever
        an actor needs weights.  More send fewer weights over the network, and let actors act with older ones.
      checkpoint_every: seconds between two checkpoints of the learner.
      checkpoint_every_steps: learner steps between two checkpoints, instead of `checkpoint_every` seconds; None for
        seconds.
      keep_checkpoints: number of the newest checkpoints that are kept, besides those that a `Session` saves.  Of 1,
        none is left if it is damaged.
      checkpoint_replay: whether replay is saved too, for restarted shards and for `--resume`; not for agents that only
        learn from new data (PPO).
      replay_checkpoint_every: seconds between two checkpoints of replay; another one follows at the end of the run.
    """

    publish_every_steps: StepCount = 1
    checkpoint_every: Seconds = 30.0
    checkpoint_every_steps: StepCount | None = None
    keep_checkpoints: CheckpointCount = 2
    checkpoint_replay: bool = False
    replay_checkpoint_every: Seconds = 300.0


@dataclasses.dataclass(frozen=True)
class OutputPart:
    """Time limits of nodes, their logs and ports, and where metrics go.

    Attributes:
      node_timeout: seconds that an environment step, a learner step, a forward pass, or a gap between heartbeats may
        take before the node is treated as dead; a call that compiles may take at least ten minutes.  Increase it for
        slower environments.
      log_level: the least important messages that nodes write to their logs in the run directory: `debug`, `info`,
        `warning` (or `warn`) or `error`.
      listen: the machines whose packets the ports of the run accept: `run` for those of the run, or `all`, see
        the page on security.
      loggers: where metrics also go, besides the run directory: `wandb`, `mlflow`, or `package.module:Class`; a list,
        or separated by commas.  See docs/guides/loggers.md.
      prometheus_port: port at which the coordinator serves the newest metrics for Prometheus; None for no server.
      prometheus_host: address at which it listens; `0.0.0.0` for all interfaces of its machine.
    """

    node_timeout: Seconds = 300.0
    log_level: Literal["debug", "info", "warning", "warn", "error"] = "info"
    listen: Literal["run", "all"] = "run"
    loggers: str | tuple[str, ...] = ()
    prometheus_port: Port | None = None
    prometheus_host: str = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class DirectoryPart(EnvironmentPart, AgentPart):
    """The run directory; a new one is named for the agent and the environment.

    Attributes:
      run_dir: directory of everything that the run writes, a path or a URL (`s3://...`); None makes a new one under
        `runs/`.
    """

    run_dir: str | pathlib.Path | None = None
