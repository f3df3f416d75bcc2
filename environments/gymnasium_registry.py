"""Environments registered with Gymnasium, by id, such as `CartPole-v1`."""

import contextlib
import dataclasses
import functools
import importlib.util
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import VectorEnv

from ..data import copied
from ..errors import CallboardError, MissingPackage, did_you_mean, nearest
from ..messages.install_commands import install_command
from ..settings.named_objects import import_module
from .adapters.atari import atari_ids
from .adapters.gymnasium_checks import autoreset_mode
from .adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from .adapters.procgen import GAMES as PROCGEN_GAMES
from .adapters.single_environments import Singles, make_batch
from .batches.batched import BatchedEnvironment
from .batches.user_errors import REFUSALS, creation_errors, keywords, unknown_option, user_errors
from .info_masks import vector_with_masks

_OLD_ATARI = re.compile(r"(\w+?)(NoFrameskip|Deterministic)?-v([04])")
_MAY_BE_ATARI = re.compile(r"ALE/.*|\w+-v[04]")
_PACKAGES = {"gymnasium.envs.box2d": ("Box2D", "box2d"), "gymnasium.envs.mujoco": ("mujoco", "mujoco")}
"""Modules of environments, by their beginning, with the package that they import and the extra that installs it."""
_OTHERWISE = "give a Gymnasium id or 'package.module:factory'"
_LIMIT = "max_episode_steps"
_NO_LIMIT = 2**31 - 1
"""A limit that no episode reaches, for vector forms, which do not know -1; they may count in int32."""


def make_gymnasium(
    id: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any], singles: Singles
) -> BatchedEnvironment:
    """Makes a batch of the Gymnasium environment `id`.

    Args:
      id: a registered id; `module:Id-v0` imports `module` first.
      batch_size: the number of environments.
      seeds: one seed per environment.
      options: `vectorized` is Callboard's: True for the vector form that some environments provide (which steps the
        whole batch with NumPy), False for single environments, 'auto' (the default) for the vector form if there is
        one with the same options, limit of steps and spaces as the single form.  `max_episode_steps` is the limit, -1
        for none.  All other options are passed to the environment.
      singles: how single environments are wrapped and stepped; if either is wanted, 'auto' is False.

    Raises:
      CallboardError: if the id or an option is unknown, a required vector form does not exist, a package is not
        installed, or a space is not supported.
    """
    spec = check_gymnasium(id, options)
    own_options = dict(options)
    vectorized = own_options.pop("vectorized", "auto")
    vector = None
    if vectorized is True:
        vector = _make_vector(id, spec, batch_size, own_options)
    elif vectorized == "auto" and spec.vector_entry_point is not None and not singles.wanted:
        vector = _equal_vector(id, spec, batch_size, own_options)
    if vector is None:
        return make_batch(functools.partial(_make_indexed, id, own_options), seeds, singles, id)
    with contextlib.ExitStack() as opened:
        opened.callback(vector.close)
        batch = GymnasiumVectorBatch(vector_with_masks(vector, singles, id, "leave 'vectorized' or"), seeds)
        opened.pop_all()
        return batch


def check_gymnasium(id: str, options: Mapping[str, Any]) -> EnvSpec:
    """Checks an id and options without making an environment; returns the registered spec.

    Raises:
      CallboardError: if the id or an option is unknown, or an option has a wrong value.
    """
    vectorized = options.get("vectorized", "auto")
    if not (isinstance(vectorized, bool) or vectorized == "auto"):
        raise CallboardError(f"environment {id!r}: 'vectorized' is {vectorized!r}, it must be true, false or 'auto'")
    spec = _find(id)
    if is_only_refused(spec):
        versions = [other for other in gymnasium.registry.values() if other.name == spec.name]
        newest = max((other for other in versions if not is_only_refused(other)), key=_version, default=None)
        right = did_you_mean(newest.id) if newest else _OTHERWISE
        raise CallboardError(f"environment {id!r} is not in Gymnasium any more; {right}")
    missing = missing_package(spec)
    if missing is not None:
        package, extra = missing
        raise MissingPackage(f"environment {id!r}", package, f"callboard[{extra}]")
    if vectorized is True and spec.vector_entry_point is None:
        raise CallboardError(f"environment {id!r} has no vector form of its own: leave 'vectorized' out")
    limit = options.get(_LIMIT)
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if limit is not None and not (is_number and (limit >= 1 or limit == -1)):
        raise CallboardError(
            f"environment {id!r}: 'max_episode_steps' is {limit!r}, it must be a whole number of 1 or more, or -1 for "
            "no limit"
        )
    render_mode = options.get("render_mode")
    if not isinstance(render_mode, str | None):
        raise CallboardError(f"environment {id!r}: 'render_mode' is {render_mode!r}, it must be text")
    if vectorized is not True:
        with user_errors(id, options, list):
            named, takes_others = keywords(_creator(spec.entry_point))
        taken = [*named, _LIMIT, "vectorized"]
        for key in options:
            if not takes_others and key not in (*taken, "disable_env_checker"):
                raise unknown_option(id, key, taken)
    return spec


def missing_package(spec: EnvSpec) -> tuple[str, str] | None:
    """Returns the package that an environment of Gymnasium needs and its extra, or None if none is missing."""
    for beginning, (package, extra) in _PACKAGES.items():
        if str(spec.entry_point).startswith(beginning) and importlib.util.find_spec(package) is None:
            return package, extra
    return None


def is_only_refused(spec: EnvSpec) -> bool:
    """Returns whether an id is registered only to raise an error, because its environment was removed or moved."""
    return getattr(spec.entry_point, "__name__", "").startswith("_raise_")


def _make_indexed(id: str, options: Mapping[str, Any], index: int) -> gymnasium.Env:
    return make_single(id, options)


def _version(spec: EnvSpec) -> int:
    return spec.version or 0


def make_single(id: str, options: Mapping[str, Any]) -> gymnasium.Env:
    """Makes one Gymnasium environment.

    Raises:
      CallboardError: if the id or an option is unknown, or a package is not installed.
    """
    spec = _find(id)

    def taken() -> list[str]:
        return [*keywords(_creator(spec.entry_point))[0], _LIMIT, "vectorized"]

    if str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        _log_mujoco_warnings()
    with _refused_options(id, spec.entry_point, options), user_errors(id, options, taken):
        # The checker is for authors of environments and slows down every step; an option enables it.
        return gymnasium.make(id, **{"disable_env_checker": True, **copied(options)})


def _refused_options(id: str, creator: Any, options: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Makes one line of the errors with which Gymnasium's own environments refuse values of options, such as files.

    Errors in a user's own code keep their traceback.
    """
    return creation_errors(id, *(REFUSALS if options and str(creator).startswith("gymnasium.envs.") else ()))


def _log_mujoco_warnings() -> None:
    """Logs MuJoCo's warnings, which MuJoCo otherwise writes to a file in the working directory."""
    with contextlib.suppress(ImportError):
        import mujoco

        mujoco.set_mju_user_warning(functools.partial(logging.info, "MuJoCo: %s"))


def _find(id: str) -> EnvSpec:
    module, _, registered = id.rpartition(":")
    if module:
        import_module("environment", id, module)
    if registered not in gymnasium.registry and _MAY_BE_ATARI.fullmatch(registered):
        atari_ids()  # Registers them.
    try:
        return gymnasium.spec(registered)
    except gymnasium.error.Error as error:
        raise _unknown(id) from error


def refuse_old_atari(id: str) -> None:
    """Refuses the ids of Atari games from before `ALE/...-v5`, which name raw frames of the screen.

    Raises:
      CallboardError: the id is such a name; the message says which name and options are equal to it.
    """
    found = _OLD_ATARI.fullmatch(id)
    known = gymnasium.registry.get(id)
    if found is None or (known is not None and not str(known.entry_point).startswith("ale_py")):
        return
    game, kind, version = found.groups()
    games = atari_ids()
    if kind and not games:
        raise CallboardError(
            f"environment {id!r} is an old name of an Atari game, and ale-py is not installed: "
            + install_command("callboard[atari]")
        )
    if f"ALE/{game}-v5" not in games:
        return
    known = gymnasium.registry.get(id)
    # Version 4 has no sticky actions.  Only the preprocessing that was usual for NoFrameskip begins with no-ops.
    options = (["repeat_action_probability: 0"] if version == "4" else []) + (["noop_max: 0"] * (kind != "NoFrameskip"))
    given = f" with env_options {{{', '.join(options)}}}" if options else ""
    as_before = {
        "NoFrameskip": "its frames with the usual preprocessing",
        "Deterministic": "the same with the usual preprocessing",
        None: "the same with the usual preprocessing, and a frame skip that is not random",
    }[kind]
    raw = f", or 'gymnasium:{id}' for raw frames" if known is not None else ""
    raise CallboardError(f"environment {id!r} is an old name: take 'ALE/{game}-v5'{given} for {as_before}{raw}")


def _unknown(id: str) -> CallboardError:
    """Returns the error for an id that is not registered, with a suggestion if it is another library's id of a game."""
    game = re.fullmatch(r"(?:procgen[:/-])*(?:procgen-)?(\w+?)(?:-v\d+)?", id)
    if game and "procgen" in id and game[1] in PROCGEN_GAMES:
        return CallboardError(f"unknown environment {id!r}; {did_you_mean(f'procgen:{game[1]}')}")
    atari_ids()  # Registers them.
    by_name = _newest_by_name()
    near = nearest(_name_of(id), by_name)
    if near is not None:
        return CallboardError(f"unknown environment {id!r}; {did_you_mean(by_name[near])}")
    otherwise = _OTHERWISE
    if "/" in id and ":" not in id:
        otherwise = f"if a module of yours registers it, write 'your_module:{id}'"
    return CallboardError(f"unknown environment {id!r}; {otherwise}")


def _newest_by_name() -> dict[str, str]:
    """Returns the newest version of each environment that may be suggested, by its name without version."""
    specs = sorted((spec for spec in gymnasium.registry.values() if _is_accepted(spec.id)), key=_version)
    return {_name_of(spec.id): spec.id for spec in specs}


def _name_of(id: str) -> str:
    """Returns the name in an id without namespace, version and endings of old ids of Atari games, in small letters."""
    name = re.sub(r"^ALE/|(-ram)?(NoFrameskip|Deterministic)?(-v\d+)?$", "", id, flags=re.IGNORECASE)
    return name.replace("_", "").lower()


def _is_accepted(id: str) -> bool:
    """Returns whether a registered id is not refused for its name, so that it may be suggested."""
    try:
        refuse_old_atari(id)
    except CallboardError:
        return False
    return not is_only_refused(gymnasium.registry[id])


def _make_vector(id: str, spec: EnvSpec, batch_size: int, options: Mapping[str, Any]) -> VectorEnv:
    """Makes the vector form.

    Raises:
      CallboardError: it does not take what the single form has.
    """

    def taken() -> list[str]:
        return [*(key for key in keywords(_creator(spec.vector_entry_point))[0] if key != "num_envs"), "vectorized"]

    with _refused_options(id, spec.vector_entry_point, options), user_errors(id, options, taken):
        named, takes_others = keywords(_creator(spec.vector_entry_point))
        given = _vector_options(spec, options, named)
        missing = [] if takes_others else [key for key in given if key not in named]
        unknown = [key for key in missing if key in options and key != _LIMIT]
        if unknown:
            raise unknown_option(id, unknown[0], taken())
        if missing:
            raise CallboardError(
                f"environment {id!r} has a vector form that takes no {missing[0]!r}, which is {given[missing[0]]!r} "
                "for its single form: leave 'vectorized' out"
            )
        # Gymnasium gives the vector form the limit of a spec, unless it has none.
        spec = dataclasses.replace(spec, max_episode_steps=None)
        return gymnasium.make_vec(spec, batch_size, vectorization_mode="vector_entry_point", **given)


def _vector_options(spec: EnvSpec, options: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """Returns what the vector form needs to be equal to the single form: options of the spec, the user's, the limit."""
    given = {**spec.kwargs, **options}
    limit = given.pop(_LIMIT, None)
    limit = spec.max_episode_steps if limit is None else limit
    if limit == -1:
        limit = _NO_LIMIT if _LIMIT in named else None
    return given if limit is None else {**given, _LIMIT: limit}


def _equal_vector(id: str, spec: EnvSpec, batch_size: int, options: Mapping[str, Any]) -> VectorEnv | None:
    """Makes the vector form, or returns None if it is not equivalent to the single form."""
    try:
        named, takes_others = keywords(_creator(spec.vector_entry_point))
    except (gymnasium.error.Error, ImportError):
        return None
    missing = set(_vector_options(spec, options, named)).difference(named)
    # What takes any options may pass them on to single environments, of which none takes the limit.
    if spec.additional_wrappers or _LIMIT in missing or (missing and not takes_others):
        return None
    with contextlib.closing(make_single(id, options)) as single:
        spaces = (single.observation_space, single.action_space)
    with contextlib.ExitStack() as opened:
        vector = _make_vector(id, spec, batch_size, options)
        opened.callback(vector.close)
        try:
            autoreset_mode(vector)
        except CallboardError:
            return None
        if (vector.single_observation_space, vector.single_action_space) != spaces:
            return None
        opened.pop_all()
        return vector


def _creator(entry_point: Any) -> Callable[..., Any]:
    return entry_point if callable(entry_point) else load_env_creator(entry_point)
