"""`callboard list`: the names of agents, environments, launchers, recipes and studies."""

import json
from collections.abc import Callable, Mapping, Sequence

from ... import environments
from ...agents.registry import AGENTS
from ..comparison.study_definition import study_names
from ..launchers.registry import LAUNCHERS
from ..settings import recipe_names
from .command_parser import CommandParser

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
    parser.add_argument("--json", action="store_true", help="print JSON")
    known = parser.parse_args(arguments)
    names = _NAMES[known.what]()
    print(json.dumps(names) if known.json else "\n".join(names))
    return 0
