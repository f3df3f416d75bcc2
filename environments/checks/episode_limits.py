"""How the episodes of an environment can be limited, for messages about episodes that do not end."""

import contextlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

from ...errors import CallboardError
from ..adapters.pettingzoo_names import PREFIX as PETTINGZOO
from ..adapters.single_environments import WRAPPERS
from ..default_options import default_options
from ..factory import Environment, check

_STEPS = 1000
_OPTIONS = ("max_episode_steps", "max_num_frames_per_episode")
_WRAPPER = {"name": "TimeLimit", "max_episode_steps": _STEPS}


def unending_advice(env: Environment, options: Mapping[str, Any], steps: int) -> str:
    """Returns a clause about episodes that have not ended: the limit that they have, or else how to limit them.

    Args:
      env: the environment, as in `make`.
      options: its options.
      steps: what one of them has made so far.
    """
    declared: dict[str, Any] = {}
    if isinstance(env, str):
        with contextlib.suppress(CallboardError):
            declared = default_options(env)
    for option in _OPTIONS:
        limit = options.get(option)
        limit = declared.get(option) if limit is None else limit
        if isinstance(limit, int) and limit > steps:
            return f"they end at the latest with {option} = {limit:,}"
    return f"if they may never end, {episode_limit_advice(env, options)}"


def episode_limit_advice(env: Environment, options: Mapping[str, Any]) -> str:
    """Returns how to limit the length of episodes, such as `limit their length with --env-options.max_episode_steps`.

    Args:
      env: the environment, as in `make`.
      options: its options.
    """
    if isinstance(env, str) and env.startswith(PETTINGZOO):
        return f"limit their length, in most environments of PettingZoo with --env-options.max_cycles {_STEPS}"
    for option in _OPTIONS:
        if _accepts(env, {**options, option: _STEPS}):
            return f"limit their length with --env-options.{option} {_STEPS}"
    wrappers = options.get(WRAPPERS, ())
    wrappers = list(wrappers) if isinstance(wrappers, list | tuple) else [wrappers]
    if _accepts(env, {**options, WRAPPERS: [*wrappers, _WRAPPER]}):
        entry = "{" + ", ".join(f"{name}: {value}" for name, value in _WRAPPER.items()) + "}"
        before = "".join(f"{one if isinstance(one, str) else json.dumps(one)}, " for one in wrappers)
        option = f"--env-wrappers {shlex.quote(f'[{before}{entry}]')}"
        return f"truncate them in the environment, or, if it is a gymnasium.Env, with {option}"
    return "truncate them in the environment"


def _accepts(env: Environment, options: Mapping[str, Any]) -> bool:
    try:
        check(env, options)
    except CallboardError:
        return False
    return True
