"""The ray launcher: its options and what it refuses, without importing Ray or TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from ....errors import CallboardError, unknown
from ....settings.setting_types import NonNegativeInt
from ...experiments.checked_run import Run
from ...experiments.experiment import Experiment
from ...experiments.new_or_resumed import check_state
from ...processes.devices import parse_devices
from ...processes.temporary_files import removed_afterwards
from ...run_directory.layout import RunDirectory
from ...run_directory.remote_storage import Storage, fetch_run, is_url
from ...run_directory.run_lock import run_lease
from ..launcher import Launcher, LocalNodes
from ..run_outcome import Monitor, Outcome
from .cluster_address import check_address

if TYPE_CHECKING:
    import launchpad as lp

NODE_KINDS = ("actor", "feeder", "evaluator", "recorder", "inference", "learner", "replay", "coordinator")
GPU_KINDS = ("actor", "evaluator", "inference", "learner")
"""Kinds of nodes that compute with networks."""


@dataclasses.dataclass(frozen=True)
class RayLauncher(Launcher):
    """Every node is an actor of a Ray cluster, which places it and restarts it elsewhere.

    Attributes:
      address: address of the cluster, `host:port`, `auto` for one that runs on this machine, or `local` for a new one
        on this machine alone; null uses RAY_ADDRESS, else a cluster that runs on this machine, else a new one.
      cpus: CPUs that Ray reserves for each node, by kind of node, such as `actor`; a fraction of 1, or a whole number.
        The default is 1, and 0 for the coordinator.
      gpus: GPUs that Ray reserves for each node, by kind of node: `actor`, `evaluator`, `inference` or `learner`; a
        fraction of 1, which shares a GPU with other nodes, or a whole number.  The default is the `learner_devices` of
        a learner, 1 for an inference node, and 0 for the others; all 0 where the cluster has none.
      strategy: how nodes are placed on machines, see Ray's placement groups.
      wait: seconds to wait until the cluster has enough free resources.
    """

    name = "ray"
    option_prefix = "ray_"
    on_this_machine = False
    actors_come_and_go = True
    stores_at_urls = True

    address: str | None = None
    cpus: Mapping[str, float] = dataclasses.field(default_factory=dict)
    gpus: Mapping[str, float] = dataclasses.field(default_factory=dict)
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    wait: NonNegativeInt = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address(self.address)
        for setting, amounts, kinds in (("ray_cpus", self.cpus, NODE_KINDS), ("ray_gpus", self.gpus, GPU_KINDS)):
            for kind, amount in amounts.items():
                if kind not in kinds:
                    raise unknown(f"kind of node in {setting}", kind, kinds)
                if amount < 0 or (amount > 1 and amount != int(amount)):
                    raise CallboardError(f"{setting}.{kind} must be a fraction of 1, or a whole number, not {amount:g}")

    def check(self, experiment: Experiment) -> None:
        super().check(experiment)
        setting, gpus = experiment.learner_devices, self.gpus.get("learner")
        if gpus is None:
            return
        devices = parse_devices(setting)
        if devices.kind == "CPU" and gpus:
            raise CallboardError(f"ray_gpus.learner is {gpus:g}, but learner_devices names {setting}: leave one out")
        number = devices.device_count()
        if number > max(1.0, gpus):
            raise CallboardError(
                f"ray_gpus.learner is {gpus:g}, but each learner has {number} devices: leave it out, or set "
                "learner_devices to 1"
            )

    def check_directory(self, experiment: Experiment, resume: bool, agent: str = "", overwrite: bool = False) -> None:
        # A directory at a URL is checked when it has been downloaded.
        if not is_url(experiment.run_dir):
            super().check_directory(experiment, resume, agent, overwrite)

    @contextlib.contextmanager
    def open_directory(self, experiment: Experiment, resume: bool, overwrite: bool = False) -> Iterator[RunDirectory]:
        """Finds and locks the run directory; of one at a URL, a temporary local copy is opened."""
        if not is_url(experiment.run_dir):
            with super().open_directory(experiment, resume, overwrite) as directory:
                yield directory
            return
        url = str(experiment.run_dir)
        local = pathlib.Path(tempfile.mkdtemp(prefix="callboard-"))
        with removed_afterwards(local), run_lease(Storage(url), f"--launcher {self.name}"):
            directory = RunDirectory(local, url=url)
            fetch_run(Storage(url), directory)
            yield check_state(directory, url, resume, overwrite)

    def local_nodes(self, experiment: Experiment) -> LocalNodes:
        # Ray places the learners on machines that have their devices, and the coordinator on any; all machines share
        # the run directory.
        return LocalNodes(0, range(experiment.replay_shards), coordinator=False)

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        from . import ray_run

        return ray_run.run(program, run, monitor, self.address, self.cpus, self.gpus, self.strategy, self.wait)
