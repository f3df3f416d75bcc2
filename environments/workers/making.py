"""How a worker makes its environments.

This module is part of the program of workers (see `worker_process`): Python 3.9 and NumPy are all that it needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .named_imports import (
    check_object,
    imported,
    named_object,
    reward_wrappers,
    wrapper_kind,
)
from .stepping import Agents, DmEnv, Refused, SteppedSingles, Vector, message_of_error, old_gym

_GIVEN = ("seed", "seeds", "batch_size")
_OFFERED = ("num_envs", "index", "actor", "env_config")
_FAMILIES = {**{one: f"pettingzoo.{one}" for one in ("atari", "butterfly", "classic", "sisl")}, "mpe": "mpe2"}
_LIMIT = "max_episode_steps"
_MAKE_THOSE = "let the factory make those, or leave"
_NO_LIMIT = 2**31 - 1
"""A limit that no episode reaches, for what does not know -1; it may be counted in int32."""
_REFUSALS = (AssertionError, AttributeError, IndexError, KeyError, OSError, TypeError, ValueError)
"""Errors with which Gymnasium's own environments refuse values of options."""
_POOL_GIVEN = ("num_envs", "batch_size", "seed", "base_path", "max_num_players", "gym_reset_return_info")


class EnvConfig(dict):
    """The argument `env_config` of factories, as RLlib's environments take it."""

    worker_index: int
    vector_index: int


def _keywords(create: Callable[..., Any]) -> tuple[list[str], bool]:
    try:
        parameters = inspect.signature(create).parameters.values()
    except ValueError:
        return [], True
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return named, any(one.kind is one.VAR_KEYWORD for one in parameters)


def _check_options(options: Mapping[str, Any], taken: Sequence[str], takes_others: bool) -> None:
    for option in options:
        if option not in taken and not takes_others:
            raise Refused("unknown_option", option=option, taken=sorted(taken))


def _make_requested(request: Mapping[str, Any]) -> Any:
    """Makes the environments of a request; with `check`, only looks for what they need, and returns None."""
    name, options, count = request["env"], dict(request["options"]), len(request["seeds"])
    module, _, rest = name.partition(":")
    if module == "envpool":
        return _envpool(rest, options, request)
    if module == "ale":
        vector = imported("ale_py.vector_env", "ale-py")
        specs = [spec for id, spec in sys.modules["gymnasium"].registry.items() if id.startswith("ALE/")]
        if rest not in [spec.kwargs["game"] for spec in specs]:
            raise Refused("unknown_environment", known=[spec.id[4:] for spec in specs])
        if request["check"]:
            return None
        return Vector(vector.AtariVectorEnv(rest, count, **options), own_seeds=True, array_of_seeds=True)
    if module == "pettingzoo":
        found = _pettingzoo(rest)
        create = getattr(found, "parallel_env", None)
        if create is None:
            raise Refused("turns")
        _check_options(options, *_keywords(getattr(found, "raw_env", create)))
        if request["check"]:
            return None
        try:
            return Agents(create(**options))
        except _REFUSALS as error:
            if not options:
                raise
            raise _cannot_make(error) from error
    if module != "gymnasium" and rest:
        create = named_object(name, request["paths"])
        if create is not None:
            return _from_factory(create, options, request)
    return _registered(name if module != "gymnasium" else rest, options, request)


def _pettingzoo(name: str) -> Any:
    """Imports the module of an environment of PettingZoo, which `FAMILY.NAME` names."""
    family = name.partition(".")[0]
    imported("mpe2" if family == "mpe" else "pettingzoo")
    modules: dict[str, str] = {}
    for known, package in _FAMILIES.items():
        spec = None
        with contextlib.suppress(ImportError):
            spec = importlib.util.find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            files = [file[:-3] for file in os.listdir(place) if re.fullmatch(r"\w+_v\d+\.py", file)]
            modules.update({f"{known}.{file}": f"{package}.{file}" for file in files})
    if name not in modules:
        raise Refused("unknown_environment", known=sorted(modules))
    return imported(modules[name])


def _envpool(name: str, options: dict[str, Any], request: Mapping[str, Any]) -> Any:
    envpool = imported("envpool")
    known = envpool.list_all_envs()
    if name not in known:
        raise Refused("unknown_environment", known=known)
    fields = envpool.make_spec(name).config._fields
    _check_options(options, [field for field in fields if field not in _POOL_GIVEN], False)
    if request["check"]:
        return None
    if options.get(_LIMIT, 1) < 1:
        limit = options[_LIMIT]
        raise Refused(
            "cannot_make", reason=f"{_LIMIT} is {limit}, it must be at least 1; leave it out for EnvPool's own"
        )
    count = len(request["seeds"])
    own = {"stack_num": 1} if "stack_num" in fields else {}
    threads = {"num_threads": min(count, len(os.sched_getaffinity(0)))}
    seed = int(request["seeds"][0]) % (2**31 - count)
    try:
        pool = envpool.make_gymnasium(name, num_envs=count, seed=seed, **{**own, **threads, **options})
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise _cannot_make(error) from error
    return Vector(_Pool(name, pool), autoreset_mode="NextStep", own_seeds=False, sets_task="no")


class _Pool:
    """A pool of EnvPool as a vector environment."""

    def __init__(self, name: str, pool: Any):
        self.spec = types.SimpleNamespace(id=f"envpool:{name}")
        self._pool = pool
        self.single_observation_space, self.single_action_space = pool.observation_space, pool.action_space
        self.close = pool.close

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        observations, info = self._pool.reset()
        return observations, _own_info(info)

    def step(self, actions: Any) -> Any:
        *outcome, info = self._pool.step(actions)
        return (*outcome, _own_info(info))


def _own_info(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key not in ("env_id", "players")}


def _registered(id: str, options: dict[str, Any], request: Mapping[str, Any]) -> Any:
    """Makes environments by an id of Gymnasium, or of Gym if the part before `:` has registered it there."""
    gym = sys.modules.get("gym")
    short = id.rpartition(":")[2]
    _read_limit(options)
    gymnasium = sys.modules.get("gymnasium")
    if gym is not None and (id.startswith("gym:") or (short in _ids(gym) and short not in _ids(gymnasium))):
        if short not in _ids(gym):
            raise Refused("unknown_environment", known=_ids(gym))
        named, takes_others = _keywords(_creator(gym.spec(short).entry_point))
        _check_options(options, [*named, *_keywords(gym.make)[0][1:]], takes_others)
        return None if request["check"] else _singles(lambda index: gym.make(short, **options), request)
    gymnasium = imported("gymnasium")
    vectorized = options.pop("vectorized", "auto")
    if not (isinstance(vectorized, bool) or vectorized == "auto"):
        reason = f"'vectorized' is {vectorized!r}, it must be true, false or 'auto'"
        raise Refused("cannot_make", reason=reason)
    if request["env"].startswith("gymnasium:") and short not in _ids(gymnasium):
        with contextlib.suppress(ImportError):
            importlib.import_module("ale_py")  # Registers them.
    try:
        spec = gymnasium.spec(short)
    except gymnasium.error.Error:
        check_object("environment", id)
        raise Refused("unknown_environment", known=_ids(gymnasium)) from None
    creator = _creator(spec.entry_point)
    if _is_removed(spec):
        versions = [one for one in gymnasium.registry.values() if one.name == spec.name and not _is_removed(one)]
        newest = max(versions, key=lambda one: one.version or 0, default=None)
        raise Refused("removed", newest=newest and newest.id)
    if not isinstance(options.get("render_mode", ""), (str, type(None))):
        raise Refused("cannot_make", reason=f"'render_mode' is {options['render_mode']!r}, it must be text")
    named, takes_others = _keywords(creator)
    if vectorized is not True:
        others = {key: value for key, value in options.items() if key != "disable_env_checker"}
        _check_options(others, [*named, _LIMIT, "vectorized"], takes_others)
    entry = getattr(spec, "vector_entry_point", None)
    if vectorized is True and entry is None:
        raise Refused("no_vector")
    if vectorized is True and request["wrappers"]:
        raise Refused("no_singles", fix="leave 'vectorized' or")
    if request["check"]:
        return None

    if str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        with contextlib.suppress(ImportError, AttributeError):
            # MuJoCo otherwise writes its warnings to a file in the working directory.
            set_warning = importlib.import_module("mujoco").set_mju_user_warning
            set_warning(lambda text: sys.stderr.write(f"MuJoCo: {json.dumps(text)}\n"))

    def single(index: int) -> Any:
        try:
            return gymnasium.make(short, **{"disable_env_checker": True, **options})
        except _REFUSALS as error:
            if not options or not str(spec.entry_point).startswith("gymnasium.envs."):
                raise
            raise _cannot_make(error) from error

    if vectorized is True or (
        vectorized == "auto" and entry is not None and not request["singles"] and not spec.additional_wrappers
    ):
        named, takes_others = _keywords(_creator(entry))
        given = _vector_options(spec, options, named)
        missing = [key for key in given if key not in named]
        # What takes any options may pass them on to single environments, of which none takes the limit.
        if vectorized is True:
            own = [one for one in named if one != "num_envs"]
            _check_options(options, [*own, _LIMIT, "vectorized"], takes_others)
        if vectorized is True and missing and not takes_others:
            raise Refused("no_vector_option", option=missing[0], value=repr(given[missing[0]]))
        if vectorized is True or not missing or (takes_others and _LIMIT not in missing):
            # Gymnasium gives the vector form the limit of a spec, unless it has none.
            spec = dataclasses.replace(spec, max_episode_steps=None)
            vector = gymnasium.make_vec(spec, len(request["seeds"]), vectorization_mode="vector_entry_point", **given)
            if vectorized is True or _is_equal(vector, single(0)):
                return Vector(vector)
            vector.close()
    return _singles(single, request)


def _is_removed(spec: Any) -> bool:
    """Returns whether an id is registered only to raise an error, because its environment was removed or moved."""
    return getattr(spec.entry_point, "__name__", "").startswith("_raise_")


def _read_limit(options: dict[str, Any]) -> None:
    """Checks the limit of steps among options, in place: null is that of the id, -1 is none."""
    limit = options.pop(_LIMIT, None)
    if limit is None:
        return
    if not (isinstance(limit, int) and not isinstance(limit, bool) and (limit >= 1 or limit == -1)):
        reason = f"{_LIMIT!r} is {limit!r}, it must be a whole number of 1 or more, or -1 for no limit"
        raise Refused("cannot_make", reason=reason)
    options[_LIMIT] = _NO_LIMIT if limit == -1 else limit


def _vector_options(spec: Any, options: Mapping[str, Any], named: Sequence[str]) -> dict[str, Any]:
    """Returns what a vector form needs to be equal to the single form: options of the spec, the user's, the limit."""
    given = {**spec.kwargs, **options}
    limit = given.pop(_LIMIT, spec.max_episode_steps)
    has_none = limit is None or (limit == _NO_LIMIT and _LIMIT not in named)
    return given if has_none else {**given, _LIMIT: limit}


def _is_equal(vector: Any, single: Any) -> bool:
    """Returns whether a vector environment is of environments such as `single`, which is closed."""
    single.close()
    spaces = single.observation_space, single.action_space
    mode = (vector.metadata or {}).get("autoreset_mode")
    return mode is not None and (vector.single_observation_space, vector.single_action_space) == spaces


def _ids(gym: Any) -> list[str]:
    registry = getattr(gym, "registry", None) or (gym.envs.registry if gym else ())
    return list(getattr(registry, "env_specs", registry))


def _creator(entry: Any) -> Callable[..., Any]:
    if callable(entry):
        return entry
    module, _, attribute = entry.partition(":")
    return getattr(imported(module), attribute)


def _from_factory(create: Any, options: dict[str, Any], request: Mapping[str, Any]) -> Any:
    """Makes environments with a class or function, which gets what `make_factory` says."""
    if not callable(create):
        raise Refused("cannot_make", reason=f"it is not a function but of type {type(create).__name__}")
    named, takes_others = _keywords(create)
    has_config = "env_config" in named and "env_config" not in options
    for option in options:
        if option in _GIVEN:
            raise Refused("cannot_make", reason=f"option {option!r} is given by Callboard, leave it out")
    _check_options(options, [one for one in named if one not in (*_GIVEN, *_OFFERED)], takes_others or has_config)
    if request["check"]:
        return None
    seeds, actor = request["seeds"], request["actor"]

    def call(index: int) -> Any:
        config = EnvConfig({key: value for key, value in options.items() if key not in named} if has_config else {})
        config.worker_index, config.vector_index = 0 if actor is None else actor + 1, index
        values = {"seed": seeds[index], "seeds": list(seeds), "batch_size": len(seeds), "num_envs": len(seeds)}
        values.update(index=request["slots"][index], actor=actor, env_config=config)
        own = {key: value for key, value in options.items() if not has_config or key in named}
        arguments = {**{key: value for key, value in values.items() if key in named}, **own}
        with contextlib.suppress(ValueError):
            for one in inspect.signature(create).parameters.values():
                is_named = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
                if is_named and one.default is one.empty and one.name not in arguments:
                    raise Refused("needs_option", option=one.name)
        return create(**arguments)

    made = call(0)
    if _is_of("gymnasium", "vector.VectorEnv", made):
        if made.num_envs != len(seeds):
            raise Refused("batch_size", size=made.num_envs)
        if request["wrappers"]:
            raise Refused("no_singles", fix=_MAKE_THOSE)
        return Vector(made)
    if hasattr(made, "possible_agents") and callable(getattr(made, "observation_space", None)):
        if hasattr(made, "agent_iter"):
            raise Refused("turns")
        return Agents(made)
    return _singles(call, request, made)


def _singles(create: Callable[[int], Any], request: Mapping[str, Any], first: Any = None) -> SteppedSingles:
    environments: list[Any] = []
    for index in range(len(request["seeds"])):
        environment = create(index) if first is None or index else first
        if any(environment is other for other in environments):
            raise Refused("cannot_make", reason="the factory gives the same object twice, make it anew")
        environments.append(environment)
    return SteppedSingles([_wrapped(environment, request) for environment in environments])


def _is_of(module: str, name: str, made: Any) -> bool:
    """Returns whether an object is of a class of a library; of one that is not imported, nothing is."""
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return isinstance(kind, type) and isinstance(made, kind)


def _wrapped(environment: Any, request: Mapping[str, Any]) -> Any:
    is_old = [name for name, _ in request["wrappers"][:1]] == ["OldGym"]
    is_dm_env = _is_of("dm_env", "Environment", environment)
    bases = [(base.__module__.partition(".")[0], base.__name__) for base in type(environment).__mro__]
    if ("ray", "MultiAgentEnv") in bases or (is_dm_env and isinstance(environment.reward_spec(), Mapping)):
        raise Refused("wrong_kind", type=type(environment).__name__, old=False)
    if is_dm_env:
        if request["singles"]:
            raise Refused("no_singles", fix=_MAKE_THOSE)
        return DmEnv(environment)
    if not (_is_of("gymnasium", "Env", environment) or _is_of("gym", "Env", environment)):
        parts = ("reset", "step", "observation_space", "action_space")
        looks_old = all(hasattr(environment, one) for one in parts) and not hasattr(environment, "num_envs")
        if not (is_old and looks_old):
            raise Refused("wrong_kind", type=type(environment).__name__, old=looks_old)
    for name, arguments in request["wrappers"]:
        if name == "OldGym":
            environment = old_gym(environment)
            continue
        kind = wrapper_kind(name, request["paths"])
        if request["true_scores"] and issubclass(kind, reward_wrappers()):
            continue
        try:
            environment = kind(environment, **arguments)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise Refused("cannot_wrap", name=name, reason=message_of_error(error) or type(error).__name__) from error
    return environment


def made_environments(request: Mapping[str, Any]) -> Any:
    """Makes the environments of a request; what their libraries refuse is a refusal, as `user_errors` has it."""
    try:
        return _make_requested(request)
    except SystemExit as error:
        raise Refused("cannot_make", reason=f"it calls sys.exit({message_of_error(error)})") from error
    except Exception as error:
        refusals = (ImportError, *(module.error.Error for name, module in sys.modules.items() if name == "gymnasium"))
        if not isinstance(error, refusals) or type(error).__name__ == "DependencyNotInstalled":
            raise
        raise _cannot_make(error) from error


def _cannot_make(error: Exception) -> Refused:
    return Refused("cannot_make", reason=" ".join(message_of_error(error).split()))
