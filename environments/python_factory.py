"""Environments made by a Python function, named as `package.module:factory`."""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import gymnasium
from gymnasium.vector import VectorEnv

from ..errors import CallboardError
from ..named_objects import import_object
from .batched import BatchedEnvironment
from .dm_env_adapter import DmEnvBatch
from .gymnasium_adapter import GymnasiumBatch, GymnasiumVectorBatch
from .user_errors import keywords, unknown_option, user_errors

# Arguments that Callboard passes to a factory that takes them.
_GIVEN = ("seed", "seeds", "batch_size")


def make_factory(name: str, batch_size: int, seeds: Sequence[int], options: Mapping[str, Any]) -> BatchedEnvironment:
    """Makes a batch of environments with the function `factory` in `package.module`.

    The factory returns a single `dm_env.Environment` or `gymnasium.Env`, and is then called once per environment, or a
    `gymnasium.vector.VectorEnv` or `BatchedEnvironment` for the whole batch, and is then called once.  If it has
    parameters of these names, it is passed `seed` (the seed of this environment, or the first one for a whole batch),
    `seeds` (of the whole batch) and `batch_size`.  This is the only way to seed a `dm_env.Environment`.

    Args:
      name: `package.module:factory`.
      batch_size: the number of environments.
      seeds: one seed per environment.
      options: keyword arguments of the factory.

    Raises:
      CallboardError: if the module or function does not exist, an option is unknown or missing, or the result is not
        an environment or has a batch size other than `batch_size`.
    """
    create = check_factory(name, options)
    named, _ = keywords(create)
    given = [key for key in _GIVEN if key in named]

    def call(index: int) -> Any:
        values = {"seed": int(seeds[index]), "seeds": [int(seed) for seed in seeds], "batch_size": batch_size}
        arguments = {**options, **{key: values[key] for key in given}}
        with user_errors(name, options, lambda: (key for key in named if key not in _GIVEN)):
            _check_arguments(name, create, arguments)
            return create(**arguments)

    with contextlib.ExitStack() as opened:
        environments = [call(0)]
        made = environments[0]
        known = isinstance(made, BatchedEnvironment | VectorEnv | gymnasium.Env | dm_env.Environment)
        if not known or _is_other_batch(made):
            raise CallboardError(
                f"environment {name!r} is of type {type(made).__name__}: the factory must give a dm_env.Environment, "
                "a gymnasium.Env, a gymnasium.vector.VectorEnv or a callboard BatchedEnvironment, which can wrap "
                "batches with an interface of their own (EnvPool, SuperSuit, Stable-Baselines3)"
            )
        opened.callback(made.close)
        if isinstance(made, BatchedEnvironment | VectorEnv):
            size = made.num_envs if isinstance(made, VectorEnv) else made.batch_size
            if size != batch_size:
                raise CallboardError(
                    f"environment {name!r} is a batch of {size}, not of {batch_size}: let the factory take 'batch_size'"
                )
            batch = GymnasiumVectorBatch(made, seeds) if isinstance(made, VectorEnv) else made
        else:
            for index in range(1, batch_size):
                environments.append(call(index))
                opened.callback(environments[-1].close)
            if len({id(environment) for environment in environments}) < batch_size:
                raise CallboardError(f"environment {name!r}: the factory gives the same object twice, make it anew")
            is_gymnasium = isinstance(made, gymnasium.Env)
            batch = GymnasiumBatch(environments, seeds) if is_gymnasium else DmEnvBatch(environments)
        opened.pop_all()
        return batch


def check_factory(name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Imports the factory and checks options without calling it; returns the factory.

    Raises:
      CallboardError: if the module or function does not exist, or an option is unknown.
    """
    create = import_object("environment", name)
    if not callable(create):
        raise CallboardError(f"environment {name!r} is not a function but of type {type(create).__name__}")
    named, takes_others = keywords(create)
    for key in options:
        if key in _GIVEN:
            raise CallboardError(f"environment {name!r}: option {key!r} is given by Callboard, leave it out")
        if key not in named and not takes_others:
            raise unknown_option(name, key, (taken for taken in named if taken not in _GIVEN))
    return create


def _is_other_batch(made: Any) -> bool:
    """Returns whether an environment is a batch behind Gymnasium's interface for single environments, as in EnvPool."""
    if isinstance(made, BatchedEnvironment | VectorEnv):
        return False
    return hasattr(made, "num_envs") or any(base.__module__.startswith("envpool") for base in type(made).__mro__)


def _check_arguments(name: str, create: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(create)
    except ValueError:
        return
    for parameter in signature.parameters.values():
        needed = parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        )
        if needed and parameter.name not in arguments:
            raise CallboardError(f"environment {name!r} needs the option {parameter.name!r}")
    signature.bind(**arguments)
