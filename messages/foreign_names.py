"""Names that other libraries use for parts of Callboard: the source of hints for unknown names.

The table is `foreign_names.yaml`; the page docs/coming_from.md shows it.  Libraries are Stable-Baselines3, RLlib,
CleanRL and Acme; others share a column.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

LIBRARIES = {"sb3": "Stable-Baselines3", "rllib": "RLlib", "cleanrl": "CleanRL", "acme": "Acme", "others": "others"}
"""Names of the libraries by the keys of the table."""

Kind = Literal["setting", "agent", "command", "python"]
"""Settings, also as options and keyword arguments; names of agents; commands; classes, functions and methods."""

_TWO_OPTIMIZERS = re.compile(r"\.(actor|critic)_optimizer\.")
_TABLE = pathlib.Path(__file__).with_suffix(".yaml")


@dataclasses.dataclass(frozen=True)
class Meaning:
    """The meaning of one or several names of other libraries.

    Attributes:
      ours: what has that meaning here: flat names of settings, of which an agent has one or several, and options of
        commands such as `--mode`; or names of agents or commands; or names in Python such as `callboard.load_policy`.
        Empty if there is nothing to name.
      remark: explains the difference, or says what to do if `ours` is empty or has no setting.
      theirs: the names in each library, by the keys of `LIBRARIES`.
    """

    ours: tuple[str, ...]
    remark: str
    theirs: Mapping[str, tuple[str, ...]]


@functools.cache
def sections(kind: Kind) -> Mapping[str, tuple[Meaning, ...]]:
    """Returns the meanings of a kind of name, by the heading of their table."""
    import yaml  # Imported here so that importing Callboard is quick.

    table = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))[kind]
    return {heading: tuple(map(_meaning, rows)) for heading, rows in table.items()}


def _meaning(row: Mapping[str, str]) -> Meaning:
    theirs = {library: tuple(row.get(library, "").split()) for library in LIBRARIES}
    return Meaning(tuple(row.get("ours", "").split()), row.get("remark", ""), theirs)


def hint(kind: Kind, name: str, known: Mapping[str, str] | Collection[str] = ()) -> str | None:
    """Returns what to write instead of another library's name, such as `did you mean 'agent.discount'?`.

    Args:
      kind: what the name is meant to be.
      name: the user's name, in any case, with dashes or underscores.  Of a dotted one, such as `--agent.gamma`, the
        last part alone is looked up if the whole is in no table.
      known: what could have been written: names, or what to show by name.  Those of an agent's settings begin with
        `agent.`, or as `name` does, such as with `policies.red.`, or, among an agent's own arguments, with nothing.
        For Python, everything in the table is known.

    Returns:
      The hint, or None if no library has the name, or what it means is not in `known`.
    """
    found = _find(kind, name)
    shown = dict(known) if isinstance(known, Mapping) else {one: one for one in known}
    if kind == "python":
        shown = {ours: ours for meaning in found for ours in meaning.ours}
    remarks: list[str] = []
    proposed: dict[str, None] = {}
    parts = name.split(".")
    groups = ["agent.", *(".".join([*parts[:length], ""]) for length in range(len(parts)))]
    for meaning in found:
        forms = [f"{group}{ours.removeprefix('agent.')}" for ours in meaning.ours for group in groups]
        near = [shown[form] for form in forms if form in shown]
        proposed |= dict.fromkeys(near)
        if meaning.remark and (near or all(ours.startswith("--") for ours in meaning.ours)):
            remarks.append(meaning.remark)
    remark = "; ".join(dict.fromkeys(remarks))
    if not proposed:
        return remark or None
    proposal = f"did you mean {' or '.join(map(repr, proposed))}?"
    return f"{proposal} ({remark})" if remark else proposal


def agents_settings(name: str) -> list[str]:
    """Returns the settings of agents that another library's name may stand for; see `hint`."""
    return [ours for meaning in _find("setting", name) for ours in meaning.ours if ours.startswith("agent.")]


def _find(kind: Kind, name: str) -> Sequence[Meaning]:
    plain = name.lstrip("-").lower().replace("-", "_")
    return _by_name(kind).get(plain) or _by_name(kind).get(plain.rpartition(".")[2]) or ()


@functools.cache
def _by_name(kind: Kind) -> Mapping[str, tuple[Meaning, ...]]:
    found: dict[str, list[Meaning]] = {}
    for meaning in (meaning for section in sections(kind).values() for meaning in section):
        names = {name.lower() for names in meaning.theirs.values() for name in names}
        for key in names | {name.rpartition(".")[2] for name in names}:
            found.setdefault(key, []).append(meaning)
    return {name: tuple(meanings) for name, meanings in found.items()}


def foreign_name_tables() -> str:
    """Returns the tables of docs/coming_from.md, in Markdown."""
    tables: list[str] = []
    for kind in get_args(Kind):
        for heading, meanings in sections(kind).items():
            rows = [["Callboard", "elsewhere"], ["---", "---"], *([_ours(one), _elsewhere(one)] for one in meanings)]
            lines = [f"| {' | '.join(row)} |" for row in rows]
            tables.append("\n".join([f"## {heading}", "", *lines, ""]))
    return "\n".join(tables)


def _ours(meaning: Meaning) -> str:
    # The page says once that agents with an actor and a critic have two optimizers.
    several = len(meaning.ours) > 1
    ours = [_TWO_OPTIMIZERS.sub(".optimizer.", name) if several else name for name in meaning.ours]
    names = _code(list(dict.fromkeys(ours)))
    return f"{names}: {meaning.remark}" if names and meaning.remark else names or meaning.remark


def _elsewhere(meaning: Meaning) -> str:
    """Returns the names in other libraries, with the libraries that have them."""
    libraries: dict[str, list[str]] = {}
    for library, names in meaning.theirs.items():
        for name in names:
            libraries.setdefault(name, []).append(LIBRARIES[library])
    together: dict[str, list[str]] = {}
    for name, having in libraries.items():
        together.setdefault(", ".join(having), []).append(name)
    return "; ".join(f"{_code(names)} ({having})" for having, names in together.items())


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
