"""`callboard cluster`: looks at the hosts of a cluster file, and trains on them."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ..errors import CallboardError, printable
from ..launch.launchers.hosts.cluster_check import REACHED, UNKNOWN, check_reach, describe_problems
from ..launch.launchers.hosts.cluster_file import Cluster, read_cluster
from ..launch.launchers.hosts.remote_part import run_part
from ..launch.launchers.hosts.ssh_tunnels import check_tunnels, ssh_problems
from .cluster_run import run_on_hosts, write_sbatch
from .command_parser import CommandParser


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code of what the first argument names."""
    what, of_it = arguments[:1], arguments[1:]
    if what == ["run"]:
        return run_on_hosts(of_it)
    if what == ["sbatch"]:
        return write_sbatch(of_it)
    if what == ["part"] and not of_it:
        return run_part()
    return _check(arguments)


def _check(arguments: Sequence[str]) -> int:
    """Returns 0 if every host reaches every other one."""
    parser = CommandParser("callboard cluster", description="Looks at the hosts of a cluster file, or trains on them.")
    text = "check: which hosts reach each other, started on all hosts; run and sbatch have a --help of their own"
    parser.add_argument("what", choices=("check", "run", "sbatch"), help=text)
    parser.add_argument("file", type=pathlib.Path, help="the cluster file")
    parser.add_argument("--host", required=True, help="the name of this host in it")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds to wait for the other hosts (30)")
    parser.add_argument("--allow-public", action="store_true", help="accept hosts with public addresses")
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    cluster = read_cluster(known.file)
    dataclasses.replace(cluster, guests=None).check_host(known.host)
    if not known.allow_public:
        cluster.check_addresses()
    if not 0 <= known.seconds < math.inf:
        raise CallboardError(f"--seconds must be a number of at least 0, not {known.seconds:g}")
    if cluster.tunnel:
        check_tunnels(cluster, known.host)
        problems = ssh_problems(cluster, known.host)
        if known.json:
            print(json.dumps({"problems": problems}))
        else:
            print("\n".join(map(printable, problems)) or f"{known.host} reaches all other hosts with ssh")
        return 1 if problems else 0
    views = check_reach(cluster, known.host, known.seconds)
    problems = describe_problems(cluster, known.host, views)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if known.json:
        console.print(json.dumps({"reach": views, "problems": problems}))
    else:
        console.print(_table(cluster, views))
        for problem in problems:
            console.print(printable(problem))
    return 1 if problems else 0


def _table(cluster: Cluster, views: Mapping[str, Mapping[str, str]]) -> Table:
    table = Table("from \\ to", *cluster.hosts, box=None, padding=(0, 2))
    for one in cluster.hosts:
        row = views.get(one, {})
        cells = ["-" if one == other else row.get(other, UNKNOWN) for other in cluster.hosts]
        table.add_row(one, *(cell if cell in ("-", REACHED, UNKNOWN) else "no" for cell in cells))
    return table
