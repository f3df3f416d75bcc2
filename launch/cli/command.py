"""The command `callboard`."""

import argparse
import atexit
import contextlib
import json
import os
import pathlib
import statistics
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import psutil
from rich.console import Console
from rich.table import Table

from ... import environments
from ...errors import CallboardError, unknown
from ..launchers.forkserver import start_forkserver, stop_forkserver
from ..launchers.forkserver_process import end_processes
from ..run_directory.remote_storage import is_url, local_copy
from ..settings import Settings, format_help, parse_settings, read_recipe, read_settings, recipe_names
from ..stop_signals import Stopped, raise_at_signals
from .command_parser import CommandParser

_USAGE = """\
usage: callboard COMMAND ...

commands:
  train AGENT --env NAME [options]     train an agent
  train --recipe NAME [options]        the same from a recipe, see `callboard list recipes`
  tune AGENT --search KEY=RANGE ...    search settings, many runs at a time, on Ray Tune
  evaluate RUN [--episodes N]          play with the policy of a run
  export RUN DIR                       write the policy of a run as a SavedModel
  cluster check FILE --host NAME       see which hosts of a cluster file reach each other
  graph AGENT --env NAME [options]     show the program graph of a run without starting it
  list agents|environments|recipes     what there is
  doctor                               check this machine and installation

`callboard COMMAND --help` tells more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, which is 2 if the user has to fix something first."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # `my_module:MyAgent` is also looked up in the working directory, but last: a file there, which may belong to a run
    # of another user, must not take the place of a library.
    with contextlib.suppress(OSError):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
    commands = {
        "train": _train,
        "evaluate": _evaluate,
        "export": _export,
        "cluster": _check_cluster,
        "graph": _graph,
        "tune": _tune,
        "list": _list,
        "doctor": _doctor,
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    try:
        if arguments[0] not in commands:
            raise unknown("command", arguments[0], commands)
        return commands[arguments[0]](arguments[1:])
    except CallboardError as error:
        print(f"callboard: {_printable(str(error))}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        return 130
    finally:
        stop_forkserver()


def _printable(text: str) -> str:
    """Return a text in one line; text from a user's file may contain line breaks or terminal control codes."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _train(arguments: list[str]) -> int:
    parser = _agent_parser("train", "Trains an agent.")
    parser.add_argument("--launcher", default="processes", help="processes (default), threads, inline, hosts or ray")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --run-dir")
    parser.add_argument(
        "--private-network", action="store_true", help="a network of the run's own, into which nobody can connect"
    )
    hosts = parser.add_argument_group("on several hosts (--launcher hosts)")
    hosts.add_argument("--cluster", type=pathlib.Path, help="the cluster file, see docs/hosts.md")
    hosts.add_argument("--host", help="the name of this host in it")
    hosts.add_argument("--allow-public", action="store_true", help="take hosts with public addresses")
    on_ray = parser.add_argument_group("on a Ray cluster (--launcher ray)")
    on_ray.add_argument("--ray-address", help="host:port, auto for one that runs here, or local for a new one")
    on_ray.add_argument("--ray-cpus", action="append", metavar="KIND=N", help="processors of a node, as actor=0.5")
    on_ray.add_argument("--ray-strategy", help="how nodes are placed: PACK (default), SPREAD, ...")
    on_ray.add_argument("--ray-wait", type=int, help="seconds to wait for room, 60 by default")
    known, options = _parse_agent(parser, arguments)
    if known.help:
        return _help(parser, known.agent)
    if known.private_network:
        _begin_in_private_network(known.launcher, arguments)
    from .. import start_checks

    # All of this runs without TensorFlow, so that mistakes are reported at once.
    start_checks.check_launcher(known.launcher)
    settings = _settings(known, options, known.resume)
    experiment = settings.without_agent()
    cluster, ray = _cluster(known, experiment, options), _ray_options(known)
    if cluster is not None:
        experiment = cluster.fit(experiment)
    start_checks.check_launcher_can(known.launcher, experiment)
    experiment.check_numbers()
    if known.launcher != "hosts" and not is_url(experiment.run_dir):
        start_checks.find_run_directory(experiment, known.resume, known.agent or settings.agent)
    if known.launcher in ("processes", "hosts"):
        # TensorFlow is imported in another process while this one checks the environment.
        start_forkserver()
    environments.check(experiment.env, experiment.env_options)
    from ..launchers.display import make_monitor
    from ..launchers.run_summary import describe_end
    from ..run import run

    experiment = settings.experiment()
    launcher_options = ray
    if cluster is not None:
        from ..launchers.hosts.host_run import HostsOptions

        launcher_options = HostsOptions(cluster, known.host, known.allow_public)
    monitor = make_monitor(experiment.max_steps)
    try:
        outcome = run(experiment, known.launcher, monitor, known.resume, launcher_options)
    finally:
        monitor.close()
    if outcome.failed_node is not None:
        error = (outcome.error or "").rstrip()
        with contextlib.suppress(OSError):
            print(f"{outcome.failed_node} failed:{os.linesep if os.linesep in error else ' '}{error}", file=sys.stderr)
    else:
        with contextlib.suppress(OSError):
            print(describe_end(outcome, experiment.evaluation_episodes), flush=True)
    return outcome.exit_code


def _begin_in_private_network(launcher: str, arguments: list[str]) -> NoReturn:
    from .private_network import begin_again

    if launcher in ("hosts", "ray"):
        raise CallboardError(
            f"--private-network is for runs on this machine alone, and the {launcher} launcher must be reached from "
            "others: leave one of the two out"
        )
    begin_again(["train", *arguments])


def _cluster(known: argparse.Namespace, experiment: Any, options: list[str]) -> Any:
    """Return the cluster file of the hosts launcher; None for other launchers, which do not accept its options."""
    if known.launcher != "hosts":
        return _refuse_options(known, ("cluster", "host", "allow_public"), "hosts")
    if known.cluster is None or known.host is None:
        raise CallboardError("--launcher hosts needs the cluster file and this host's name in it: --cluster, --host")
    from ..launchers.hosts.cluster_file import read_cluster

    cluster = read_cluster(known.cluster)
    cluster.check_host(known.host)
    if not known.allow_public:
        cluster.check_addresses()
    cluster.fit(experiment, given=[name[2:].replace("-", "_") for name, _ in _pairs(options)])
    return cluster


def _ray_options(known: argparse.Namespace) -> Any:
    """Return the options of the ray launcher; None for other launchers, which do not accept them."""
    names = ("ray_address", "ray_cpus", "ray_strategy", "ray_wait")
    if known.launcher != "ray":
        return _refuse_options(known, names, "ray")
    from ..launchers.ray.options import RayOptions

    return RayOptions.parse(*(getattr(known, name) for name in names))


def _refuse_options(known: argparse.Namespace, names: Sequence[str], launcher: str) -> None:
    for name in names:
        if getattr(known, name) not in (None, False):
            raise CallboardError(f"--{name.replace('_', '-')} is an option of --launcher {launcher}")


def _evaluate(arguments: list[str]) -> int:
    parser = CommandParser("callboard evaluate", description="Plays with the policy of a run.")
    parser.add_argument("run", help="the run directory, a path or a URL")
    parser.add_argument("--episodes", type=int, default=20, help="whole episodes that are played (20)")
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best", help="which weights")
    parser.add_argument(
        "--mode", choices=("greedy", "sampled"), help="best actions, or actions sampled from the policy; as in the run"
    )
    parser.add_argument("--epsilon", type=float, help="rate of random actions, for agents that learn action values")
    parser.add_argument("--seed", type=int, help="the run's own by default, so that the same episodes are played again")
    parser.add_argument("--video", action="store_true", help="record whole episodes as MP4 under RUN/videos")
    parser.add_argument("--video-episodes", type=int, default=1, metavar="N", help="episodes of the video (1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    for option, number in (("--episodes", known.episodes), ("--video-episodes", known.video_episodes)):
        if number < 1:
            raise CallboardError(f"{option} must be at least 1, not {number}")
    experiment = _checked_run(known.run)
    from ..evaluation import evaluate_run, with_evaluation_settings

    experiment = with_evaluation_settings(experiment, known.mode, known.epsilon, known.seed)

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    with local_copy(known.run) as directory:
        video_episodes = known.video_episodes if known.video else 0
        result = evaluate_run(experiment, directory, known.episodes, known.checkpoint, video_episodes, say)
    policy, video = (
        path and f"{known.run}/{path.relative_to(directory.path)}" for path in (result.policy, result.video)
    )
    returns = [episode.episode_return for episode in result.episodes]
    summary: dict[str, Any] = {
        "mean": statistics.fmean(returns),
        "std": statistics.pstdev(returns),
        "min": min(returns),
        "max": max(returns),
        "episodes": len(returns),
        "mean_length": statistics.fmean(episode.length for episode in result.episodes),
        "policy": policy,
        "video": video,
        "video_returns": [episode.episode_return for episode in result.video_episodes],
        "mode": experiment.evaluation_mode,
        "epsilon": getattr(experiment.agent, "evaluation_epsilon", None),
        "seed": experiment.seed,
    }
    if known.json:
        print(json.dumps({**summary, "returns": returns}))
        return 0
    print(" ".join(f"{value:g}" for value in returns))
    print(
        f"mean {summary['mean']:.1f} ± {summary['std']:.1f} over {len(returns)} episodes "
        f"(from {summary['min']:g} to {summary['max']:g}), of {summary['mean_length']:.0f} steps"
    )
    if video:
        shown = " ".join(f"{value:g}" for value in summary["video_returns"])
        print(f"video: {video} (episodes with a return of {shown})")
    return 0


def _export(arguments: list[str]) -> int:
    parser = CommandParser("callboard export", description="Writes the policy of a run as a SavedModel.")
    parser.add_argument("run", help="the run directory, a path or a URL")
    parser.add_argument("directory", type=pathlib.Path, help="of the SavedModel, new or empty")
    parser.add_argument("--checkpoint", choices=("best", "latest"), default="best", help="which weights")
    known = parser.parse_args(arguments)
    experiment = _checked_run(known.run)
    from ..export import export_run

    with local_copy(known.run) as directory:
        exported = export_run(experiment, directory, known.directory, known.checkpoint)
    print(f"{known.run}/{exported.policy.relative_to(directory.path)} is now the SavedModel {known.directory}")
    for name in ("inputs", "outputs"):
        tensors = getattr(exported.signatures, name).items()
        print(f"{name}: " + ", ".join(f"{leaf} {spec.dtype.name}{spec.shape}" for leaf, spec in tensors))
    return 0


def _check_cluster(arguments: list[str]) -> int:
    from ..launchers.hosts.cluster_check import cluster_command

    return cluster_command(arguments)


def _graph(arguments: list[str]) -> int:
    parser = _agent_parser("graph", "Shows the program graph of a run without starting it.")
    known, options = _parse_agent(parser, arguments)
    if known.help:
        return _help(parser, known.agent)
    settings = _settings(known, options)
    settings.without_agent().check_numbers()
    environments.check(settings.of_run["env"], settings.of_run.get("env_options"))
    from ..experiment import Run
    from ..program import describe_graph, make_program
    from ..run_directory.layout import RunDirectory

    experiment = settings.experiment()
    # The learner's devices may be those of another machine.
    run = Run(experiment, experiment.check(learners_here=0), RunDirectory(pathlib.Path("runs")))
    print(describe_graph(make_program(run)))
    return 0


def _tune(arguments: list[str]) -> int:
    from ..tuning.tune import tune_command

    return tune_command(arguments)


def _list(arguments: list[str]) -> int:
    parser = CommandParser("callboard list", description="Lists what there is.")
    parser.add_argument("what", choices=("agents", "environments", "recipes"))
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    if known.what == "agents":
        from ...agents.registry import AGENTS

        names = sorted(AGENTS)
    elif known.what == "environments":
        names = environments.names()
    else:
        names = recipe_names()
    print(json.dumps(names) if known.json else "\n".join(names))
    return 0


def _doctor(arguments: list[str]) -> int:
    parser = CommandParser("callboard doctor", description="Checks this machine and installation.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    from .doctor import examine

    findings = examine()
    if known.json:
        print(json.dumps([finding._asdict() for finding in findings]))
    else:
        table = Table.grid(padding=(0, 2))
        for finding in findings:
            table.add_row("ok" if finding.ok else "WRONG", finding.name, finding.found, finding.advice)
        Console(highlight=False, markup=False, emoji=False).print(table)
    return 0 if all(finding.ok for finding in findings) else 1


def _checked_run(run: str) -> Any:
    """Return the experiment of a run directory; errors in it are reported before TensorFlow is imported."""
    settings = read_settings(run)
    settings.without_agent().check_numbers()
    environments.check(settings.of_run["env"], settings.of_run.get("env_options"))
    return settings.experiment()


def _agent_parser(command: str, description: str) -> CommandParser:
    parser = CommandParser(
        f"callboard {command}",
        usage=f"callboard {command} [AGENT] [--recipe NAME] [options]",
        description=f"{description}  AGENT is an agent's name, or package.module:Class; a recipe may name it instead.",
        add_help=False,
    )
    parser.add_argument("--recipe", help="name of a recipe, or path of a YAML file")
    parser.add_argument("-h", "--help", action="store_true", help="show this help")
    return parser


def _parse_agent(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the agent's name, which must come first, and the parser's own options; return the rest as settings."""
    agent = arguments[0] if arguments and not arguments[0].startswith("-") else None
    known, options = parser.parse_known_args(arguments[1:] if agent else arguments)
    known.agent = agent
    return known, options


def _settings(known: argparse.Namespace, options: list[str], resume: bool = False) -> Settings:
    if resume:
        run_dir = next((value for name, value in reversed(_pairs(options)) if name == "--run-dir"), None)
        if run_dir is None:
            raise CallboardError("--resume needs the run's directory: --run-dir runs/...")
        if known.recipe:
            raise CallboardError("a run is resumed with its own settings, which options may change: leave --recipe out")
        settings = read_settings(run_dir, options)
        if known.agent not in (None, settings.agent):
            raise CallboardError(
                f"the run in {run_dir} trains {settings.agent}, not {known.agent}: leave the agent out"
            )
        return settings
    return parse_settings(known.agent, read_recipe(known.recipe) if known.recipe is not None else {}, options)


def _pairs(options: list[str]) -> list[tuple[str, str]]:
    """Return options and their values, whether written `--name value` or `--name=value`."""
    split = [part for option in options for part in (option.split("=", 1) if option.startswith("--") else [option])]
    return [(name.replace("_", "-"), value) for name, value in zip(split, split[1:], strict=False)]


def _help(parser: argparse.ArgumentParser, agent: str | None) -> int:
    parser.print_help()
    if agent is None:
        print("\nName an agent to see the options of the run and of that agent: callboard train impala --help")
        return 0
    print(f"\n{format_help(agent)}")
    return 0


def run_command() -> None:
    """The entry point of the command: ends the process with `main`'s exit code.

    Exit functions are called first.  The process then ends at once, because the interpreter's normal exit aborts if a
    thread is still blocked in Reverb or gRPC.
    """
    raise_at_signals()
    try:
        code = main()
    except Stopped as stopped:  # Another signal arrived during the clean-up.
        code = stopped.exit_code
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        with contextlib.suppress(OSError):
            traceback.print_exc()
        code = 1
    _end_children()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _end_children() -> None:
    """End processes that environments in this process have left running; `multiprocessing` would wait for them."""

    def find() -> list[int]:
        found = []
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                # A resource tracker removes shared resources after this process has ended.
                if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline()):
                    found.append(child.pid)
        return found

    end_processes(find)


if __name__ == "__main__":
    run_command()
