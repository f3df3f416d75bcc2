"""Environments made by a Python class or function, named as `package.module:factory`."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import gymnasium
from gymnasium.vector import VectorEnv

from ..data import copied
from ..errors import CallboardError, first_line, message_of, type_text
from ..messages.caller_words import argument
from ..settings.named_objects import import_object, importable_name
from ..settings.setting_arguments import checked_names
from .adapters.dm_env_adapter import DmEnvBatch
from .adapters.gymnasium_vector_batch import GymnasiumVectorBatch
from .adapters.old_gym import OldGym, as_gymnasium, has_old_interface
from .adapters.single_environments import Singles, check_distinct, make_batch, refuse_singles
from .batches.batched import BatchedEnvironment
from .batches.user_errors import keywords, unknown_option, user_errors
from .info_masks import vector_with_masks


class EnvConfig(dict[str, Any]):
    """Options of an environment, and where the environment is.

    Attributes:
      worker_index: 1 for the environments of actor 0, and so on; 0 for those of an evaluator, as in RLlib.
      vector_index: index of the environment among those of its actor or evaluator.
    """

    def __init__(self, options: Mapping[str, Any], worker_index: int, vector_index: int):
        super().__init__(options)
        self.worker_index = worker_index
        self.vector_index = vector_index


Factory = str | Callable[..., Any]
"""`package.module:factory`; or the factory itself, if it has no name by which it can be imported."""

# Arguments that Callboard passes to a factory that takes them.
_GIVEN = ("seed", "seeds", "batch_size")
# The same, unless the user has options of these names.
_OFFERED = ("num_envs", "index", "actor", "env_config")
_KINDS = (BatchedEnvironment, VectorEnv, gymnasium.Env, dm_env.Environment)


def make_factory(
    factory: Factory,
    batch_size: int,
    seeds: Sequence[int],
    options: Mapping[str, Any],
    slots: Sequence[int] | None = None,
    actor: int | None = None,
    singles: Singles = Singles(),  # noqa: B008
) -> BatchedEnvironment:
    """Makes a batch of environments with the class or function `factory` in `package.module`.

    The factory returns a single `dm_env.Environment` or `gymnasium.Env`, and is then called once per environment, or a
    `gymnasium.vector.VectorEnv` or `BatchedEnvironment` for the whole batch, and is then called once.  If it has
    parameters of these names, it is passed `seed` (the seed of this environment, or the first one for a whole batch),
    `seeds` (of the whole batch) and `batch_size`.  This is the only way to seed a `dm_env.Environment`.  It is also
    passed `num_envs` (the batch size), `index` (the environment's slot, or the first one for a whole batch), `actor`
    (the index of the actor, None for an evaluator) and `env_config` (an `EnvConfig` with all options that are not
    parameters of their own), unless these are options.

    Args:
      factory: `package.module:factory`, or the factory.
      batch_size: the number of environments.
      seeds: one seed per environment.
      options: keyword arguments of the factory.
      slots: the slot of each environment, its index among all those of the run's actors; by default from 0 on.
      actor: index of the actor that steps the environments, if one does.
      singles: how single Gymnasium environments are wrapped and stepped.

    Raises:
      CallboardError: if the module or function does not exist, an option is unknown or missing, or the result is not
        an environment or has a batch size other than `batch_size`.
    """
    name, call = factory_name(factory), factory_call(factory, batch_size, seeds, options, slots, actor)
    if singles.wrappers and singles.wrappers[0].kind is OldGym:
        made_by_factory = call

        def call(index: int) -> Any:
            return as_gymnasium(made_by_factory(index))

    with contextlib.ExitStack() as opened:
        made = call(0)
        if not isinstance(made, _KINDS) or _is_other_batch(made):
            raise _wrong_kind(name, made)
        opened.callback(made.close)
        batch: BatchedEnvironment
        if isinstance(made, gymnasium.Env):
            batch = make_batch(call, seeds, singles, name, made)
        elif isinstance(made, BatchedEnvironment | VectorEnv):
            fix = "let the factory make those, or leave"
            if isinstance(made, VectorEnv):
                made = vector_with_masks(made, singles, name, fix)
            else:
                refuse_singles(name, singles, fix)
            size = made.num_envs if isinstance(made, VectorEnv) else made.batch_size
            if size != batch_size:
                raise CallboardError(
                    f"environment {name!r} is a batch of {size}, not of {batch_size}: let the factory take 'batch_size'"
                )
            batch = GymnasiumVectorBatch(made, seeds) if isinstance(made, VectorEnv) else made
        else:
            refuse_singles(name, singles, "let the factory make those, or leave")
            environments = [made]
            for index in range(1, batch_size):
                environments.append(call(index))
                opened.callback(environments[-1].close)
            check_distinct(name, environments)
            batch = DmEnvBatch(environments)
        opened.pop_all()
        return batch


def _wrong_kind(name: str, made: Any) -> CallboardError:
    kind = f"environment {name!r} is of type {type(made).__name__}"
    if has_old_interface(made):
        wrapper = argument("env_wrappers", OldGym.__name__)
        return CallboardError(
            f"{kind}, which is no gymnasium.Env: derive it from that class, or, for the old interface of Gym, add "
            f"{wrapper}; with several agents, list their names in its 'possible_agents', as in PettingZoo and RLlib"
        )
    return CallboardError(
        f"{kind}: the factory must give a gymnasium.Env, a dm_env.Environment, a gymnasium.vector.VectorEnv, a "
        "callboard BatchedEnvironment, which can wrap batches with an interface of their own (EnvPool, SuperSuit, "
        "Stable-Baselines3), or, with several agents, a PettingZoo ParallelEnv or a callboard MultiAgentEnvironment"
    )


def factory_call(
    factory: Factory,
    batch_size: int,
    seeds: Sequence[int],
    options: Mapping[str, Any],
    slots: Sequence[int] | None = None,
    actor: int | None = None,
) -> Callable[[int], Any]:
    """Returns a function that calls a factory, as explained in `make_factory`, for the environment with an index.

    Raises:
      CallboardError: as in `check_factory`; the function raises it for options that the factory refuses.
    """
    create, name = check_factory(factory, options), factory_name(factory)
    named, _ = keywords(create)
    own, config = _split_options(named, options)

    def call(index: int) -> Any:
        values = {
            "seed": int(seeds[index]),
            "seeds": [int(seed) for seed in seeds],
            "batch_size": batch_size,
            "num_envs": batch_size,
            "index": index if slots is None else int(slots[index]),
            "actor": actor,
            "env_config": EnvConfig(config, 0 if actor is None else actor + 1, index),
        }
        arguments = {**{key: value for key, value in values.items() if key in named}, **own}
        with user_errors(name, options, lambda: (key for key in named if key not in (*_GIVEN, *_OFFERED))):
            _check_arguments(name, create, arguments)
            try:
                return create(**copied(arguments))
            except SystemExit as error:
                raise CallboardError(
                    f"environment {name!r} cannot be made: it calls sys.exit({message_of(error)})"
                ) from error
            except TypeError as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                    raise
                # The call itself was refused, by a function in C whose signature is not known.
                raise CallboardError(f"environment {name!r} cannot be made: {first_line(error)}") from error

    return call


def check_factory(factory: Factory, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Imports the factory, if it is a name, and checks options without calling it; returns the factory.

    Raises:
      CallboardError: if the module or function does not exist, or an option is unknown.
    """
    name = factory_name(factory)
    create = import_object("environment", factory) if isinstance(factory, str) else factory
    if not callable(create):
        raise CallboardError(f"environment {name!r} is not a function but of type {type(create).__name__}")
    named, takes_others = keywords(create)
    takes_others = takes_others or ("env_config" in named and "env_config" not in options)
    for key in options:
        if key in _GIVEN:
            raise CallboardError(f"environment {name!r}: option {key!r} is given by Callboard, leave it out")
        if key not in named and not takes_others:
            raise unknown_option(name, key, (taken for taken in named if taken not in (*_GIVEN, *_OFFERED)))
    return create


def factory_name(factory: Factory) -> str:
    """Returns the name of a factory for messages, such as `__main__:<lambda>` if it has no name to import it by."""
    if isinstance(factory, str):
        return factory
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}:{named.__qualname__}"


def named_factory(environment: Any) -> tuple[Factory, dict[str, Any]]:
    """Returns the name of an environment that is given as a name, a class or a function, and options that it contains.

    Args:
      environment: a name, a class or function, or a `functools.partial` of one, whose keywords are options.

    Returns:
      The name, or the class or function itself if it cannot be imported by name (a lambda, for example); and options.

    Raises:
      CallboardError: it is something else, such as an environment that is already made.
    """
    options: dict[str, Any] = {}
    if isinstance(environment, str):
        environment = _registered.get(environment, environment)
    while isinstance(environment, functools.partial):
        if environment.args:
            raise CallboardError(
                f"env is a partial of {factory_name(environment.func)!r} with the positional arguments "
                f"{environment.args!r}: give them by keyword, since they become env_options"
            )
        options = {**environment.keywords, **options}
        environment = environment.func
    if isinstance(environment, str):
        return environment, options
    kind = type_text(environment)
    if isinstance(environment, _KINDS):
        raise CallboardError(
            f"env is {kind} that is already made: give its name, its class or a function that makes it, since every "
            "actor makes environments of its own"
        )
    if not callable(environment):
        raise CallboardError(f"env must be a name, a class or a function that makes environments, not {kind}")
    return importable_name(environment) or environment, options


@checked_names
def register_environment(name: str, factory: Callable[..., Any]) -> None:
    """Gives a class or function a name of the user's own, which `env` takes in this program.

        register_environment("maze", lambda env_config: Maze(**env_config))
        run(Experiment("ppo", env="maze", env_options={"size": 9}))

    A run keeps the factory itself, not its name: what is registered in one program is unknown to others, to the command
    too.

    Args:
      name: the name; one that is registered already gets the new factory.
      factory: a class or function, as `make_factory` takes it, or a `functools.partial` of one.

    Raises:
      CallboardError: the name has a meaning of its own, or the factory is not callable.
    """
    if not isinstance(name, str) or not name or ":" in name or "/" in name or name in gymnasium.registry:
        raise CallboardError(f"{name!r} cannot be registered: give a name that is not that of another environment")
    if not callable(factory) or isinstance(factory, _KINDS):
        raise CallboardError(f"environment {name!r} is not a class or function but of type {type(factory).__name__}")
    _registered[name] = factory


_registered: dict[str, Callable[..., Any]] = {}


def _split_options(named: Sequence[str], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the options that are arguments of a factory, and those that go into its argument `env_config`."""
    if "env_config" not in named or "env_config" in options:
        return dict(options), {}
    own = {key: value for key, value in options.items() if key in named}
    return own, {key: value for key, value in options.items() if key not in named}


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
