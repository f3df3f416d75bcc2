"""`callboard cluster run`: starts a run on all hosts of a cluster file, follows it, and ends it everywhere.

Each host has a process of its own, `remote_part`, behind an SSH connection, or on this machine.  No part outlives its
connection, and no connection this process.
"""

import contextlib
import math
import pathlib
import queue
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from .... import __version__
from ....errors import CallboardError, printable
from ....messages.install_commands import python_path
from ....runtime.deadlines import Deadline, wait_until
from ....runtime.interpreter import callboard_command, python_command
from ...processes.stop_signals import stop_signals
from .cluster_file import Cluster
from .remote_part import END_SECONDS, HELLO, RemotePart, encoded
from .ssh_tunnels import START_SSH, last_line, ssh_command

_HELLO_SECONDS = 120.0
_ALIVE_SECONDS = 5.0
_POLL_SECONDS = 0.5
_REST_SECONDS = 60.0
"""Time that other hosts have to end after the first one."""
_LOST = 255
"""Exit code of `ssh` if there is no connection."""
_NO_COMMAND = (126, 127)
_STOPPED = (0, 130, 143)
_REPOSITORY = pathlib.Path(__file__).parents[3]


def host_here(cluster: Cluster) -> str | None:
    """Returns the host whose address is one of this machine's, the first host before others; None if there is none."""
    return next(filter(cluster.is_here, [cluster.first, *cluster.used_hosts]), None)


def run_cluster(
    cluster: Cluster, here: str | None, parts: Mapping[str, RemotePart], command: str, show: Callable[[str], None]
) -> int:
    """Runs the parts of all hosts to the end of the run.

    Args:
      cluster: the hosts.
      here: the host that is this machine; None if all are others.
      parts: what each host runs.
      command: path of the command `callboard` on the other hosts.
      show: receives lines of output.

    Returns:
      The exit code of the first host; or that of a host that failed, for which the run was ended.

    Raises:
      CallboardError: nothing was started, because a host cannot be reached or has another version of Callboard.
    """
    if set(parts) != {here} and shutil.which("ssh") is None:
        raise CallboardError("other hosts are reached with OpenSSH, and there is no command ssh; install it")
    events: queue.SimpleQueue[tuple[_Host, str | None]] = queue.SimpleQueue()
    hosts = {name: _Host(name, cluster, name == here, command, events) for name in parts}
    try:
        _check(list(hosts.values()))
        for name, host in hosts.items():
            host.send(encoded(parts[name]))
        return _follow(hosts, cluster, events, show)
    finally:
        for host in hosts.values():
            host.leave()
        for host in hosts.values():
            host.end()


class _Host:
    """The process of a host's part, and the connection to it.

    Attributes:
      name: the name of the host.
      address: its address.
      is_ready: set once its version is known, or it has ended.
      version: the version of Callboard there; empty before.
      said: what it has written before that, or instead of it.
      code: its exit code, once it has ended.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        is_here: bool,
        command: str,
        events: "queue.SimpleQueue[tuple[_Host, str | None]]",
    ):
        self.name, self.address = name, cluster.hosts[name]
        self.is_ready, self.version, self.said = threading.Event(), "", ""
        self.code: int | None = None
        self.command = command
        self._events = events
        # A link that is cut for less than the patience of the hosts ends nothing.
        lasting = {"ServerAliveInterval": 15, "ServerAliveCountMax": max(2, int(cluster.patience / 15))}
        remote = f"exec {shlex.quote(command)} cluster part"
        ssh = ssh_command(self.address, ["-T"], remote, settings=lasting)
        self._process = subprocess.Popen(
            callboard_command("cluster", "part") if is_here else python_command(START_SSH, *ssh),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is sent on to one host, once.
        )
        threading.Thread(target=self._read, name=f"output of {name}", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with open(self._process.stdout.fileno(), "rb", closefd=False) as output:
            for content in output:
                self._take(content.decode(errors="replace").rstrip("\r\n"))
        self.code = self._process.wait()
        self.is_ready.set()
        self._events.put((self, None))

    def _take(self, line: str) -> None:
        if self.version:
            self._events.put((self, line))
        elif line.startswith(HELLO):
            self.version = line.removeprefix(HELLO)
            self.is_ready.set()
        else:
            self.said = f"{self.said[-1000:]}\n{line}"

    def send(self, content: bytes) -> None:
        """Writes to the process, unless it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            while content:
                content = content[self._process.stdin.write(content) :]

    def signal(self, number: int) -> None:
        """Sends a signal to the run on this host."""
        self.send(f"{number}\n".encode())

    def leave(self) -> None:
        """Lets the part end, by closing the connection's input."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """Waits for the end of the part, which has been let go."""
        try:
            self._process.wait(END_SECONDS + _ALIVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def problem(self) -> str:
        """Returns why this host cannot take part, and the command that helps; empty if it can."""
        said = last_line(self.said)
        if self.version == __version__:
            return ""
        if self.version:
            what = f"has Callboard {self.version}, and this machine {__version__}"
        elif self.code is None:
            return f"the host {self.name} has not answered for {_HELLO_SECONDS:.0f} s; is it overloaded?"
        elif self.code == _LOST:
            return (
                f"the host {self.name} cannot be reached with ssh {self.address}: {said or 'no connection'}; set up a "
                "key that needs no password"
            )
        elif self.code in _NO_COMMAND:
            what = f"has no {self.command} (name another with --callboard)"
        else:
            what = f"runs another version of Callboard, or cannot start it ({said or f'exit code {self.code}'})"
        return f"the host {self.name} {what}; install it with: {self._installing()}"

    def _installing(self) -> str:
        """Returns the command that installs this version of Callboard on the host."""
        address, folder = shlex.quote(self.address), shlex.quote(str(_REPOSITORY))
        if (_REPOSITORY / "Makefile").exists():
            return (
                f"rsync -a --exclude .venv --exclude runs --rsync-path 'mkdir -p {folder} && rsync' {folder}/ "
                f"{address}:{folder}/ && ssh {address} make -C {folder} install"
            )
        return f"ssh {address} {shlex.quote(python_path())} -m pip install callboard=={__version__}"


def _check(hosts: Sequence[_Host]) -> None:
    """Waits until all hosts are ready.

    Raises:
      CallboardError: some cannot take part.
    """
    wait_until(lambda: all(host.is_ready.is_set() for host in hosts), _HELLO_SECONDS)
    problems = [problem for host in hosts if (problem := host.problem())]
    if problems:
        raise CallboardError(problems[0], details="\n".join(problems[1:]))


def _follow(
    hosts: Mapping[str, _Host],
    cluster: Cluster,
    events: "queue.SimpleQueue[tuple[_Host, str | None]]",
    show: Callable[[str], None],
) -> int:
    """Shows the output of the hosts until all have ended; returns the exit code of the run."""
    first, failure, running = hosts[cluster.first], 0, set(hosts)
    alive, rest = Deadline(_ALIVE_SECONDS), Deadline(math.inf)
    with _passed_on(hosts, first):
        while running and not rest.has_passed:
            if alive.has_passed:
                alive.restart(_ALIVE_SECONDS)
                for each in hosts.values():
                    each.send(b"\n")
            try:
                host, line = events.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if line is not None:
                show(f"{host.name} | {printable(line)}")
                continue
            running.remove(host.name)
            if host.code == _LOST:
                show(f"{host.name} | the connection is lost, and the part of this host ends")
            if host is first:
                rest.restart(_REST_SECONDS)
                if host.code not in _STOPPED:
                    for each in hosts.values():
                        each.leave()
            elif first.code is None and host.code not in (*_STOPPED, _LOST):
                show(f"{host.name} | it has failed (exit code {host.code}): the run ends on all hosts")
                failure = failure or host.code or 1
                first.signal(signal.SIGTERM)
    code = 1 if first.code in (None, _LOST) else first.code
    return failure or code or 0


@contextlib.contextmanager
def _passed_on(hosts: Mapping[str, _Host], first: _Host) -> Iterator[None]:
    """Passes on the first stop signal to the first host, which ends the run on all; a second one ends all parts."""
    received: list[int] = []

    def pass_on(number: int) -> None:
        received.append(number)
        if len(received) == 1 and first.code is None:
            first.signal(number)
        else:
            for host in hosts.values():
                host.leave()

    with stop_signals(pass_on):
        yield
