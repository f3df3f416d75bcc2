"""The search space of `callboard tune`: settings, and the distributions from which their values are sampled.

`--search agent.optimizer.learning_rate=loguniform(1e-4,1e-2)` names a setting and a distribution, as in Ray Tune:

- `uniform(low, high)` and `loguniform(low, high)`: a number between them, to four significant digits;
- `randint(low, high)`: an integer from low to high - 1;
- `choice(a, b, ...)`: one of these values; words need no quotes;
- `grid(a, b, ...)`: each of these values, in all combinations with the values of other grids.
"""

import ast
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ...errors import CallboardError, unknown

Values = dict[str, Any]
"""Values of the settings that are searched, by name, such as `agent.optimizer.learning_rate`."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`."""

    kind: str
    low: float
    high: float

    KINDS: ClassVar[Sequence[str]] = ("uniform", "loguniform", "randint")

    def sample(self, generator: np.random.Generator) -> float | int:
        if self.kind == "randint":
            return int(generator.integers(int(self.low), int(self.high)))
        if self.kind == "loguniform":
            return self.clip(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))
        return self.clip(generator.uniform(self.low, self.high))

    def clip(self, value: float | int) -> float | int:
        """Returns the value, rounded as in `sample`, inside the range."""
        if self.kind == "randint":
            return min(max(round(value), int(self.low)), int(self.high) - 1)
        return min(max(float(f"{value:.4g}"), float(self.low)), float(self.high))

    def extremes(self) -> list[float | int]:
        """Returns the extreme values, which are the most likely to be rejected."""
        return [self.clip(self.low), self.clip(self.high)]

    def place(self, value: Any) -> float:
        """Returns where a value is on the axis of this domain; raises `ValueError` if it is not in the domain."""
        if (
            type(value) not in ((int,) if self.kind == "randint" else (int, float))
            or not self.low <= value <= self.high
        ):
            raise ValueError(f"{value!r} is no {self.kind} value from {self.low} to {self.high}")
        return float(value)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values."""

    options: tuple[Any, ...]

    def sample(self, generator: np.random.Generator) -> Any:
        return self.options[int(generator.integers(len(self.options)))]

    def clip(self, value: Any) -> Any:
        return value

    def extremes(self) -> list[Any]:
        return list(self.options)

    def place(self, value: Any) -> float:
        """Returns where a value is on the axis of this domain; raises `ValueError` if it is not in the domain."""
        # As in a file, where tuples are lists, and true is not 1.
        return list(map(json.dumps, self.options)).index(json.dumps(value))


@dataclasses.dataclass(frozen=True)
class Grid(Choice):
    """Each of several values."""


Domain = Range | Choice


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """Settings by name, with the domain of each one's values."""

    domains: Mapping[str, Domain]

    @property
    def has_grid(self) -> bool:
        return any(isinstance(domain, Grid) for domain in self.domains.values())

    def count(self, count: int) -> int:
        """Returns the number of `samples`."""
        return count * math.prod(len(domain.options) for domain in self.domains.values() if isinstance(domain, Grid))

    def samples(self, count: int, seed: int) -> list[Values]:
        """Returns `count` samples for a seed or, with grids, all their combinations `count` times; deterministic."""
        generator = np.random.default_rng(seed)
        grids = {key: domain.options for key, domain in self.domains.items() if isinstance(domain, Grid)}
        return [
            {key: point[key] if key in point else domain.sample(generator) for key, domain in self.domains.items()}
            for _ in range(count)
            for point in (dict(zip(grids, values, strict=True)) for values in itertools.product(*grids.values()))
        ]

    def clip(self, values: Values) -> Values:
        """Returns values that were changed, clipped to their ranges."""
        return {key: self.domains[key].clip(value) for key, value in values.items()}

    def check_recorded(self, values: Values) -> None:
        """Raises `ValueError` if these are not values of all settings that are searched, each in its domain."""
        if values.keys() != self.domains.keys():
            raise ValueError(f"{list(values)} are not the settings that are searched, {list(self.domains)}")
        for key, domain in self.domains.items():
            domain.place(values[key])

    def check(self, samples: Iterable[Values], build: Callable[[Values], Any]) -> None:
        """Builds an experiment from every sample, and from the first sample with each extreme value in turn.

        Raises:
          CallboardError: the error raised by `build`, with the values that caused it.
        """
        samples = list(samples)
        for key, domain in self.domains.items():
            if isinstance(domain, Grid):  # All of its values are in the samples.
                continue
            samples += [{**samples[0], key: extreme} for extreme in domain.extremes()]
        for values in samples:
            try:
                build(values)
            except CallboardError as error:
                raise CallboardError(f"{error} (tried with {values_text(values)})") from error


def parse_search(texts: Sequence[str], fixed: Mapping[str, str]) -> SearchSpace:
    """Parses `--search` options.

    Args:
      texts: for example `["agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"]`.
      fixed: settings that cannot be searched, each with the reason.

    Raises:
      CallboardError: an option is not valid; the message says how to write it.
    """
    domains: dict[str, Domain] = {}
    for text in texts:
        name, _, distribution = text.partition("=")
        key = name.strip().removeprefix("--").replace("-", "_")
        if not re.fullmatch(r"[^\s.]+(\.[^\s.]+)*", key):
            raise CallboardError(
                f"--search {text!r} names no setting; write KEY=DISTRIBUTION, such as "
                "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"
            )
        if key in fixed:
            raise CallboardError(f"--search {key} is not possible: {fixed[key]}")
        if key in domains:
            raise CallboardError(f"--search {key} is given twice")
        domains[key] = _parse_domain(text, distribution.strip())
    if not domains:
        raise CallboardError("name what to vary: --search 'agent.optimizer.learning_rate=loguniform(1e-4,1e-2)'")
    return SearchSpace(domains)


def vary_recipe(settings: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Returns settings, as given by `read_recipe`, with some values replaced.

    Raises:
      CallboardError: a key such as `actors.x`, where `actors` has no fields.
    """
    result = dict(settings)
    for key, value in values.items():
        *groups, name = key.split(".")
        within = result
        for group in groups:
            if not isinstance(within.get(group) or {}, Mapping):
                raise CallboardError(f"--search {key}: {group} is one value and has no fields, so name {group} itself")
            within[group] = dict(within.get(group) or {})
            within = within[group]
        within[name] = value
    return result


def values_text(values: Values) -> str:
    """Returns values as one line of text."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _parse_domain(text: str, distribution: str) -> Domain:
    found = re.fullmatch(r"(\w+)\((.*)\)", distribution, re.DOTALL)
    if not found:
        raise CallboardError(
            f"--search {text!r} is not understood; write KEY=DISTRIBUTION, such as "
            "agent.optimizer.learning_rate=loguniform(1e-4,1e-2)"
        )
    kind, arguments = found[1], _literals(text, found[2])
    if kind in ("choice", "grid"):
        if not arguments:
            raise CallboardError(f"--search {text!r} has nothing to choose from")
        if kind == "grid" and any(value in arguments[:index] for index, value in enumerate(arguments)):
            raise CallboardError(f"--search {text!r} has a value twice")
        return Choice(tuple(arguments)) if kind == "choice" else Grid(tuple(arguments))
    if kind not in Range.KINDS:
        kinds = (*Range.KINDS, "choice", "grid")
        raise CallboardError(f"--search {text!r}: {unknown('distribution', kind, kinds)}")
    what, types, most = ("whole numbers", int, 1e18) if kind == "randint" else ("numbers", int | float, 1e300)
    numbers = [value for value in arguments if isinstance(value, types) and not isinstance(value, bool)]
    if len(numbers) != 2 or len(arguments) != 2 or not all(abs(value) <= most for value in numbers):
        raise CallboardError(
            f"--search {text[:200]!r}: {kind} takes two {what} from {-most:g} to {most:g}, the lowest and the highest"
        )
    low, high = numbers
    if low >= high:
        raise CallboardError(f"--search {text!r}: {low} must be less than {high}")
    if kind == "loguniform" and low <= 0:
        raise CallboardError(f"--search {text!r}: loguniform needs numbers above 0, not {low}")
    return Range(kind, low, high)


def _literals(text: str, arguments: str) -> list[Any]:
    """Parses the text between the parentheses: Python literals, and bare words as strings.  Nothing is executed."""
    try:
        parsed = ast.parse(f"({arguments},)" if arguments.strip() else "()", mode="eval")
        values = list(ast.literal_eval(_Words().visit(parsed)))
        json.dumps(values)  # As they are recorded.
        return values
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise CallboardError(
            f"--search {text!r}: {arguments!r} must be numbers, words, or lists of them, with commas between"
        ) from error


class _Words(ast.NodeTransformer):
    """Turns names into strings, and `true`, `false` and `null` into what they are in YAML."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = {"true": True, "false": False, "null": None}.get(node.id, node.id)
        return ast.copy_location(ast.Constant(value), node)
