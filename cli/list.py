"""`callboard list`: the names of agents, environments, launchers, recipes and studies."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence

from .. import environments
from ..agents.agent_names import AGENTS
from ..errors import CallboardError
from ..launch.experiments.settings import RECIPES, STUDIES, recipe_names, unknown_file
from ..launch.launchers.registry import LAUNCHERS
from ..studies.comparison.study_definition import study_names
from .command_parser import CommandParser

_FOLDERS = {"recipes": ("recipe", RECIPES), "studies": ("study", STUDIES)}

_NAMES: Mapping[str, Callable[[], Sequence[str]]] = {
    "agents": lambda: sorted(AGENTS),
    "environments": environments.names,
    "launchers": lambda: list(LAUNCHERS),
    "recipes": recipe_names,
    "studies": study_names,
}


def main(arguments: Sequence[str]) -> int:
    parser = CommandParser("callboard list", description="Lists names that other commands take.")
    parser.add_argument("what", choices=tuple(_NAMES))
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this recipe or study")
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    names = _NAMES[known.what]()
    if known.name is not None:
        print(_file(known.what, known.name).read_text(), end="")
        return 0
    print(json.dumps(names) if known.json else "\n".join(names))
    return 0


def _file(what: str, name: str) -> pathlib.Path:
    if what not in _FOLDERS:
        raise CallboardError(f"names of {what} stand for no files: leave {name!r} out")
    kind, folder = _FOLDERS[what]
    if name not in _NAMES[what]():
        others = {one: path for one, path in _FOLDERS.values() if one != kind}
        raise unknown_file(kind, name, _NAMES[what](), others)
    return folder / f"{name}.yaml"
