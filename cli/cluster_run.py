"""`callboard cluster run` and `callboard cluster sbatch`: one command that trains on several machines."""

import dataclasses
import os
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import CallboardError, named_as, printable, printable_lines, writing
from ..files.atomic_files import write_file
from ..launch.experiments.option_parsing import option_texts
from ..launch.experiments.parts.placement_part import PlacementPart
from ..launch.experiments.run_checks import check_settings
from ..launch.experiments.settings import Settings, read_recipes
from ..launch.experiments.yaml_files import format_yaml
from ..launch.launchers.hosts.cluster_file import read_cluster
from ..launch.launchers.hosts.cluster_run import host_here, run_cluster
from ..launch.launchers.hosts.remote_part import MODULES, RemotePart
from ..launch.launchers.hosts.slurm_script import SlurmJob, slurm_script
from ..launch.launchers.launcher import Launcher
from ..launch.launchers.registry import DEFAULT_LAUNCHER
from ..launch.plain_names import in_command
from ..messages.install_commands import command_path
from ..settings.nested_settings import declared_fields
from ..settings.own_files import own_files
from .command_parser import CommandParser, field_values
from .experiment_options import define_experiment, parse_arguments, redefine_experiment, split_options
from .train import options_of_each_run, parse_launcher, train_parser

_RUN_HELP = """\
Trains on all hosts of a cluster file, from one of them or from another machine: connects to the others with ssh, sends
the cluster file, the recipe and your own modules, starts the run, shows its output, and ends it everywhere.  What
follows the file is that of `callboard train`, without --launcher, --cluster and --host."""
_SBATCH_HELP = """\
Writes a script for Slurm's sbatch that trains on the machines of a job: the learner on the first, actors on the others.
What is not an option below is that of `callboard train`."""


@dataclasses.dataclass
class _Training:
    """The arguments of `callboard train` behind those of a command, checked as it does."""

    settings: Settings
    words: list[str]
    """All arguments but the recipe, the run directory and the launcher."""
    recipe: Mapping[str, Any]
    """The content of the recipes."""
    given: list[str]
    """The settings that are given as options."""
    resume: bool
    add_nodes: str | None
    launcher: Launcher

    @property
    def run_dir(self) -> str:
        """The run directory, as an absolute path."""
        run_dir = self.settings.of_run.get("run_dir")
        if run_dir is None:
            raise CallboardError("a run on several hosts needs its directory; name it with --run-dir")
        return os.path.abspath(run_dir)

    def fit(self) -> PlacementPart:
        """Returns the nodes of the run; refuses what every host would refuse, but for the run directory."""
        fitted = self.launcher.fit(self.settings.without_agent(), self.given)
        self.launcher.check(fitted)
        check_settings(fitted)
        return fitted


def run_on_hosts(arguments: Sequence[str]) -> int:
    """Runs `callboard cluster run`; returns the exit code of the run."""
    parser = CommandParser("callboard cluster run", usage="callboard cluster run FILE AGENT --env NAME [options]")
    parser.description = _RUN_HELP
    parser.add_argument("--callboard", metavar="PATH", help="the command on the other hosts (the path of this one)")
    known, rest = parser.parse_known_args(arguments)
    if not rest or rest[0].startswith("-"):
        raise CallboardError(
            "callboard cluster run needs the cluster file first, and then what `callboard train` takes"
        )
    file = pathlib.Path(rest[0])
    cluster = read_cluster(file)
    here = host_here(cluster)
    training = _read_training(rest[1:], ["--cluster", str(file), "--host", here or cluster.first])
    settings, launcher = training.settings, training.launcher
    training.fit()
    if here is not None:
        there = dataclasses.replace(settings.without_agent(), run_dir=training.run_dir)
        launcher.check_directory(there, training.resume, settings.agent)
    modules = own_files(settings.agent, settings.of_agent, settings.of_run, training.add_nodes)
    files = {"cluster.yaml": file.read_bytes(), **{f"{MODULES}{name}": content for name, content in modules.items()}}
    if training.recipe:
        files["recipe.yaml"] = format_yaml(training.recipe).encode()
    as_text = {name: content.decode("latin-1") for name, content in files.items()}
    parts = {
        name: RemotePart(
            [*training.words, "--launcher", "hosts", "--host", name, "--run-dir", training.run_dir],
            as_text,
            os.getcwd(),
            str(file.absolute()),
            cluster.patience,
        )
        for name in cluster.used_hosts
    }

    def show(line: str) -> None:
        print(printable_lines(line), flush=True)

    return run_cluster(cluster, here, parts, known.callboard or command_path(), show)


def write_sbatch(arguments: Sequence[str]) -> int:
    """Runs `callboard cluster sbatch`; returns 0."""
    parser = CommandParser("callboard cluster sbatch", usage="callboard cluster sbatch AGENT --env NAME [options]")
    parser.description = _SBATCH_HELP
    fields = declared_fields(SlurmJob)
    parser.add_fields(fields)
    parser.add_argument("--output", type=pathlib.Path, help="the file to write (standard output)")
    known, rest = parser.parse_known_args(arguments)
    job = SlurmJob(**field_values(known, fields))
    with tempfile.TemporaryDirectory() as folder:
        # What every host would refuse is refused here, with hosts that stand for those of the job.
        file = pathlib.Path(folder, "cluster.yaml")
        file.write_text(job.cluster_file())
        with named_as(file, "the job"):
            training = _read_training(rest, ["--cluster", str(file), "--host", "node-0"])
            nodes = training.fit()
    run_dir = training.settings.of_run.get("run_dir")
    directory = "$SLURM_SUBMIT_DIR/runs/slurm" if run_dir is None else shlex.quote(os.path.abspath(run_dir))
    script = slurm_script(
        job,
        split_options(rest[1:] if rest[:1] == ["train"] else rest, ("run_dir",))[1],
        directory,
        shlex.quote(command_path()),
        writer=shlex.join(arguments),
        elastic=nodes.min_actors is not None,
    )
    if known.output is None:
        print(script, end="")
        return 0
    with writing(f"--output {known.output}"):
        write_file(known.output, script)
    print(
        printable(f"wrote {known.output}: submit it with {shlex.join(['sbatch', in_command(known.output)])}"),
        file=sys.stderr,
    )
    return 0


def _read_training(words: Sequence[str], of_launcher: Sequence[str]) -> _Training:
    """Reads the arguments of `callboard train`, of which those that the command gives itself are refused."""
    words = list(words[1:] if words[:1] == ["train"] else words)
    parser = train_parser()
    known, agent, options = parse_arguments(parser, words)
    if known.launcher not in (DEFAULT_LAUNCHER, "hosts"):
        raise CallboardError(f"several hosts are trained on by --launcher hosts: leave --launcher {known.launcher} out")
    for name in ("seeds", "private_network", "print_settings", "overwrite"):
        if getattr(known, name):
            raise CallboardError(f"--{name.replace('_', '-')} is for runs on one machine: leave it out")
    given, _ = split_options(options, ("cluster", "host"))
    if given:
        raise CallboardError(f"{given[0]} is given to each host by this command: leave it out")
    known.launcher = DEFAULT_LAUNCHER
    launcher, of_run = parse_launcher("hosts", [*options, *of_launcher], parser)
    if known.resume:
        settings = redefine_experiment(agent, known.recipe, of_run, known.trust)
    else:
        settings = define_experiment(agent, known.recipe, of_run)
    kept = [*options_of_each_run(parser, known), *(["--resume"] if known.resume else [])]
    words = [*([agent] if agent else []), *split_options(options, ("run_dir",))[1], *kept]
    recipe = {} if known.resume else read_recipes(known.recipe or ())
    given = list(option_texts(of_run))
    return _Training(settings, words, recipe, given, known.resume, known.add_nodes, launcher)
