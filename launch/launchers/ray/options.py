"""Options of the ray launcher; read and checked before Ray and TensorFlow are imported."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from ....errors import CallboardError

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
NODE_KINDS = ("actor", "evaluator", "inference", "learner", "replay", "coordinator")


@dataclasses.dataclass(frozen=True)
class RayOptions:
    """Options of the ray launcher.

    Attributes:
      address: address of the cluster, `host:port`, `auto` for one that runs on this machine, or `local` for a new one
        on this machine alone; None uses RAY_ADDRESS, else a cluster that runs on this machine, else a new one.
      cpus: CPUs per node, by kind of node (`actor`); the default is 1, and 0 for the coordinator.
      strategy: how nodes are placed on machines, see Ray's placement groups.
      wait: seconds to wait until the cluster has enough free resources.
    """

    address: str | None = None
    cpus: Mapping[str, float] = dataclasses.field(default_factory=dict)
    strategy: str = "PACK"
    wait: int = 60

    def __post_init__(self) -> None:
        check_address(self.address)
        for label, cpus in self.cpus.items():
            if label not in NODE_KINDS:
                raise CallboardError(f"--ray-cpus {label}: there is no such kind of node, but {', '.join(NODE_KINDS)}")
            if cpus < 0 or (cpus > 1 and cpus != int(cpus)):
                raise CallboardError(f"--ray-cpus {label} must be a part of 1, or a whole number, not {cpus:g}")
        if self.strategy not in STRATEGIES:
            raise CallboardError(f"--ray-strategy must be one of {', '.join(STRATEGIES)}, not {self.strategy}")
        if self.wait < 0:
            raise CallboardError(f"--ray-wait must be at least 0 seconds, not {self.wait}")

    @classmethod
    def parse(
        cls, address: str | None, cpus: Sequence[str] | None, strategy: str | None, wait: int | None
    ) -> "RayOptions":
        """Parse command-line options, for example `["actor=0.5", "learner=4"]` for `cpus`; None takes the defaults."""
        counts = {}
        for setting in cpus or ():
            match = re.fullmatch(r"(\w+)=(\d*\.?\d+)", setting)
            if match is None:
                raise CallboardError(f"--ray-cpus must be written like actor=0.5, not {setting}")
            counts[match[1]] = float(match[2])
        return cls(address, counts, (strategy or cls.strategy).upper(), cls.wait if wait is None else wait)


def check_address(address: str | None) -> None:
    """Raise `CallboardError` for a Ray client address, from which the cluster cannot reach this process."""
    if (address or "").startswith("ray://"):
        raise CallboardError(
            f"the command must run on a machine of the cluster, not reach it through {address}: log in there, or use "
            "`ray job submit`, and take --ray-address auto"
        )
