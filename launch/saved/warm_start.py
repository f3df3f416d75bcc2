"""Warm starts: a new run begins with weights of another run, and may keep parts of its network frozen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...agents.agent import Agent, Policy
from ...agents.variables.frozen_weights import find_frozen
from ...agents.variables.weight_names import matching, named_weights, parts_of, weight_names
from ...data import Layout
from ...errors import CallboardError
from ...networks.checkpoint_paths import saved_weights_by_path, weights_by_path
from ...settings.setting_types import texts_of
from ..experiments.parts.placement_part import WarmStartPart
from ..experiments.warm_start_settings import check_source_exists, parse_source
from ..run_directory.found_runs import RunReference
from ..run_directory.policy_weights import SavedPolicy, read_policy
from ..run_directory.remote_storage import local_copy
from .saved_policies import policy_file

_BEST = "best"
_SHOWN = 3


def check_warm_start(warm_start: WarmStartPart, agent: Agent, layout: Layout, new: bool = True) -> None:
    """Checks that the weights to begin with are there and fit, and that there are parts to freeze.

    Args:
      warm_start: names the run and the parts of the network.
      agent: the agent.
      layout: the layout of the run.
      new: whether the run begins; one that is resumed has weights of its own.

    Raises:
      CallboardError: names what is missing or differs, and what there is.
    """
    begins = new and warm_start.init_from is not None
    if not begins and not texts_of(warm_start.freeze):
        return
    if begins:
        check_source_exists(parse_source(warm_start.init_from or ""))
    networks = agent.make_networks(layout)
    if texts_of(warm_start.freeze):
        find_frozen(networks, texts_of(warm_start.freeze))
    if begins:
        find_initial_weights(warm_start, networks, agent.make_policy(networks, "train"))


def initialize(warm_start: WarmStartPart, networks: tf.Module, policy: Policy) -> str:
    """Assigns the weights to begin with; returns a line for the user, empty if the run begins without.

    Args:
      warm_start: names the run and the parts of the network.
      networks: all networks of the agent.
      policy: the policy that acts with them.

    Raises:
      CallboardError: as `find_initial_weights`.
    """
    if warm_start.init_from is None:
        return ""
    source = parse_source(warm_start.init_from)
    check_source_exists(source)
    weights = named_weights(networks)
    values = find_initial_weights(warm_start, networks, policy)
    for name, value in values.items():
        weights[name].assign(value.astype(weights[name].dtype.as_numpy_dtype))
    return f"begins with {len(values)} of {len(weights)} weights from {source}"


def find_initial_weights(warm_start: WarmStartPart, networks: tf.Module, policy: Policy) -> dict[str, np.ndarray]:
    """Returns the values to begin with, by the names of this run's weights, see `agents.weight_names`.

    Raises:
      CallboardError: the run or the checkpoint does not exist, a pattern matches nothing, a weight is missing there or
        here, or has another shape.
    """
    source, patterns = parse_source(warm_start.init_from or ""), texts_of(warm_start.init_parts)
    here = named_weights(networks)
    with local_copy(source.run, source.checkpoint, whole=source.checkpoint != _BEST) as directory:
        path = policy_file(directory, source.checkpoint)
        if source.checkpoint == _BEST:
            keys, there = _of_policy(here, policy, read_policy(path))
        else:
            keys, there = _of_networks(here, networks), saved_weights_by_path(path.parent / "learner", "networks")
    return _chosen(source, patterns, here, keys, there)


def _of_policy(
    here: Mapping[str, tf.Variable], policy: Policy, saved: SavedPolicy
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Returns the keys of the policy's weights in a file, by name, and the values in the file by key."""
    names = {id(weight): name for name, weight in here.items()}
    variables = list(policy.variables)
    keys = dict(zip((names[id(weight)] for weight in variables), weight_names(policy, variables), strict=True))
    return keys, dict(zip(saved.names, saved.values, strict=True))


def _of_networks(here: Mapping[str, tf.Variable], networks: tf.Module) -> dict[str, str]:
    """Returns the paths of all weights by name."""
    paths = {id(weight): path for path, weight in weights_by_path(networks).items()}
    return {name: paths[id(weight)] for name, weight in here.items()}


def _chosen(
    source: RunReference,
    patterns: Sequence[str],
    here: Mapping[str, tf.Variable],
    keys: Mapping[str, str],
    there: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Returns the values for the weights that match the patterns, or for all that the source may have, by `keys`."""
    wanted = matching(keys, patterns, "init_parts") if patterns else list(keys)
    values = {name: _counterpart(key, there) for name, key in keys.items()}

    def fits(name: str) -> bool:
        value = values.get(name)
        return value is not None and value.shape == tuple(here[name].shape)

    missing = [name for name in wanted if values[name] is None]
    further = [] if patterns else sorted(set(there) - set(keys.values()))
    how = ""
    if missing:
        how = f"it has no {_listed(missing)}"
    elif further:
        how = f"it also has {_listed([key.replace('_layers/', '').replace('/_', '/').strip('_') for key in further])}"
    else:
        for name in wanted:
            if not fits(name):
                how = f"{name} has the shape {values[name].shape} there and {tuple(here[name].shape)} here"
                break
    if how:
        raise CallboardError(
            f"the network of {source.run} (init_from) differs from this run's: {how}; set the network's settings of "
            f"that run, or choose with init_parts: {_fitting_parts(here, fits)}"
        )
    return {name: values[name] for name in wanted}


def _counterpart(key: str, there: Mapping[str, np.ndarray]) -> Any:
    """Returns the value with this key, or the only one at the same place within another agent's networks."""
    if key in there:
        return there[key]
    alike = [value for other, value in there.items() if f"/{other}".endswith(f"/{key}") or key.endswith(f"/{other}")]
    return alike[0] if len(alike) == 1 else None


def _fitting_parts(here: Mapping[str, Any], fits: Callable[[str], bool]) -> str:
    parts: list[str] = []
    for part in parts_of(here):
        below = part.partition("/")[0] in parts
        if not below and all(fits(name) for name in here if name.startswith(f"{part}/")):
            parts.append(part)
    return f"the parts that fit are {', '.join(f'{part}/*' for part in parts)}" if parts else "no part fits"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
