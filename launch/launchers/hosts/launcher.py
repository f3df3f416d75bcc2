"""The hosts launcher: its options and what it refuses, without importing TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....errors import CallboardError
from ....messages.caller_words import argument
from ...experiments.checked_run import Run
from ...experiments.experiment import Experiment
from ...experiments.new_or_resumed import check_can_be_made, check_state
from ...experiments.settings import read_experiment
from ...run_directory.layout import RunDirectory
from ...run_directory.run_lock import check_not_running
from ...serving.access_token import read_token
from ..launcher import Launcher, LocalNodes, locked
from ..node_processes.forkserver import start_forkserver
from ..run_outcome import Monitor, Outcome
from .cluster_file import Cluster, read_cluster
from .shared_settings import shared_settings

if TYPE_CHECKING:
    import launchpad as lp


@dataclasses.dataclass(frozen=True)
class HostsLauncher(Launcher):
    """Processes on several hosts, each of which runs the same command and supervises its own nodes.

    Attributes:
      cluster: the cluster file, which places nodes on hosts; see docs/hosts.md.
      host: the name of this host in the cluster file.
      join_token: file with the token of the run, for a machine that joins although the cluster file does not name it;
        on the first host null makes one in the run directory.
      allow_public: whether hosts may have public addresses, because a firewall guards their ports.
    """

    name = "hosts"
    on_this_machine = False
    actors_come_and_go = True

    cluster: pathlib.Path
    host: str
    join_token: pathlib.Path | None = None
    allow_public: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.placement.check_host(self.host)
        if self.join_token is not None:
            if self.placement.guests is None:
                raise CallboardError(f"{self.cluster} lets no machine join by a token: leave join_token out")
            read_token(self.join_token)
        elif self.host not in self.placement.hosts:
            raise CallboardError(
                f"{self.cluster} does not name the host {self.host}, which may join with the run's token: copy the "
                f"file join-token from the run directory of {self.placement.first}, and name it with --join-token"
            )
        if not self.allow_public:
            self.placement.check_addresses()

    @functools.cached_property
    def placement(self) -> Cluster:
        """The content of the cluster file."""
        return read_cluster(pathlib.Path(self.cluster))

    @property
    def is_first(self) -> bool:
        """Whether this host runs the first learner, which keeps the checkpoints."""
        return self.host == self.placement.first

    def fit(self, experiment: Experiment, given: Sequence[str] = ()) -> Experiment:
        """Returns the experiment with as many nodes as the cluster file places."""
        return self.placement.fit(experiment, given)

    def check_directory(self, experiment: Experiment, resume: bool, agent: str = "", overwrite: bool = False) -> None:
        self._find_directory(experiment, resume, overwrite)

    @contextlib.contextmanager
    def open_directory(self, experiment: Experiment, resume: bool, overwrite: bool = False) -> Iterator[RunDirectory]:
        """Finds and locks the run directory of this host, which may be on storage that all hosts share.

        A host may join late, or again after a reboot: a run that has not ended continues, with or without `resume`.
        """
        directory = self._find_directory(experiment, resume, overwrite)
        with locked(directory, directory.lock(self.is_first), self.name):
            yield directory.identified()

    def local_nodes(self, experiment: Experiment) -> LocalNodes:
        learners, shards = (self.placement.placement[label] for label in ("learner", "replay"))
        return LocalNodes(
            list(learners).count(self.host),
            [shard for shard, host in enumerate(shards) if host == self.host],
            checkpoints=self.is_first,
            coordinator=self.is_first,
        )

    def prepare(self) -> None:
        start_forkserver()

    def run(self, program: lp.Program, run: Run, monitor: Monitor) -> Outcome:
        from . import host_run

        token = None if self.join_token is None else read_token(self.join_token)
        return host_run.run(program, run, monitor, self.placement, self.host, token, self.allow_public)

    def _find_directory(self, experiment: Experiment, resume: bool, overwrite: bool) -> RunDirectory:
        """Returns this host's run directory; writes nothing.

        Raises:
          CallboardError: the directory contains another run, a run that has ended, or none to resume.
        """
        if overwrite:
            raise CallboardError(
                "the hosts launcher cannot overwrite a run, since a host that joins late could not distinguish the "
                "two; name another directory"
            )
        if experiment.run_dir is None:
            raise CallboardError(
                "the hosts launcher needs the run's directory; name it with --run-dir, the same on every host"
            )
        check_can_be_made(pathlib.Path(experiment.run_dir))
        directory = RunDirectory(pathlib.Path(experiment.run_dir).absolute(), self.host)
        check_not_running(directory.lock(self.is_first))
        if resume:
            if self.is_first:
                check_state(directory, experiment.run_dir, resume)
            return directory
        if directory.end_of_run():
            raise CallboardError(
                f"the run in {directory.path} has ended ({directory.end_of_run()}); continue it with "
                f"{argument('resume')}, or name another directory"
            )
        if experiment.agent is not None and directory.experiment.exists():
            self._check_settings(experiment, directory)
        return directory

    def _check_settings(self, experiment: Experiment, directory: RunDirectory) -> None:
        """Rejects settings that differ from those of the run in the directory."""
        before = shared_settings(read_experiment(directory.path))
        for name, value in shared_settings(experiment).items():
            if before.get(name) != value:
                raise CallboardError(
                    f"the run in {directory.path} was started with {name} {before.get(name)}, and the host "
                    f"{self.host} with {value}; use the same settings, or name another directory"
                )
