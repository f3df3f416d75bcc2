"""Zoos: folders of trained policies, each a small run directory with a card that says how good it is.

A wheel offers the policies in its package by an entry point of the group `callboard.zoo` that names the package.
Nothing here runs code of a zoo: packages are found without being imported, and cards are JSON.
"""

import contextlib
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...environments.batches.spec_files import parse_spec
from ...errors import CallboardError, named_path, one_line, unknown, writing
from ...files.atomic_files import directory_draft
from ...files.guarded_files import read_arrays, read_json, read_regular
from ...launch.experiments.yaml_files import parse_yaml
from ...launch.run_directory.layout import RunDirectory
from ...launch.run_directory.remote_storage import Storage, check_run_owner, is_url

GROUP = "callboard.zoo"
CARD = RunDirectory(pathlib.Path()).card.name
WHERE_POLICIES_ARE = (
    "install a wheel of policies, such as callboard-zoo (pip install ./benchmarks/zoo in a clone), or name a zoo with "
    "--from"
)
WEIGHTS = "checkpoints/best.npz"
SETTINGS = "experiment.yaml"
FILES = (SETTINGS, "environment.json", WEIGHTS)
"""Files of a policy beside its card."""
_OWN = (CARD, SETTINGS)
"""Files of which one is enough for a folder to be taken as a policy."""
FORMAT = 1
MOST_BYTES = 2**28
"""Bytes of a file of a policy."""
_MOST_CARD_BYTES = _MOST_SETTINGS_BYTES = 2**20
MOST_EPISODES, _MOST_LETTERS = 100_000, 1_000
_COUNTED = ("environment steps", "learner steps")
_MOST_NAME = 100
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_MOST_NAME - 1}}}")


class Card(NamedTuple):
    """Origin and score of a policy."""

    agent: str
    env: str
    seed: int
    """Seed of the run that trained it, and of the evaluation."""
    steps: int
    """Steps of that run."""
    mean: float
    """Mean return of an evaluation."""
    std: float
    """Standard deviation of the returns of its episodes."""
    episodes: int
    curve: list[list[float]]
    """Environment steps and mean returns of the run's evaluations."""
    callboard: str
    """Version that trained it."""
    counted: str = _COUNTED[0]
    """Which steps are counted, see `RunResult`."""


class ZooPolicy(NamedTuple):
    """A policy in a zoo."""

    name: str
    place: str
    """The zoo, a path or a URL."""
    card: Card
    installed: bool = False
    """Whether a wheel that is installed here offers it."""


class FoundPolicies(NamedTuple):
    """The policies of zoos."""

    policies: list[ZooPolicy]
    problems: list[tuple[str, str]]
    """The name of each policy that cannot be used, and a line that says why."""


def find_policies(places: Sequence[str]) -> FoundPolicies:
    """Returns the policies in these zoos, paths or URLs, and then those of installed wheels.

    Raises:
      CallboardError: there is no such folder or URL.
    """
    found = FoundPolicies([], [])
    installed = [str(path) for path in installed_zoos()]
    for place in dict.fromkeys([*places, *installed]):
        for name in _names(place):
            try:
                found.policies.append(ZooPolicy(name, place, _card(place, name), place in installed))
            except (CallboardError, OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                found.problems.append((name, f"{place}/{name} cannot be used: {why}; replace it by a copy"))
    return found


def find_policy(name: str, places: Sequence[str], notify: Callable[[str], object] = lambda text: None) -> ZooPolicy:
    """Returns the first policy of a name that can be used, see `find_policies`.

    Args:
      name: its name.
      places: the zoos.
      notify: receives a line for each other one of that name that cannot be used.

    Raises:
      CallboardError: there is none, or it cannot be used.
    """
    policies, problems = find_policies(places)
    named = [policy for policy in policies if policy.name == name]
    broken = [why for of, why in problems if of == name]
    if broken and not named:
        raise CallboardError(broken[0])
    for why in broken:
        notify(why)
    if not named:
        none = "" if policies else WHERE_POLICIES_ARE
        raise unknown("policy", name, dict.fromkeys(policy.name for policy in policies), none)
    return named[0]


def copy_policy(policy: ZooPolicy, path: pathlib.Path, trust: bool = False) -> None:
    """Copies a policy as a run directory, completely or not at all.

    Args:
      policy: the policy.
      path: the run directory, new or empty.
      trust: whether the zoo may belong to another user: the settings of a run name code, which runs when it is loaded.

    Raises:
      CallboardError: `path` is a file or not empty, a file is missing, damaged or too large, or the zoo is not trusted.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CallboardError(f"{path} is {'not empty' if path.is_dir() else 'a file'}; name a new directory")
    source = RunDirectory(pathlib.Path(policy.place, policy.name))
    if not policy.installed and not trust:
        check_run_owner(f"{policy.place}/{policy.name}", "give --trust")
    with writing(path, (Exception,)), directory_draft(path.absolute()) as draft:
        for name in (*FILES, CARD):
            (draft / name).parent.mkdir(exist_ok=True)
            if is_url(policy.place):
                there = Storage(f"{policy.place}/{policy.name}").fetch(name, draft, MOST_BYTES)
            else:
                try:
                    content = read_regular(source.path / name, MOST_BYTES)
                except FileNotFoundError:
                    there = False
                except OSError as error:
                    raise CallboardError(f"{source.path / name} cannot be read: {error.strerror}") from error
                else:
                    (draft / name).write_bytes(content)
                    there = True
            if not there:
                raise CallboardError(f"{policy.place}/{policy.name} has no {name}")
        checks: dict[str, Callable[[pathlib.Path], object]] = {
            WEIGHTS: read_arrays,
            "environment.json": lambda file: parse_spec(file.read_text()),
            SETTINGS: lambda file: _check_settings(file, policy.card),
        }
        for name, check in checks.items():
            try:
                check(draft / name)
            except Exception as error:  # A damaged file may raise anything.
                where = f"{policy.place}/{policy.name}/{name}"
                raise CallboardError(f"{where} is damaged ({one_line(error)}); replace it by a copy") from error


def installed_zoos() -> list[pathlib.Path]:
    """Returns the folders of the packages that installed wheels offer policies in, which are not imported."""
    found: list[pathlib.Path] = []
    for point in importlib.metadata.entry_points(group=GROUP):
        with contextlib.suppress(ImportError, ValueError):  # No package has such a name.
            spec = importlib.util.find_spec(point.value.partition(".")[0])
            found += [] if spec is None else map(pathlib.Path, spec.submodule_search_locations or ())
    return list(dict.fromkeys(found))


def check_name(name: str) -> None:
    """Raises a CallboardError if a policy cannot have this name."""
    if not _NAME.fullmatch(name):
        raise CallboardError(
            f"a policy cannot be named {name!r}: at most {_MOST_NAME} letters, digits, dots, dashes and underscores "
            "make a name, with a letter or a digit first"
        )


def _names(place: str) -> list[str]:
    if is_url(named_path(place, "zoo")):
        storage = Storage(place)
        names = [path.rpartition("/")[0] for file in _OWN for path in storage.find(f"*/{file}")]
        exists = bool(names) or storage.exists("")
    else:
        names = [path.parent.name for file in _OWN for path in pathlib.Path(place).glob(f"*/{file}")]
        exists = bool(place) and pathlib.Path(place).is_dir()
    if not exists:
        raise CallboardError(f"there is no zoo in {place or repr('')}: name a folder or a URL")
    return sorted({name for name in names if _NAME.fullmatch(name)})


def _card(place: str, name: str) -> Card:
    with tempfile.TemporaryDirectory(prefix="callboard-") as local:
        if is_url(place):
            Storage(f"{place}/{name}").fetch(CARD, pathlib.Path(local), _MOST_CARD_BYTES)
        folder = pathlib.Path(local) if is_url(place) else pathlib.Path(place, name)
        wanted = (CARD,) if is_url(place) else (*FILES, CARD)
        missing = [file for file in wanted if not os.path.lexists(folder / file)]
        if missing:
            raise CallboardError(f"it has no {', '.join(missing)}")
        try:
            content = read_json(folder / CARD, _MOST_CARD_BYTES)
        except ValueError as error:
            raise CallboardError(f"its {CARD} is damaged: {one_line(error)}") from error
        card = parse_card(content)
        try:
            if not is_url(place):
                _check_settings(folder / SETTINGS, card)
        except ValueError as error:
            raise CallboardError(f"its {SETTINGS} is damaged: {error}") from error
        return card


def _check_settings(path: pathlib.Path, card: Card) -> None:
    """Raises a ValueError if the settings of a policy are damaged, a CallboardError if its card is of others."""
    settings = parse_yaml(read_regular(path, _MOST_SETTINGS_BYTES).decode("utf-8-sig"))
    try:
        named = {"agent": str(settings["agent"]["name"]), "env": str(settings["env"])}
    except (KeyError, TypeError) as error:
        raise ValueError("it names no agent or no environment") from error
    for name, value in named.items():
        if value != getattr(card, name):
            raise CallboardError(f"{name} is {getattr(card, name)} in its {CARD}, and {value} in its {SETTINGS}")


def parse_card(content: Any) -> Card:
    """Returns a card from JSON values.

    Raises:
      ValueError: they are no card of this version.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"its {CARD} is not of format {FORMAT}")
    values: dict[str, Any] = {name: content.get(name, Card._field_defaults.get(name)) for name in Card._fields}
    curve = values["curve"]
    fits = {
        **{name: _is_text(values[name]) for name in ("agent", "env", "callboard")},
        **{
            name: type(values[name]) is int and 0 <= values[name] < 2**bits
            for name, bits in (("seed", 31), ("steps", 63))
        },
        "counted": values["counted"] in _COUNTED,
        "episodes": type(values["episodes"]) is int and 1 <= values["episodes"] <= MOST_EPISODES,
        "mean": _is_number(values["mean"]),
        "std": _is_number(values["std"]) and values["std"] >= 0,
        "curve": isinstance(curve, list)
        and all(isinstance(point, list) and len(point) == 2 and all(map(_is_number, point)) for point in curve),
    }
    for name, fitting in fits.items():
        if not fitting:
            raise ValueError(f"{name} in its {CARD} is missing or wrong")
    return Card(**values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_LETTERS


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
