"""Names of weights, the same in every process and every run of an agent, and patterns of them such as `torso/*`."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from ...errors import CallboardError, suggestion


def matching(names: Iterable[str], patterns: Sequence[str], setting: str) -> list[str]:
    """Returns the names that match any of the patterns, in order.

    A pattern is a path with wildcards as in file names, where `*` also stands for several parts of a path.  It matches
    a name from any part on, and everything below: `torso`, `torso/*` and `online/torso` match
    `online/torso/dense_0/bias`.

    Args:
      names: names of weights, see `weight_names`.
      patterns: the patterns.
      setting: name of the setting that has the patterns, for messages.

    Raises:
      CallboardError: a pattern matches none of the names.
    """
    names = list(names)
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            parts = parts_of(names)
            short = dict.fromkeys([*parts, *(part.rpartition("/")[2] for part in parts)])
            known = [*(f"{part}/*" for part in short), *short, *names]
            hint = f"the network has {', '.join(part for part in parts if '/' not in part) or 'no weights'}"
            raise CallboardError(
                f"{setting} {pattern!r} matches no weights of the network; {suggestion(pattern, known, hint)}"
            )
    return [name for name in names if any(_matches(name, pattern) for pattern in patterns)]


def parts_of(names: Iterable[str]) -> list[str]:
    """Returns the parts of a network at the first two levels: `core`, `head`, `head/value`, ..."""
    paths = [name.split("/") for name in names]
    return sorted({"/".join(path[:depth]) for path in paths for depth in (1, 2) if len(path) > depth})


def _matches(name: str, pattern: str) -> bool:
    parts, pattern = name.split("/"), pattern.strip("/")
    ends = ["/".join(parts[begin:]) for begin in range(len(parts))]
    return any(fnmatch.fnmatchcase(end, pattern) or fnmatch.fnmatchcase(end, f"{pattern}/*") for end in ends)


# Attributes in which Keras and our modules keep lists of layers.
_LISTS = {"_self_tracked_trackables", "_layers"}


def weight_names(module: Any, variables: Sequence[tf.Variable]) -> list[str]:
    """Returns a unique name for each variable, such as `torso/dense_0/kernel`.

    It consists of the attributes that lead from the module to the variable, without the first if that is `network`, and
    of the names of layers in lists, numbered if there are several.  `tf.Variable.name` is not suitable: it depends on
    what a process has created before.

    Args:
      module: a `tf.Module` that contains the variables.
      variables: the variables.
    """
    found = module._flatten(predicate=lambda value: isinstance(value, tf.Variable), with_path=True)
    paths = {id(variable): path for path, variable in found}
    parts = [_parts(paths.get(id(variable), ()), variable) for variable in variables]
    layers: dict[tuple[str, str], list[str]] = {}
    for owner, layer, _ in parts:
        same = layers.setdefault((owner, _unnumbered(layer)), [])
        if layer not in same:
            same.append(layer)
    names: dict[str, None] = {}
    for owner, layer, own in parts:
        same = layers[owner, _unnumbered(layer)]
        number = f"_{same.index(layer)}" if len(same) > 1 else ""
        first = name = "/".join(filter(None, [owner, _unnumbered(layer) + number, own]))
        count = 1
        while name in names:
            count += 1
            name = f"{first}_{count}"
        names[name] = None
    return list(names)


def named_weights(module: tf.Module) -> dict[str, tf.Variable]:
    """Returns all variables of a module by name."""
    variables = module.variables
    return dict(zip(weight_names(module, variables), variables, strict=True))


def _parts(path: Sequence[Any], variable: tf.Variable) -> tuple[str, str, str]:
    """Returns the attributes that lead to the variable's owner, the layer if it is in a list, and the variable."""
    *scopes, own = variable.name.partition(":")[0].split("/")
    modules = [part.strip("_") for part in path[:-1] if isinstance(part, str) and part not in _LISTS]
    if modules[:1] == ["network"]:
        del modules[0]
    in_list = scopes and any(isinstance(part, int) for part in path)
    return "/".join(modules), scopes[-1] if in_list else "", own


def _unnumbered(layer: str) -> str:
    return re.sub(r"_\d+$", "", layer)
