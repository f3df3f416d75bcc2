"""Lookup of launchers by name: built-in names, or `package.module:Class` for launchers of your own.

The classes are imported only when they are used.  Their modules do not import TensorFlow, Launchpad or Ray.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ...errors import CallboardError, check_type, unknown
from ...messages.caller_words import is_by_command
from ...settings.named_objects import import_object
from ...settings.nested_settings import Field, declared_fields
from ..experiments.experiment import Experiment
from ..experiments.option_parsing import option_name
from ..experiments.settings import plain
from .launcher import Launcher

LAUNCHERS = {
    "inline": "callboard.launch.launchers.local_launchers:InlineLauncher",
    "threads": "callboard.launch.launchers.local_launchers:ThreadsLauncher",
    "processes": "callboard.launch.launchers.local_launchers:ProcessesLauncher",
    "launchpad": "callboard.launch.launchers.launchpad:LaunchpadLauncher",
    "hosts": "callboard.launch.launchers.hosts.launcher:HostsLauncher",
    "ray": "callboard.launch.launchers.ray.launcher:RayLauncher",
}
DEFAULT_LAUNCHER = "processes"


def launcher_class(name: str) -> type[Launcher]:
    """Returns the `Launcher` subclass with that name.

    Raises:
      CallboardError: the name is unknown (the message suggests the closest one), or is not that of a complete
        `Launcher`.
    """
    check_type("launcher", name, str, "the name of a launcher")
    path = LAUNCHERS.get(name, name)
    if ":" not in path:
        raise unknown("launcher", name, LAUNCHERS, f"choose from {', '.join(LAUNCHERS)}, or write package.module:Class")
    found = import_object("launcher", path)
    if not (isinstance(found, type) and issubclass(found, Launcher) and dataclasses.is_dataclass(found)):
        raise CallboardError(f"launcher {name!r} is not a dataclass that extends callboard's Launcher")
    if missing := sorted(found.__abstractmethods__):
        raise CallboardError(f"launcher {name!r} lacks the method {' and '.join(missing)}; add it to the class")
    return found


def launcher_options(launcher: type[Launcher]) -> dict[str, Field]:
    """Returns a launcher's options by their names on the command line, such as `ray_wait`.

    Raises:
      CallboardError: one of them is a setting of every run.
    """
    options = {launcher.option_prefix + name: field for name, field in declared_fields(launcher).items()}
    for field in dataclasses.fields(Experiment):
        if field.name in options:
            raise CallboardError(
                f"launcher {launcher.__name__} has the option {option_name(field.name)}, which every run has: rename "
                "the field, or set option_prefix in the class"
            )
    return options


def make_launcher(name: str, options: Mapping[str, Any] | None = None) -> Launcher:
    """Returns the launcher with that name.

    Args:
      name: as for `launcher_class`.
      options: values by their names on the command line, see `launcher_options`; those left out keep their defaults.

    Raises:
      CallboardError: as in `launcher_class`; or an option without a default is missing, or a value is refused.
    """
    check_type("options", options, Mapping | None, "options by name")
    launcher, options = launcher_class(name), options or {}
    needed = [
        launcher.option_prefix + field.name
        for field in dataclasses.fields(launcher)  # type: ignore[arg-type]
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if any(option not in options for option in needed):
        if is_by_command():
            shown = " and ".join(map(option_name, needed))
            raise CallboardError(f"--launcher {name} needs {shown}; see callboard train --launcher {name} --help")
        shown = ", ".join(f"{option.removeprefix(launcher.option_prefix)}=..." for option in needed)
        raise CallboardError(
            f"the launcher {name} needs options; pass {launcher.__name__}({shown}) instead of its name"
        )
    return launcher(**{option.removeprefix(launcher.option_prefix): value for option, value in options.items()})


def launcher_arguments(launcher: Launcher) -> list[str]:
    """Returns the options that make an equal launcher, such as `["--launcher", "ray", "--ray-wait", "5"]`.

    Options with default values are left out, and so is `--launcher` for the default one.
    """
    path = f"{type(launcher).__module__}:{type(launcher).__qualname__}"
    name = next((name for name, known in LAUNCHERS.items() if known == path), path)
    arguments = [] if name == DEFAULT_LAUNCHER else ["--launcher", name]
    for key, field in launcher_options(type(launcher)).items():
        value = plain(getattr(launcher, key.removeprefix(launcher.option_prefix)))
        if value == plain(field.default):
            continue
        if isinstance(value, bool):
            arguments.append(option_name(key if value else f"no_{key}"))
        else:
            arguments += [option_name(key), value if isinstance(value, str) else json.dumps(value)]
    return arguments
