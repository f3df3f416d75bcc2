"""Hosts on one machine: network namespaces with addresses of their own, linked by a switch whose ports can be cut."""

import contextlib
import os
import shutil
import signal
import subprocess

LISTENS = "0A"


def why_not():
    """What is missing here to make such hosts; empty if nothing is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no command `ip`"
    try:
        HostNetwork(["try"]).close()
    except subprocess.CalledProcessError as error:
        return f"no linked network namespaces here: {error.stderr.strip()}"
    return ""


def ip(*arguments):
    return subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


class HostNetwork:
    """Hosts by name, each with the address `addresses[name]`; nothing but these hosts can be reached from them."""

    def __init__(self, names):
        # The switch has a namespace too: nothing of it meets the names, addresses or firewall of the machine.
        self._prefix = f"cb{os.getpid()}"
        self._switch = f"{self._prefix}-switch"
        subnet = f"10.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
        self.addresses = {name: f"{subnet}.{number}" for number, name in enumerate(names, start=1)}
        try:
            self._make()
        except subprocess.CalledProcessError:
            self.close()
            raise

    def _make(self):
        ip("netns", "add", self._switch)
        ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._switch, "link", "set", "bridge", "up")
        for name, address in self.addresses.items():
            port, host = self._port(name), self.namespace(name)
            ip("netns", "add", host)
            ip("-n", self._switch, "link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")

    def namespace(self, name):
        return f"{self._prefix}-{name}"

    def inside(self, name):
        """What a command begins with to run on that host."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def cut(self, name):
        """Pulls the host's cable out of the switch."""
        ip("-n", self._switch, "link", "set", self._port(name), "down")

    def restore(self, name):
        ip("-n", self._switch, "link", "set", self._port(name), "up")
        for other in self.addresses:
            if other != name:
                with contextlib.suppress(subprocess.CalledProcessError):
                    ip("-n", self.namespace(other), "neighbor", "del", self.addresses[name], "dev", "eth0")

    def lose_answers_to(self, name):
        """What the host sends still arrives, but nothing comes back to it, until `restore`."""
        for other in self.addresses:
            if other != name:
                no_host = ["lladdr", "02:00:00:00:00:01", "nud", "permanent"]
                ip("-n", self.namespace(other), "neighbor", "replace", self.addresses[name], "dev", "eth0", *no_host)

    def processes(self, name):
        return [int(pid) for pid in ip("netns", "pids", self.namespace(name)).split()]

    def listening(self, name):
        """The ports on which somebody listens on a host."""
        script = [*self.inside(name), "cat", "/proc/net/tcp", "/proc/net/tcp6"]
        rows = [line.split() for line in subprocess.run(script, capture_output=True, text=True).stdout.splitlines()]
        return sorted({int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENS})

    def power_cut(self, name):
        """Kills all that runs on a host, at once."""
        for pid in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self):
        there = {line.split()[0] for line in ip("netns", "list").splitlines()}
        for name in self.addresses:
            if self.namespace(name) in there:
                self.power_cut(name)
                ip("netns", "del", self.namespace(name))
        if self._switch in there:
            ip("netns", "del", self._switch)

    def _port(self, name):
        return f"to-{name}"
