"""The metadata of a data set: the origin of its episodes."""

import contextlib
import copy
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import tree

from ... import __version__
from ...agents import Agent
from ...agents.agent_names import agent_name
from ...environments import is_of_library
from ...environments.external.spaces_only import EXTERNAL_PREFIX, RECORDED_PREFIX
from ...errors import CallboardError
from ...files.guarded_files import parse_json
from ..processes.package_versions import version_of
from .parts.environment_part import EnvironmentPart
from .settings import plain

_MARK = "callboard"
_OF_FILES = (RECORDED_PREFIX, EXTERNAL_PREFIX)


def recorded_metadata(agent: Agent, environment: EnvironmentPart, seed: int) -> dict[str, Any]:
    """Returns entries of a data set's metadata: environment, agent, seed and versions."""
    versions = {name: version for name in ("gymnasium", "numpy", "minari") if (version := version_of(name))}
    entries: dict[str, Any] = {
        "algorithm_name": agent_name(agent),
        "requirements": [f"{name}=={version}" for name, version in versions.items() if name == "gymnasium"],
        _MARK: {
            "environment": plain(environment.env),
            "environment_options": plain(environment.options_of_env),
            "seed": seed,
            "versions": {"callboard": __version__, **versions},
        },
    }
    spec = _gymnasium_spec(environment)
    return entries if spec is None else {**entries, "env_spec": spec}


def recorded_environment(metadata: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Returns the environment of a data set and its options, as far as its metadata name one."""
    own = _own(metadata)
    name, options = own.get("environment"), own.get("environment_options", {})
    if not isinstance(name, str):
        spec = metadata.get("env_spec")
        with contextlib.suppress(ValueError):
            spec = parse_json(spec) if isinstance(spec, str) else None
        name, options = (spec.get("id"), spec.get("kwargs", {})) if isinstance(spec, dict) else (None, {})
    return (name, dict(options)) if isinstance(name, str) and isinstance(options, dict) else None


def is_harmless(name: str, options: Mapping[str, Any]) -> bool:
    """Returns whether an environment may be made for a data set of others that names it.

    It is one of a library that Callboard knows, without code of its own, and its options name no file.
    """
    texts = [leaf for leaf in tree.flatten(dict(options)) if isinstance(leaf, str)]
    if name.startswith(_OF_FILES) or any(set(text) & set("/\\:~") for text in texts):
        return False
    try:
        return is_of_library(name, options)
    except CallboardError:
        return False


def recorded_seed(metadata: Mapping[str, Any]) -> int | None:
    """Returns the seed of the run that recorded a data set; None if it is not a run of ours."""
    seed = _own(metadata).get("seed")
    return seed if isinstance(seed, int) else None


def _own(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Callboard's own part of the metadata of a data set."""
    own = metadata.get(_MARK)
    return own if isinstance(own, dict) else {}


def _gymnasium_spec(environment: EnvironmentPart) -> str | None:
    """Returns the JSON of Gymnasium's spec of the environment, for `recover_environment`; None if it has none."""
    if not isinstance(environment.env, str) or environment.env not in gymnasium.registry:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spec = copy.deepcopy(gymnasium.spec(environment.env))  # Otherwise all others would be made so.
            options = {
                name: value
                for name, value in environment.env_options.items()
                if name != "vectorized" and not name.startswith("env_")  # Gymnasium does not know ours.
            }
            limit = options.pop("max_episode_steps", None)
            spec.kwargs = {**spec.kwargs, **options}
            if limit is not None:
                spec.max_episode_steps = None if limit == -1 else limit
            return spec.to_json()
    except (CallboardError, TypeError, ValueError, gymnasium.error.Error):
        return None
