"""`callboard train`: trains an agent."""

import argparse
from collections.abc import Sequence

from .. import environments
from ..errors import CallboardError
from ..launch.experiments.environment_check import environment_check
from ..launch.experiments.option_parsing import given_options, merge_options, option_name, option_texts
from ..launch.experiments.policy_server_settings import check_address_is_free
from ..launch.experiments.run_checks import check_settings
from ..launch.experiments.settings import format_recipe
from ..launch.experiments.settings_help import format_options
from ..launch.launchers.launcher import Launcher
from ..launch.launchers.registry import DEFAULT_LAUNCHER, LAUNCHERS, launcher_class, launcher_options, make_launcher
from ..settings.named_objects import import_object
from ..studies.comparison.run_series import OF_SERIES
from .command_parser import CommandParser
from .experiment_options import (
    check_option_names,
    define_experiment,
    experiment_help,
    experiment_parser,
    parse_arguments,
    redefine_experiment,
    split_options,
)
from .private_network import in_same_network, run_in_private_network
from .run_arguments import add_trust
from .seed_series import check_series_owner, is_series, train_seeds

_OF_THE_SERIES = ("recipe", "help", "resume", "seeds", "private_network", "of_series")
"""Options of the command that are not passed to each run of several seeds."""


def train_parser() -> CommandParser:
    """Returns the parser of the options of the command itself."""
    parser = experiment_parser("train", "Trains an agent.")
    parser.add_argument(
        "--launcher",
        default=DEFAULT_LAUNCHER,
        metavar="NAME",
        help=f"{', '.join(LAUNCHERS)}, or package.module:Class; {DEFAULT_LAUNCHER} by default",
    )
    parser.add_argument("--resume", action="store_true", help="continue the run, or the runs of --seeds, in --run-dir")
    add_trust(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace a run that is in --run-dir")
    parser.add_argument("--seeds", help="run once with each of these seeds, such as 1,2,3, one after the other")
    parser.add_argument(
        "--private-network", action="store_true", help="run in a network of its own, which cannot be reached"
    )
    parser.add_argument(
        "--add-nodes",
        metavar="MODULE:FUNCTION",
        help='function that adds nodes of your own, see "A node in the graph"',
    )
    parser.add_argument(
        "--print-settings", action="store_true", help="print all settings as a recipe, and start nothing"
    )
    parser.add_argument(OF_SERIES, action="store_true", help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str]) -> int:
    parser = train_parser()
    known, agent, options = parse_arguments(parser, arguments)
    if known.help:
        print(experiment_help(parser, agent, launcher_help(known.launcher)))
        return 0
    if known.private_network and not known.print_settings:
        if not launcher_class(known.launcher).on_this_machine:
            raise CallboardError(
                f"--private-network is for runs on one machine, and the nodes of --launcher {known.launcher} must be "
                "reachable from others; leave one of the two out"
            )
        run_in_private_network(["train", *arguments])
    # Until `run` is imported, nothing imports TensorFlow, so that mistakes are reported at once.
    given_options = options
    launcher, options = parse_launcher(known.launcher, options, parser)
    if known.print_settings and known.seeds is not None:
        raise CallboardError("--print-settings prints a recipe, which has one seed: leave --seeds out")
    if known.seeds is not None or (known.resume and is_series(options)):
        if known.overwrite:
            raise CallboardError(
                "--overwrite replaces one run, and --seeds makes several: remove them, or name another directory"
            )
        of_launcher, _ = split_options(given_options, launcher_options(launcher_class(known.launcher)))
        settings = None if known.resume else define_experiment(agent, known.recipe, options)
        if known.resume and not known.trust:
            check_series_owner(options)
        return train_seeds(
            known.seeds, settings, launcher, options, [*options_of_each_run(parser, known), *of_launcher]
        )
    if known.resume:
        settings = redefine_experiment(agent, known.recipe, options, known.trust)
    else:
        settings = define_experiment(agent, known.recipe, options)
    if known.print_settings:
        check_settings(settings.without_agent())
        print(format_recipe(settings.experiment()), end="")
        return 0
    given = list(option_texts(options))
    experiment = launcher.fit(settings.without_agent(), given)
    launcher.check(experiment)
    check_settings(experiment)
    check_address_is_free(experiment)
    launcher.check_directory(experiment, known.resume, settings.agent, known.overwrite)
    launcher.prepare()
    with environment_check(experiment, experiment.node_timeout):
        environments.check(experiment.env, experiment.options_of_env)
        add_nodes = None if known.add_nodes is None else import_object("function", known.add_nodes)
        # Takes seconds, in which the environment is tried.
        from ..launch.launchers.screen.display import make_monitor
        from ..launch.launchers.screen.run_summary import show_end
        from ..launch.run import run

        experiment = settings.experiment()
    monitor = make_monitor(experiment.max_steps)
    try:
        outcome = run(experiment, launcher, monitor, known.resume, add_nodes, known.overwrite)
    finally:
        monitor.close()
    outcome.next_commands = () if known.of_series else tuple(map(in_same_network, outcome.next_commands))
    show_end(outcome, experiment.evaluation_episodes)
    return outcome.exit_code


def options_of_each_run(parser: CommandParser, known: argparse.Namespace) -> list[str]:
    """Returns the given options of the command itself that apply to each run of several seeds."""
    given: list[str] = []
    for action in dict.fromkeys(parser.options.values()):
        value = getattr(known, action.dest, None)
        if action.dest in _OF_THE_SERIES or value == action.default:
            continue
        given += action.option_strings[-1:] if action.nargs == 0 else [action.option_strings[-1], str(value)]
    return given


def parse_launcher(name: str, options: Sequence[str], parser: CommandParser) -> tuple[Launcher, list[str]]:
    """Returns a launcher with its options, and the options that are not its own.

    Args:
      name: name of the launcher.
      options: all options, for example `["--ray-wait", "5", "--max-steps", "1000"]`.
      parser: the parser of the command's other options.

    Raises:
      CallboardError: the launcher does not exist, has an option that the command has, or refuses a value; or an option
        belongs to another launcher.
    """
    fields = launcher_options(launcher_class(name))
    for option in map(option_name, fields):
        if option in parser.options:
            raise CallboardError(
                f"--launcher {name} has the option {option}, which the command has: rename the field, or set "
                "option_prefix in the class"
            )
    own, others = split_options(options, fields)
    of_others = {other: launcher_options(launcher_class(other)) for other in LAUNCHERS if other != name}
    for settings in of_others.values():
        of_other, _ = split_options(others, settings)
        if of_other:
            given = given_options(of_other)[0]
            owners = [other for other, known in of_others.items() if given.setting in known]
            raise CallboardError(f"--{given.name} is an option of --launcher {' and '.join(owners)}")
    check_option_names(others, [*map(option_name, fields), *parser.options])
    return make_launcher(name, merge_options({}, own, fields)), others


def launcher_help(name: str) -> str:
    """Returns the help for the options of all launchers, including one of the user's own."""
    classes = {known: launcher_class(known) for known in dict.fromkeys([*LAUNCHERS, name])}
    return "\n\n".join(
        format_options(f"--launcher {known}", launcher_options(launcher))
        for known, launcher in classes.items()
        if launcher_options(launcher)
    )
