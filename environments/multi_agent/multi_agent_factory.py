"""Creation of environments with several agents from names, classes and functions."""

import contextlib
import inspect
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import gymnasium

from ...action_masks import check_mask
from ...errors import CallboardError
from ...settings.setting_types import converted
from ...specs import EnvironmentSpec, check_same_form
from ..adapters.pettingzoo_names import PREFIX, make_pettingzoo
from ..adapters.single_environments import PROCESSES, WRAPPERS, check_distinct, split_singles
from ..batches.batched import BatchedEnvironment
from ..batches.previous_inputs import OPTION as PREVIOUS_INPUTS
from ..batches.tasks import Task, task_errors
from ..factory import check_contents, environment_text, is_python_factory
from ..forked_streams import allow_forks
from ..info_masks import agents_mask_key
from ..python_factory import Factory, check_factory, factory_call, factory_name, named_factory
from ..workers.interpreters import PYTHON
from ..workers.worker_environments import has_agents_in_worker, make_agents_in_worker
from .agent_groups import GroupedAgents, Groups
from .agent_observations import AgentIndices, ObservedState, State, StateLeaves
from .agent_padding import PaddedAgents
from .checked_agents import AgentBounds, CheckedAgents
from .dm_env_agents import DmEnvAgents, is_dm_env_of_agents
from .multi_agent import MultiAgentEnvironment, close_environment
from .pettingzoo_adapter import PettingZooEnvironment, is_pettingzoo
from .rllib_adapter import RllibEnvironment, has_rllib_interface

_WITH_ONE_AGENT = (gymnasium.Env, gymnasium.vector.VectorEnv, BatchedEnvironment)
_NOT_OF_FACTORIES = (PREVIOUS_INPUTS, PROCESSES, PYTHON, WRAPPERS)

# What `is_multi_agent` has found by calling functions, by identity and options; with the functions, since an identity
# is unique only while its object exists.
_FOUND: dict[tuple[int, int, str], tuple[Any, bool]] = {}


def is_multi_agent(env: Any, options: Mapping[str, Any] | None = None) -> bool:
    """Returns whether an environment has several agents.

    A class is known by its methods, and a function by its annotation, if that is a class; any other function is called
    with the options, once in a process.  What cannot be made does not count: making it as an environment with one agent
    raises the error.

    Args:
      env: a name, a class or function, or a list.
      options: options of the environment.
    """
    if isinstance(env, list | tuple):
        return False
    with contextlib.suppress(CallboardError):
        factory, own_options = named_factory(env)
        python = (options or {}).get(PYTHON)
        given = {key: value for key, value in (options or {}).items() if key not in _NOT_OF_FACTORIES}
        if python is not None:
            return has_agents_in_worker(factory, {**own_options, **given, PYTHON: python})
        if isinstance(factory, str) and factory.startswith(PREFIX):
            return True
        if not is_python_factory(factory):
            return False
        create = check_factory(factory, {})
        known = _known_by_class(create)
        return known if known is not None else _known_by_making(create, factory, {**own_options, **given})
    return False


def make_multi_agent(
    env: Any,
    seed: int,
    options: Mapping[str, Any] | None = None,
    slot: int = 0,
    actor: int | None = None,
    groups: Groups | None = None,
    agent_index: bool = False,
    state: State | None = None,
    padding: bool = False,
    bounds: AgentBounds | None = None,
) -> MultiAgentEnvironment:
    """Makes one environment with several agents.

    Args:
      env: `pettingzoo:FAMILY.NAME`; or a class or function, by its name (`package.module:factory`) or itself, that
        returns a PettingZoo `ParallelEnv` or `AECEnv`, an environment with the interface of RLlib's `MultiAgentEnv`, a
        `MultiAgentEnvironment`, or one with the `dm_env` interface whose timesteps are mappings by agent.  It is passed
        what `make_factory` passes to a factory of single environments.
      seed: seed of the environment, for a factory that takes it; the first `reset` gets it too.
      options: options of the environment; for one of PettingZoo also `env_wrappers`, which may be `MaskFromInfo`.
      slot: index of the environment among those of all actors.
      actor: index of the actor that steps the environment, if one does.
      groups: patterns of the members of each group of agents that becomes one agent, by the group's name; see
        `GroupedAgents`.
      agent_index: whether observations get a leaf `agent_index`; see `AgentIndices`.
      state: what the leaf `state` of observations contains, for centralized critics: all agents' `observations`,
        `observations_and_actions`, or the state of the `environment` itself; None for no such leaf.
      padding: whether agents get the same spaces; see `PaddedAgents`.
      bounds: the bounds of agents' observations, which it shares with others like it.

    Raises:
      CallboardError: the name or an option is unknown, a package is not installed, a space is not supported, the
        environment has only one agent, or `groups`, `agent_index`, `state` or `padding` do not fit it.
    """
    groups = {
        group: converted(f"agent_groups.{group}", patterns, str | tuple[str, ...])
        for group, patterns in converted("agent_groups", groups or {}, dict[str, Any]).items()
    }
    state = converted("agent_state", state, State | None)
    allow_forks()
    factory, own_options = named_factory(env)
    merged = {**own_options, **(options or {})}
    python = merged.pop(PYTHON, None)
    mask_key, merged = _split_mask(merged)
    name = factory_name(factory)
    environment: MultiAgentEnvironment
    if python:
        made = make_agents_in_worker(factory, seed, {**merged, PYTHON: python}, slot, actor)
        try:
            environment = PettingZooEnvironment(made, name, mask_key)
        except BaseException:
            made.close()
            raise
    elif isinstance(factory, str) and factory.startswith(PREFIX):
        environment = PettingZooEnvironment(make_pettingzoo(factory, merged), factory, mask_key)
    elif is_python_factory(factory):
        environment = _adapted(factory_call(factory, 1, [seed], merged, [slot], actor)(0), name, mask_key)
    else:
        raise CallboardError(f"environment {name!r} has one agent: leave policies, mapping and agent_groups out")
    try:
        for agent, spec in environment.specs.items():
            check_contents(f"{name}, agent {agent}", spec)
            _check_mask(name, agent, spec)
        environment = CheckedAgents(environment, name, bounds)
        if state is not None and state != "environment":
            environment = ObservedState(environment, with_actions=state == "observations_and_actions")
        if groups:
            environment = GroupedAgents(environment, groups)
        if padding:
            environment = PaddedAgents(environment)
        if agent_index:
            environment = AgentIndices(environment)
        if state is not None:
            environment = StateLeaves(environment)
        # What was added, or padded, may be larger.
        for agent, spec in environment.specs.items():
            check_contents(f"{name}, agent {agent}", spec)
            if not agent:
                raise CallboardError(
                    f"environment {name!r} has an agent, or a group of agents, without a name: give one"
                )
    except CallboardError:
        environment.close()
        raise
    return environment


def make_separate_agents(
    env: Any,
    seeds: Sequence[int],
    options: Mapping[str, Any] | None = None,
    slots: Sequence[int] | None = None,
    actor: int | None = None,
    **agent_options: Any,
) -> list[MultiAgentEnvironment]:
    """Makes an environment with several agents for each seed.

    Args:
      env: as in `make_multi_agent`, which also explains `options`, `actor` and `agent_options`.
      seeds: one seed per environment.
      options: options of the environment.
      slots: the index of each environment among those of all actors; by default from 0 on.
      actor: index of the actor that steps the environments, if one does.
      agent_options: further arguments of `make_multi_agent`.

    Raises:
      CallboardError: as in `make_multi_agent`, or the factory gives one object twice.
    """
    slots = range(len(seeds)) if slots is None else slots
    with contextlib.ExitStack() as opened:
        made: list[MultiAgentEnvironment] = []
        for slot, seed in zip(slots, seeds, strict=True):
            made.append(make_multi_agent(env, int(seed), options, slot, actor, **agent_options))
            opened.callback(made[-1].close)
        check_distinct(environment_text(env), [environment.unwrapped for environment in made])
        for slot, environment in zip(slots, made, strict=True):
            if environment.agents == made[0].agents:
                for agent, spec in environment.specs.items():
                    what = f"environments {slots[0]} and {slot} of {environment_text(env)!r}, agent {agent!r},"
                    check_same_form(made[0].specs[agent], spec, what)
        opened.pop_all()
    return made


def _split_mask(options: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Returns the name of the masks in infos, if `env_wrappers` says that they are wanted, and the other options."""
    for setting in (PROCESSES, PREVIOUS_INPUTS):
        if options.get(setting):
            raise CallboardError(f"{setting} is for environments with one agent; leave it out")
    singles, others = split_singles({key: value for key, value in options.items() if key != PREVIOUS_INPUTS})
    return agents_mask_key(singles.wrappers), others


def _check_mask(name: str, agent: str, spec: EnvironmentSpec) -> None:
    try:
        check_mask(spec)
    except CallboardError as error:
        raise CallboardError(f"environment {name!r}, agent {agent!r}: {error}") from error


def _known_by_class(create: Any) -> bool | None:
    """Returns whether a class, or what a function is annotated to return, has several agents; None if unknown."""
    declared = create
    if not inspect.isclass(create):
        declared = None
        with contextlib.suppress(Exception):  # An annotation may use a name that is imported for type checkers only.
            declared = typing.get_type_hints(create).get("return")
    if not inspect.isclass(declared):
        return None
    if has_rllib_interface(declared):
        return True
    if issubclass(declared, _WITH_ONE_AGENT):
        return False
    if issubclass(declared, MultiAgentEnvironment) or is_pettingzoo(declared):
        return True
    has_one_reward = getattr(create, "reward_spec", None) is dm_env.Environment.reward_spec
    return False if has_one_reward else None


def _known_by_making(create: Any, factory: Factory, options: Mapping[str, Any]) -> bool:
    # A method is a new object wherever it is looked up.
    key = (
        id(getattr(create, "__func__", create)),
        id(getattr(create, "__self__", None)),
        repr(sorted(options.items())),
    )
    if key not in _FOUND:
        made = factory_call(factory, 1, [0], options)(0)
        _FOUND[key] = create, _has_several_agents(made)
        close_environment(made)
    return _FOUND[key][1]


def _has_several_agents(made: Any) -> bool:
    if isinstance(made, MultiAgentEnvironment) or has_rllib_interface(made):
        return True
    return not isinstance(made, _WITH_ONE_AGENT) and (is_pettingzoo(made) or is_dm_env_of_agents(made))


def _adapted(made: Any, name: str, mask_key: str | None) -> MultiAgentEnvironment:
    """Converts the result of a factory to an environment with several agents."""
    if mask_key is not None and (isinstance(made, MultiAgentEnvironment) or not is_pettingzoo(made)):
        raise CallboardError(f"environment {name!r} is not of PettingZoo: let its observations contain the mask")
    if isinstance(made, MultiAgentEnvironment):
        _check_own(made, name)
        return made
    if has_rllib_interface(made):
        return PettingZooEnvironment(RllibEnvironment(made, name), name)
    if isinstance(made, _WITH_ONE_AGENT):
        raise CallboardError(f"environment {name!r} has one agent: leave policies, mapping and agent_groups out")
    if is_pettingzoo(made):
        return PettingZooEnvironment(made, name, mask_key)
    if isinstance(made, dm_env.Environment) or is_dm_env_of_agents(made):
        return DmEnvAgents(made, name)
    raise CallboardError(
        f"environment {name!r} is of type {type(made).__name__}: the factory must give a PettingZoo ParallelEnv or "
        "AECEnv, an RLlib MultiAgentEnv, a callboard MultiAgentEnvironment, or a dm_env.Environment with mappings by "
        "agent"
    )


def _check_own(made: MultiAgentEnvironment, name: str) -> None:
    """Raises `CallboardError` if an environment of the user's own does not name its agents, or has no specs of them."""
    agents, specs = getattr(made, "agents", None), getattr(made, "specs", None)
    listed = list(agents) if isinstance(agents, list | tuple) else []
    described = specs if isinstance(specs, Mapping) else {}
    are_texts = all(isinstance(agent, str) for agent in listed)
    are_specs = all(isinstance(spec, EnvironmentSpec) for spec in described.values())
    if not (listed and are_texts and are_specs and set(listed) == set(described) and len(listed) == len(described)):
        kinds = {agent: type(spec).__name__ for agent, spec in described.items()} or specs
        raise CallboardError(
            f"environment {name!r} must have 'agents', the names of all agents, and 'specs', an EnvironmentSpec for "
            f"each of them; it has {agents!r}, and {kinds!r:.200}"
        )


def check_agents_tasks(
    env: Any, options: Mapping[str, Any] | None, agent_options: Mapping[str, Any], tasks: Sequence[Task]
) -> None:
    """Checks that an environment with several agents takes tasks, by making it, if there are any.

    Args:
      env: as in `make_multi_agent`.
      options: as there.
      agent_options: see `agent_specs`.
      tasks: the tasks that it will be set to; None is its own.

    Raises:
      CallboardError: as in `make_multi_agent`, or it cannot be set to a task.
    """
    others = [task for task in tasks if task is not None]
    if not others:
        return
    environment = make_multi_agent(env, 0, options, **agent_options)
    try:
        for task in others:
            with task_errors(environment_text(env), task):
                environment.set_task(task)
                environment.reset(0)
    finally:
        environment.close()


def agent_specs(
    env: Any, options: Mapping[str, Any] | None, agent_options: Mapping[str, Any]
) -> dict[str, EnvironmentSpec]:
    """Returns the spec of each agent of an environment, in the environment's order, by making one and closing it.

    Args:
      env: as in `make_multi_agent`.
      options: as there.
      agent_options: its arguments `groups`, `agent_index`, `state` and `padding`.

    Raises:
      CallboardError: as there.
    """
    environment = make_multi_agent(env, 0, options, **agent_options)
    try:
        return {agent: environment.specs[agent] for agent in environment.agents}
    finally:
        environment.close()
