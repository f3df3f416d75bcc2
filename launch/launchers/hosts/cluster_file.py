"""The cluster file: the hosts of a run, and which nodes each of them runs.

    hosts:                              # names, and the addresses at which the hosts reach each other
      gpu-0: 10.0.0.1
      cpu-0: 10.0.0.2
      cpu-1: 10.0.0.3
    ports: 20000-20099                  # free on every host, and open between them
    learner: [gpu-0]
    replay: [gpu-0]
    actor: {cpu-0: 16, cpu-1: 16}
    evaluator: [gpu-0]                  # omit it for none
    inference: [gpu-0]                  # with --inference central
    guests: {from: 10.0.0.0/24, actors: 4}  # machines that may join with the run's token, see docs/hosts.md
    patience: 600                       # seconds that hosts wait for the first learner's host
    tunnel: ssh                         # omit it if nothing needs to be encrypted, see docs/security.md

The coordinator runs on the host of the first learner, because they share the checkpoint.  Every host derives the same
addresses from the file, so no service has to assign them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import math
import os
import pathlib
import re
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....errors import CallboardError, named_path, suggestion, unknown
from ....messages.caller_words import argument
from ....settings.setting_types import shown
from ...experiments.parts.acting_part import Playing
from ...experiments.yaml_files import read_yaml
from ...node_names import kind_of, number_of
from ...processes.listen_filter import resolved

if TYPE_CHECKING:
    # A cluster file is read and checked before TensorFlow is imported.
    import launchpad as lp

_PLACED = ("learner", "replay", "actor", "evaluator", "inference")
_KEYS = ("hosts", "ports", *_PLACED, "coordinator", "guests", "patience", "tunnel")
_COUNTS = {"learner": "learners", "replay": "replay_shards", "actor": "actors"}
_PATIENCE_SECONDS = 600.0
_MOST_NODES = 10_000
LOOPBACK = "127.0.0.1"
_ANY = "any"


class Guests(NamedTuple):
    """The machines that may join although the file does not name them.

    Attributes:
      networks: ranges of their addresses, such as `10.0.0.0/24`; `any` for all.
      actors: number of actors that each of them gets.
    """

    networks: tuple[str, ...]
    actors: int

    def contains(self, address: str) -> bool:
        """Returns whether a machine with this address may join."""
        found = ipaddress.ip_address(address)
        return any(one == _ANY or found in ipaddress.ip_network(one) for one in self.networks)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The content of a cluster file.

    Attributes:
      path: the file.
      hosts: the address of every host, by name.
      ports: the ports of every host.
      placement: the hosts of the nodes of each label, in the order of the nodes.
      patience: seconds that a host waits for the first host, at the start and when it stops responding.
      actors_come_and_go: whether hosts on which only actors are placed may be missing.
      guests: the machines that may join although the file does not name them; None if none may.
      guest_actors: the name of the guest that runs an actor, by the actor's index.
      tunnel: `ssh` if the hosts reach each other through SSH connections; empty if directly.
    """

    path: pathlib.Path
    hosts: Mapping[str, str]
    ports: range
    placement: Mapping[str, Sequence[str]]
    patience: float = _PATIENCE_SECONDS
    tunnel: str = ""
    actors_come_and_go: bool = False
    guests: Guests | None = None
    guest_actors: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @property
    def first(self) -> str:
        """The host of the coordinator and of the first learner."""
        return self.placement["learner"][0]

    @property
    def used_hosts(self) -> list[str]:
        """The hosts that run at least one node."""
        return list(dict.fromkeys(host for hosts in self.placement.values() for host in hosts))

    @property
    def needed_hosts(self) -> list[str]:
        """The hosts without which something is missing in the run."""
        of_actors = () if not self.actors_come_and_go else ("actor",)
        hosts = [host for label, placed in self.placement.items() if label not in of_actors for host in placed]
        return list(dict.fromkeys(hosts))

    @property
    def membership_address(self) -> str:
        """Address of the `HostTable`: the first port of the first host."""
        return _joined(self.hosts[self.first], self.ports.start)

    def inside_tunnels(self) -> Cluster:
        """Returns the hosts as nodes see them: all on this machine, whose ports the tunnels forward."""
        return dataclasses.replace(self, hosts=dict.fromkeys(self.hosts, LOOPBACK)) if self.tunnel else self

    @property
    def door_address(self) -> tuple[str, int]:
        """Where guests show the token: the second port of the first host."""
        return self.hosts[self.first], self.ports.start + 1

    def with_guest(self, host: str, address: str, actors: Sequence[int]) -> Cluster:
        """Returns the cluster as a machine sees it that has joined as a guest, and runs these actors."""
        guest_actors = {**self.guest_actors, **dict.fromkeys(actors, host)}
        return dataclasses.replace(self, hosts={**self.hosts, host: address}, guest_actors=guest_actors)

    def host_of(self, node: str) -> str:
        """Returns the host of a node such as `actor/0`; nodes that the file does not place run on the first host.

        The nodes of several policies are placed alike.  An actor for guests has the host "" unless that is known.
        """
        hosts, number = self.placement.get(kind_of(node), ()), number_of(node)
        if self.guests is not None and kind_of(node) == "actor" and number >= len(hosts):
            return self.guest_actors.get(number, "")
        return hosts[number] if number < len(hosts) else self.first

    def check_host(self, host: str) -> None:
        """Raises `CallboardError` if the file neither contains the host nor lets others join."""
        if host not in self.hosts and self.guests is None:
            raise CallboardError(f"{self.path} has no host {host!r}; {suggestion(host, self.hosts)}")

    def is_here(self, host: str) -> bool:
        """Returns whether the address of a host, or one of those of its name, is this machine's."""
        for address in resolved([self.hosts[host]]):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with contextlib.suppress(OSError), socket.socket(family) as probe:
                probe.bind((address, 0))
                return True
        return False

    def check_addresses(self) -> None:
        """Raises `CallboardError` if a host has a public address, because its ports execute what is sent to them.

        Through tunnels, only sshd is reached there.
        """
        if self.tunnel:
            return
        for name, address in self.hosts.items():
            for found in resolved([address]):
                if ipaddress.ip_address(found).is_global:
                    where = address if address == found else f"{address}, which is {found}"
                    raise CallboardError(
                        f"the host {name} has a public address ({where}), and its ports run code that anyone sends; "
                        "use addresses of a private network, or pass --allow-public if a firewall guards the ports"
                    )

    def fit(self, experiment: Playing, given: Sequence[str] = ()) -> Playing:
        """Returns the experiment with as many nodes as the file places.

        Args:
          experiment: the experiment.
          given: fields that the user has set for this run; their values must agree with the file.

        Raises:
          CallboardError: a given field, or the kind of inference, does not agree with the file.
        """
        numbers: dict[str, Any] = {field: len(self.placement[label]) for label, field in _COUNTS.items()}
        if self.guests is not None:
            placed = numbers["actors"]
            if experiment.min_actors is None or experiment.actors <= placed:
                raise CallboardError(
                    f"{self.path} places {placed} actors and lets other machines join: give the fewest and the most "
                    f"actors, such as {argument('actors', f'{placed}..{placed + 4 * self.guests.actors}')}"
                )
            numbers["actors"] = experiment.actors
        numbers["evaluator"] = bool(self.placement["evaluator"])
        placed = len(self.placement.get("inference", ()))
        if bool(placed) != (experiment.inference == "central"):
            raise CallboardError(
                f"inference is {experiment.inference}, and {self.path} places {placed} inference node(s); "
                + ("leave inference out of it" if placed else "name hosts for inference in it")
                + f", or set inference to {'central' if placed else 'local'}"
            )
        numbers["inference_nodes"] = max(1, placed)
        for field in given:
            if field in numbers and getattr(experiment, field) != numbers[field]:
                remedy = "leave it out, since the file decides"
                if field == "actors" and experiment.min_actors is not None:
                    fewest = min(experiment.min_actors, numbers[field])
                    remedy = f"give the fewest and all of them: {argument('actors', f'{fewest}..{numbers[field]}')}"
                raise CallboardError(
                    f"{field} is {getattr(experiment, field)}, and {self.path} places {numbers[field]}; {remedy}"
                )
        return dataclasses.replace(experiment, **numbers)

    def addresses(self, program: lp.Program) -> dict[str, list[str]]:
        """Returns the `host:port` of each node's addresses in order, by the name of the node.

        Raises:
          CallboardError: a host does not have enough ports.
        """
        from ...program_nodes import nodes_of

        # Hosts with the same address are on one machine and share its ports.
        used = {address: 0 for address in self.hosts.values()}
        used[self.hosts[self.first]] = 1 if self.guests is None else 2
        result = {}
        nodes = [node for _, node in nodes_of(program)]
        # Those of guests come last, so that their number changes no address of another node.
        placed = set(self.used_hosts)
        for node in sorted(nodes, key=lambda node: self.host_of(node.name) not in placed):
            address = self.hosts.get(self.host_of(node.name), LOOPBACK)
            count = len(node.addresses)
            begin = used.get(address, 0)
            used[address] = begin + count
            result[node.name] = [_joined(address, self.ports.start + number) for number in range(begin, begin + count)]
        for name, address in self.hosts.items():
            if used[address] > len(self.ports):
                raise CallboardError(
                    f"the nodes at host {name} need {used[address]} ports, and {self.path} gives them "
                    f"{len(self.ports)}; set ports to {self.ports.start}-{self.ports.start + used[address] - 1} or more"
                )
        return result

    def settings(self) -> dict[str, str]:
        """Returns the settings that must be the same on all hosts, by name."""
        return {
            **{f"the address of {name}": address for name, address in self.hosts.items()},
            "ports": f"{self.ports.start}-{self.ports.stop - 1}",
            "tunnel": self.tunnel or "null",
            **({"guests": str(tuple(self.guests))} if self.guests is not None else {}),
            **{f"the placement of {label}": ", ".join(hosts) for label, hosts in self.placement.items()},
        }


def read_cluster(path: pathlib.Path) -> Cluster:
    """Reads a cluster file.

    Raises:
      CallboardError: the file is not valid; the message contains how to fix it.
    """
    path = pathlib.Path(named_path(path, "cluster file"))
    if not os.path.lexists(path):
        raise CallboardError(f"there is no cluster file {str(path)!r}")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise CallboardError(f"{path} must hold hosts, ports, learner, replay and actor")
    for key in content:
        if key not in _KEYS:
            raise CallboardError(f"{path}: {unknown('key', key, _KEYS)}")
    for key in ("hosts", "ports", "learner", "replay", "actor"):
        if not content.get(key):
            raise CallboardError(f"{path}: {key} is missing")
    hosts = content["hosts"]
    if not isinstance(hosts, dict) or not all(isinstance(address, str) for address in hosts.values()):
        raise CallboardError(f"{path}: hosts must be names with addresses, such as `gpu-0: 10.0.0.1`")
    for name, address in hosts.items():
        if not name.strip() or not name.isprintable():
            raise CallboardError(f"{path}: {name!r} cannot be the name of a host: take letters, digits and signs")
        if not _is_address(address):
            raise CallboardError(
                f"{path}: the address of host {name!r} must be an IP address or the name of a machine, not {address!r}"
            )
    placement = {label: _placed(path, label, content.get(label), hosts) for label in _PLACED}
    if len(placement["evaluator"]) > 1:
        raise CallboardError(f"{path}: there can be one evaluator, not {len(placement['evaluator'])}")
    coordinator = _placed(path, "coordinator", content.get("coordinator"), hosts)
    if coordinator not in ([], placement["learner"][:1]):
        raise CallboardError(
            f"{path}: the coordinator runs beside the first learner, on {placement['learner'][0]}; leave it out"
        )
    tunnel = content.get("tunnel")
    if tunnel not in (None, "ssh"):
        raise CallboardError(f"{path}: tunnel must be ssh, or be left out, not {shown(tunnel)}")
    patience = content.get("patience", _PATIENCE_SECONDS)
    if isinstance(patience, bool) or not isinstance(patience, (int, float)) or not 0 < patience < math.inf:
        raise CallboardError(f"{path}: patience must be seconds, not {patience!r}")
    guests = _guests(path, content.get("guests"), tunnel, placement)
    ports = _ports(path, content["ports"])
    return Cluster(path, hosts, ports, placement, float(patience), tunnel or "", guests=guests)


def _guests(path: pathlib.Path, setting: Any, tunnel: Any, placement: Mapping[str, Sequence[str]]) -> Guests | None:
    if setting is None:
        return None
    form = f"{path}: guests must be such as {{from: 10.0.0.0/24, actors: 4}}"
    if not isinstance(setting, dict) or set(setting) != {"from", "actors"}:
        raise CallboardError(form)
    networks, actors = setting["from"], setting["actors"]
    networks = tuple(networks) if isinstance(networks, list) else (networks,)
    for network in networks:
        try:
            if network != _ANY:
                ipaddress.ip_network(network if isinstance(network, str) else "")
        except ValueError:
            text = f"{form}; from is a range of addresses, several or any, not {shown(network)}"
            raise CallboardError(text) from None
    if isinstance(actors, bool) or not isinstance(actors, int) or not 1 <= actors <= _MOST_NODES or not networks:
        raise CallboardError(f"{form}; actors is the number that each machine gets, not {shown(actors)}")
    if tunnel:
        raise CallboardError(f"{path}: machines that join as guests have no tunnel: leave guests or tunnel out")
    first = placement["learner"][0]
    elsewhere = {host for label in ("learner", "replay", "inference") for host in placement[label]} - {first}
    if elsewhere:
        raise CallboardError(
            f"{path}: guests reach the first host alone: place all of learner, replay and inference on {first}, and "
            f"none on {min(elsewhere)}, or leave guests out"
        )
    return Guests(networks, actors)


def _ports(path: pathlib.Path, setting: Any) -> range:
    found = re.fullmatch(r"\s*([0-9]{1,5})\s*-\s*([0-9]{1,5})\s*", str(setting))
    if isinstance(setting, list) and len(setting) == 2:
        found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", f"{setting[0]}-{setting[1]}")
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise CallboardError(f"{path}: ports must be a range between 1024 and 65535, such as 20000-20099")
    return range(first, last + 1)


def _placed(path: pathlib.Path, label: str, setting: Any, hosts: Mapping[str, str]) -> list[str]:
    """Returns the hosts of a label's nodes, given as a host, a list of hosts, or numbers of nodes by host."""
    if setting is None:
        return []
    if isinstance(setting, str):
        setting = [setting]
    if isinstance(setting, list):
        placed = [str(host) for host in setting]
    elif isinstance(setting, dict):
        for host, count in setting.items():
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_NODES:
                raise CallboardError(
                    f"{path}: {label} at {host} must be a number of nodes up to {_MOST_NODES:,}, not {shown(count)}"
                )
        placed = [str(host) for host, count in setting.items() for _ in range(count)]
        if not placed:
            raise CallboardError(f"{path}: {label} is not placed on any host")
    else:
        raise CallboardError(f"{path}: {label} must be hosts, such as [{next(iter(hosts))}], or numbers by host")
    for host in placed:
        if host not in hosts:
            raise CallboardError(f"{path}: {label} is placed on {host!r}, which is not among hosts: {', '.join(hosts)}")
    return placed


def _is_address(text: str) -> bool:
    """Returns whether a text may be an IP address or a name; the last label of a name is not all digits (RFC 3696)."""
    try:
        address = ipaddress.ip_address(text)
        return not (address.is_unspecified or address.is_multicast)
    except ValueError:
        parts = text.removesuffix(".").split(".")
        named = all(re.fullmatch(r"[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?", part) for part in parts)
        return named and len(text) <= 253 and not parts[-1].isdigit()


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
