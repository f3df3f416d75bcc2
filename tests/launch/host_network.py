"""Hosts on one machine: network namespaces with addresses of their own, linked by a switch whose ports can be cut."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

import lossy_link
import psutil

LISTENS = "0A"
CLIENT = """
import concurrent.futures, socket, sys

def connects(address, port):
    try:
        socket.create_connection((address, port), timeout=1.5).close()
    except OSError:
        return False
    return True

addresses, ports = sys.argv[1].split(","), [int(port) for port in sys.argv[2:]]
with concurrent.futures.ThreadPoolExecutor(16) as threads:
    for port, *found in zip(ports, *(threads.map(connects, [address] * len(ports), ports) for address in addresses)):
        if any(found):
            print(port)
"""
"""Prints the ports that accept a connection at one of the addresses."""


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
    """Hosts by name, each with the address `addresses[name]`; nothing but these hosts can be reached from them.

    Where the machine has IPv6, they also have the addresses `addresses_6[name]`.
    """

    def __init__(self, names):
        # The switch has a namespace too: nothing of it meets the names, addresses or firewall of the machine.
        self._prefix = f"cb{os.getpid()}"
        self._switch = f"{self._prefix}-switch"
        subnet = f"10.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
        self.addresses = {name: f"{subnet}.{number}" for number, name in enumerate(names, start=1)}
        self._lossy = {}
        has_6, subnet = os.path.exists("/proc/sys/net/ipv6"), f"fd00:{os.getpid() % 65536:x}:"
        self.addresses_6 = {name: f"{subnet}:{number}" for number, name in enumerate(names, start=1) if has_6}
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
            if name in self.addresses_6:
                ip("-n", host, "address", "add", f"{self.addresses_6[name]}/64", "dev", "eth0", "nodad")
            ip("-n", host, "link", "set", "eth0", "up")

    def namespace(self, name):
        return f"{self._prefix}-{name}"

    def inside(self, name):
        """What a command begins with to run on that host."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def cut(self, name):
        """Pulls the host's cable out of the switch."""
        ip("-n", self._switch, "link", "set", self._port(name), "down")

    def disturb(self, name, loss, delay, seed):
        """Loses this share of the host's packets, both ways, and delays the others by so many seconds."""
        port, near, far = self._port(name), f"near-{name}", f"far-{name}"
        ip("-n", self._switch, "link", "add", "name", near, "type", "veth", "peer", "name", far)
        ip("-n", self._switch, "link", "set", far, "master", "bridge", "up")
        ip("-n", self._switch, "link", "set", near, "promisc", "on", "up")
        ip("-n", self._switch, "link", "set", port, "nomaster", "promisc", "on")
        program = [sys.executable, lossy_link.__file__, port, near, str(loss), str(delay), str(seed)]
        inside = ["ip", "netns", "exec", self._switch]
        self._lossy[name] = relay = subprocess.Popen([*inside, *program], stdout=subprocess.PIPE, text=True)
        assert relay.stdout.readline() == "open\n"

    def restore(self, name):
        if name in self._lossy:
            relay = self._lossy.pop(name)
            relay.kill()
            relay.communicate()
            ip("-n", self._switch, "link", "del", f"near-{name}")
            ip("-n", self._switch, "link", "set", self._port(name), "promisc", "off", "master", "bridge")
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
        return sorted(set(self._listening_sockets(name).values()))

    def listeners(self, name):
        """The processes of a host that listen, each with its ports."""
        sockets, found = self._listening_sockets(name), {}
        for pid in self.processes(name):
            with contextlib.suppress(psutil.Error, OSError):
                links = [os.readlink(entry) for entry in os.scandir(f"/proc/{pid}/fd")]
                ports = {sockets[link] for link in links if link in sockets}
                if ports:
                    found[psutil.Process(pid)] = sorted(ports)
        return found

    def _listening_sockets(self, name):
        """The port of each socket that listens, by its name among the open files of a process."""
        script = [*self.inside(name), "cat", "/proc/net/tcp", "/proc/net/tcp6"]
        rows = [line.split() for line in subprocess.run(script, capture_output=True, text=True).stdout.splitlines()]
        return {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENS}

    def reached(self, from_host, to_host, ports=None):
        """Those of the ports of one host, all by default, to which another can connect, over IPv4 or IPv6."""
        ports = self.listening(to_host) if ports is None else ports
        both = [self.addresses[to_host], *([self.addresses_6[to_host]] if to_host in self.addresses_6 else [])]
        command = [*self.inside(from_host), sys.executable, "-c", CLIENT, ",".join(both), *map(str, ports)]
        return [int(line) for line in subprocess.run(command, capture_output=True, check=True).stdout.split()]

    def power_cut(self, name):
        """Kills all that runs on a host, at once."""
        for pid in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self):
        for name in list(self._lossy):
            self.restore(name)
        there = {line.split()[0] for line in ip("netns", "list").splitlines()}
        for name in self.addresses:
            if self.namespace(name) in there:
                self.power_cut(name)
                ip("netns", "del", self.namespace(name))
        if self._switch in there:
            ip("netns", "del", self._switch)

    def _port(self, name):
        return f"to-{name}"
