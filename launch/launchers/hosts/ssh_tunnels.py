"""Encrypted connections between hosts: every host forwards the ports of each other one through OpenSSH.

With `tunnel: ssh` in the cluster file, all nodes have addresses on the loopback interface, with ports that differ over
all hosts.  A host listens on the ports of its own nodes, and its SSH connection to another host forwards the ports of
that host's nodes.  So nodes accept packets from their own machine alone, and only sshd is reached over the network.
The user's own SSH configuration decides on user, port and keys.
"""

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from ....errors import CallboardError
from ....runtime.interpreter import python_command
from .cluster_file import LOOPBACK, Cluster

_CONNECT_SECONDS = 10
_ALIVE_SECONDS = 3
_RETRY_SECONDS = 2.0
_STOP_SECONDS = 3.0
_OPTIONS = {
    "BatchMode": "yes",
    # Processors encrypt with AES faster than with OpenSSH's first choice.
    "Ciphers": "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr",
    "ConnectTimeout": _CONNECT_SECONDS,
    "ControlMaster": "no",
    "ControlPath": "none",
    "ExitOnForwardFailure": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "ServerAliveCountMax": 3,
    "ServerAliveInterval": _ALIVE_SECONDS,
}
# Sends SIGTERM to ssh where the launcher is killed.
START_SSH = "import ctypes, os; ctypes.CDLL(None).prctl(1, 15); os.execvp('ssh', sys.argv[1:])"
_REFUSALS = (
    "Permission denied",
    "Host key verification failed",
    "Bad configuration option",
    "Bad owner or permissions",
)


def check_tunnels(cluster: Cluster, host: str) -> None:
    """Refuses hosts that do not let this one in; those that do not answer yet may be started later.

    Raises:
      CallboardError: there is no OpenSSH, or a host refuses the user's keys, or has another key than it should.
    """
    if shutil.which("ssh") is None:
        raise CallboardError("tunnel ssh needs OpenSSH, and there is no command ssh; install it")
    for problem in ssh_problems(cluster, host):
        if any(refusal in problem for refusal in _REFUSALS):
            raise CallboardError(f"{problem}; set up a key that needs no password")


def ssh_problems(cluster: Cluster, host: str) -> list[str]:
    """Returns a line for each host to which this one cannot connect."""
    problems = []
    for name, address in _others(cluster, host):
        done = subprocess.run(ssh_command(address, ["-n"], "true"), capture_output=True, text=True)
        if done.returncode:
            reason = last_line(done.stderr) or f"exit code {done.returncode}"
            problems.append(f"the host {name} cannot be reached with ssh {address}: {reason}")
    return problems


@contextlib.contextmanager
def ssh_tunnels(
    cluster: Cluster, host: str, ports: Mapping[str, Sequence[int]], notify: Callable[[str], None]
) -> Iterator[None]:
    """Forwards ports to the other hosts within the context; a connection that breaks is made again.

    Args:
      cluster: the hosts, with the addresses at which sshd listens.
      host: name of this host.
      ports: the ports of the nodes of each host.
      notify: receives a line when a connection breaks or cannot be made, and when it is there.
    """
    over = threading.Event()
    threads = [
        threading.Thread(target=_keep, args=(name, address, ports[name], over, notify), name="ssh-tunnel", daemon=True)
        for name, address in _others(cluster, host)
        if ports.get(name)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _others(cluster: Cluster, host: str) -> list[tuple[str, str]]:
    """Returns names and addresses of the hosts on other machines."""
    return [(name, address) for name, address in cluster.hosts.items() if address != cluster.hosts[host]]


def _keep(name: str, address: str, ports: Sequence[int], over: threading.Event, notify: Callable[[str], None]) -> None:
    """Keeps the connection to a host until the end; ends with it."""
    forwards = [f"-L{LOOPBACK}:{port}:{LOOPBACK}:{port}" for port in ports]
    command = python_command(START_SSH, *ssh_command(address, ["-N", "-T", *forwards]))
    is_down = False
    while not over.is_set():
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # A signal to the launcher's group would cut it while the run ends.
        ) as process:
            lasted = not _ended(process, over, _CONNECT_SECONDS + 1.0)
            if lasted and is_down and not over.is_set():
                is_down = False
                notify(f"the SSH connection to host {name} is there again")
            while not over.is_set() and not _ended(process, over, 1.0):
                pass
            if over.is_set():
                _end(process)
                return
            problem = last_line(process.communicate()[1]) or f"ssh ended with exit code {process.returncode}"
        if not is_down:
            is_down = True
            notify(f"no SSH connection to host {name} ({problem}); trying again every {_RETRY_SECONDS:.0f} s")
        over.wait(_RETRY_SECONDS)


def _ended(process: "subprocess.Popen[str]", over: threading.Event, seconds: float) -> bool:
    """Waits for the end of a process; returns whether it has ended, also if all is over before."""
    waited = 0.0
    while waited < seconds and not over.is_set():
        if process.poll() is not None:
            return True
        over.wait(0.1)
        waited += 0.1
    return process.poll() is not None


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def ssh_command(
    address: str, options: Sequence[str], *command: str, settings: Mapping[str, object] = _OPTIONS
) -> list[str]:
    """Returns a command that connects to a machine without asking anything."""
    named = [part for name, value in {**_OPTIONS, **settings}.items() for part in ("-o", f"{name}={value}")]
    return ["ssh", *named, *options, address, *command]


def last_line(text: str) -> str:
    return " ".join((text.strip().splitlines() or [""])[-1].split())
