"""The options of launchers, which follow from the fields of their classes."""

from collections.abc import Sequence

from ..errors import CallboardError
from ..launch.experiments.option_parsing import given_options, merge_options, option_name
from ..launch.experiments.settings_help import format_options
from ..launch.launchers.launcher import Launcher
from ..launch.launchers.registry import LAUNCHERS, launcher_class, launcher_options, make_launcher
from .command_parser import CommandParser
from .experiment_options import check_option_names, split_options


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
