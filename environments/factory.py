"""Creation of environments from names, classes and functions, and lists of them."""

import contextlib
import dataclasses
import importlib
import logging
import numbers
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeGuard, TypeVar

import gymnasium
import numpy as np
import tree
from dm_env import specs

from ..errors import CallboardError, check_type, type_text
from ..messages.caller_words import is_by_command
from ..settings.named_objects import import_module, of_program
from ..settings.setting_arguments import checked_names
from ..specs import EnvironmentSpec, describe
from .adapters.gymnasium_wrappers import without_rewards, wrapper_settings
from .adapters.pettingzoo_names import PREFIX as PETTINGZOO
from .adapters.pettingzoo_names import check_pettingzoo
from .adapters.single_environments import PROCESSES, WRAPPERS, refuse_singles, split_singles
from .batches.batched import BatchedEnvironment, check_seeds
from .batches.checked_observations import with_checks
from .batches.previous_inputs import OPTION as PREVIOUS_INPUTS
from .batches.previous_inputs import PreviousInputs
from .batches.space_sizes import check_sizes
from .batches.tasks import task_errors
from .forked_streams import allow_forks
from .gymnasium_registry import refuse_old_atari
from .minigrid import NAMES as MINIGRID_NAMES
from .mixtures import MixedBatch, MixturePart, WeightedEnvironment, environment_of_slots, read_mixture
from .python_factory import Factory, check_factory, factory_name, make_factory, named_factory
from .workers.interpreters import PYTHON
from .workers.worker_environments import TRUE_SCORES, check_in_worker, make_in_worker

_logger = logging.getLogger(__name__)

# Maps the beginning of a name to a module and the suffix of its functions `make_...` and `check_...`.  These take only
# the rest of a `scheme:rest` name, but the whole of a `namespace/...` name.  Modules are given as text, so that a
# library is imported only when it is used.
_MAKERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "gymnasium:": (".gymnasium_registry", "gymnasium"),
        "procgen:": (".adapters.procgen", "procgen"),
        "ale/": (".adapters.atari", "atari"),
        "minatar/": (".adapters.minatar", "minatar"),
        "envpool:": (".adapters.envpool", "envpool"),
        "dm_control:": (".adapters.dm_control", "dm_control"),
        "bsuite:": (".adapters.behavior_suite", "bsuite"),
        "external:": (".external.spaces_only", "external"),
        "recorded:": (".external.spaces_only", "recorded"),
    }
)
_GYMNASIUM = (".gymnasium_registry", "gymnasium")
_MINIGRID = (".minigrid", "minigrid")

# Options that are for training only and do not apply to evaluation.
_TRAINING_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ale/": ("life_loss",),
        "procgen:": ("num_levels", "start_level"),
        "envpool:": ("episodic_life", "reward_clip", "zero_discount_on_life_loss"),
    }
)


Made = TypeVar("Made")

Environment = Factory | Sequence[Any]
"""The source of an environment: a name, a class or function, or a list for `mixtures.read_mixture`."""


@checked_names
def make(
    env: Environment,
    batch_size: int,
    seeds: Sequence[int],
    options: Mapping[str, Any] | None = None,
    slots: Sequence[int] | None = None,
    actor: int | None = None,
    warn: Callable[[str], object] = _logger.warning,
) -> BatchedEnvironment:
    """Makes a batch of the environment `env`.

    With the same name, batch size, seeds, options and slots, the same actions give the same trajectories.

    Args:
      env: a Gymnasium id (`CartPole-v1`), a user's class or function, by its name (`package.module:factory`) or itself,
        a game of Atari (`ALE/Breakout-v5`), MinAtar (`MinAtar/Breakout-v1`) or Procgen (`procgen:coinrun`), an
        environment of EnvPool (`envpool:Pong-v5`), dm_control (`dm_control:walker-walk`) or bsuite (`bsuite:catch/0`),
        `gymnasium:` followed by an id, to make it with Gymnasium itself, or `external:` followed by the path of a
        spaces file, for simulators that connect to a policy server, or `recorded:` followed by a data set, for its
        spaces alone; or a list of these or of `WeightedEnvironment`s,
        which share the slots.
      batch_size: the number of environments, at least 1.
      seeds: one seed per environment, each at least 0.
      options: options of the environment; see `make_gymnasium`, `make_factory`, `make_minigrid`, `make_envpool`,
        `make_bsuite`, `AtariOptions`, `MinAtarOptions`, `ProcgenOptions` and `DmControlOptions`.  Those made of
        single Gymnasium environments also have `env_wrappers`, see `read_wrappers`, and `env_processes`, whether each
        has a process of its own.  All have `env_previous_inputs`, see `PreviousInputs`, and `env_python`, the
        interpreter under which they are stepped, see `make_in_worker`.
      slots: the slot of each environment, increasing; by default from 0 on.
      actor: index of the actor that steps the environments, if one does.
      warn: takes a line where observations leave the bounds of their space, see `ObservationBounds`.

    Raises:
      CallboardError: if the name or an option is unknown, a package is not installed, a space is not supported, or an
        observation is empty.
      ValueError: if there is not exactly one seed per environment.
    """
    check_type("batch_size", batch_size, numbers.Integral, "a whole number")
    check_type("seeds", seeds, Collection, "a list with a seed for each environment")
    check_type("options", options, Mapping | None, "options by name")
    check_seeds(batch_size, seeds)
    allow_forks()
    slots = range(batch_size) if slots is None else slots
    if _is_mixture(env):
        return _make_mixture(read_mixture(env), seeds, dict(options or {}), slots, actor, warn)
    name, own_options = named_factory(env)
    merged = {**own_options, **(options or {})}
    shows_previous = merged.pop(PREVIOUS_INPUTS, False)
    if merged.get(PYTHON) is not None:
        environment = make_in_worker(name, seeds, merged, slots, actor)
    else:
        environment = _make_here(name, batch_size, seeds, merged, slots, actor)
    try:
        check_contents(factory_name(name), environment.spec)
        environment = with_checks(environment, factory_name(name), warn)
        return PreviousInputs(environment) if shows_previous else environment
    except CallboardError:
        environment.close()
        raise


def _make_here(
    name: Factory,
    batch_size: int,
    seeds: Sequence[int],
    options: Mapping[str, Any],
    slots: Sequence[int],
    actor: int | None,
) -> BatchedEnvironment:
    singles, others = split_singles({key: value for key, value in options.items() if key != PYTHON})
    maker, rest = _resolve(name, "make")
    if maker is make_factory:
        return make_factory(rest, batch_size, seeds, others, slots, actor, singles)
    if _has_singles(name):
        return maker(rest, batch_size, seeds, others, singles)
    refuse_singles(factory_name(name), singles, "leave")
    return maker(rest, batch_size, seeds, others)


def check(env: Environment, options: Mapping[str, Any] | None = None) -> None:
    """Checks an environment and options, as far as possible without making it.

    Raises:
      CallboardError: as in `make`.
    """
    for name, own_options in environments_in(env, options):
        own_options.pop(PREVIOUS_INPUTS, None)
        if own_options.get(PYTHON) is not None:
            check_in_worker(name, own_options)
            continue
        own_options.pop(PYTHON, None)
        singles, others = split_singles(own_options)
        if isinstance(name, str) and name.startswith(PETTINGZOO):
            check_pettingzoo(name)
            continue
        checker, rest = _resolve(name, "check")
        if not _has_singles(name):
            refuse_singles(factory_name(name), singles, "leave")
        checker(rest, others)


def made_to_draw(make_with: Callable[[dict[str, Any]], Made], alone: bool = True) -> Made:
    """Makes environments so that they can be rendered, where that takes options.

    Gymnasium ids accept both options, factories of Gymnasium environments possibly the first, others neither.  A
    factory that takes any options may pass them on to what refuses them by an error of its own.

    Args:
      make_with: makes them with further options.
      alone: whether it makes one environment, which need not have a vector form.
    """
    further: dict[str, Any] = {"render_mode": "rgb_array"}
    for options in ([{**further, "vectorized": False}] if alone else []) + [further]:
        with contextlib.suppress(Exception):
            return make_with(options)
    return make_with({})


def spec(env: Environment, options: Mapping[str, Any] | None = None) -> EnvironmentSpec:
    """Returns the spec of an environment, by making one and closing it; of a list, one of each.

    Raises:
      CallboardError: as in `make`; or two environments of a list have different spaces.
    """
    found: list[tuple[str, EnvironmentSpec]] = []
    for name, own_options in environments_in(env, options):
        environment = make(name, 1, [0], {**own_options, PROCESSES: False})
        environment.close()
        found.append((factory_name(name), environment.spec))
        (first, spec), (last, other) = found[0], found[-1]
        if other != spec:
            texts = [f"{describe(one.observation)} with {describe(one.action)}" for one in (spec, other)]
            how = f"{texts[0]}, and {texts[1]}" if texts[0] != texts[1] else "the bounds or dtypes differ"
            raise CallboardError(
                f"environments {first!r} and {last!r} have different spaces, and cannot be in one run: {how}"
            )
    return found[0][1]


def check_hooks(env: Environment, options: Mapping[str, Any], infos: bool, tasks: Sequence[Any]) -> None:
    """Checks that an environment has infos and takes tasks, by making it, if either is wanted.

    Args:
      env: the environment; of a list, each is checked.
      options: options of the environment.
      infos: whether its infos are wanted.
      tasks: the tasks that it will be set to; None is its own.

    Raises:
      CallboardError: as in `make`, or the environment has no infos, or cannot be set to a task.
    """
    if not infos and all(task is None for task in tasks):
        return
    for name, own_options in environments_in(env, options):
        environment = make(name, 1, [0], {**own_options, PROCESSES: False})
        try:
            if infos:
                environment.keep_infos()
            for task in tasks:
                if task is not None:
                    with task_errors(factory_name(name), task):
                        environment.set_task(task)
                        environment.reset()
        finally:
            environment.close()


def for_evaluation(env: Environment, options: Mapping[str, Any] | None = None) -> tuple[Environment, dict[str, Any]]:
    """Returns an environment and its options without options that are for training only.

    Evaluation thus uses whole episodes, true scores (no wrappers that change rewards), and all levels even if training
    is restricted to some.
    """
    if not _is_mixture(env):
        name, own_options = named_factory(env)
        return name, _evaluation_options(name, {**own_options, **(options or {})})
    mixture = read_mixture(env)
    singles = zip(mixture, environments_in(env, options), strict=True)
    return [
        dataclasses.replace(entry, options=_evaluation_options(name, merged)) for entry, (name, merged) in singles
    ], {}


def has_unseen_levels(env: Environment, options: Mapping[str, Any] | None = None) -> bool:
    """Returns whether `for_evaluation` gives environments with levels that are not among those of training."""
    singles = environments_in(env, options)
    return any(_beginning(name) == "procgen:" and merged.get("num_levels") for name, merged in singles)


def environment_names(env: Environment) -> list[Factory]:
    """Returns the name of an environment, or of each in a list; what has none stands for itself."""
    return [name for name, _ in environments_in(env, None)]


def environment_text(env: Environment) -> str:
    """Returns the names of an environment or a list of them as text."""
    return ", ".join(map(factory_name, environment_names(env)))


def is_of_library(env: Environment, options: Mapping[str, Any] | None = None) -> bool:
    """Returns whether an environment comes from a library that Callboard knows, without wrappers of the user's own."""
    return all(_is_of_library(*single) for single in environments_in(env, options))


def _is_of_library(name: Factory, options: Mapping[str, Any]) -> bool:
    if options.get(PYTHON) is not None:
        return False
    wrappers = wrapper_settings(options.get(WRAPPERS, ()))
    if not isinstance(name, str) or any(":" in str(wrapper) for wrapper in wrappers if isinstance(wrapper, str)):
        return False
    if any(":" in str(wrapper.get("name")) for wrapper in wrappers if isinstance(wrapper, dict)):
        return False
    id = name.removeprefix("gymnasium:")
    if id == name and (_beginning(name) in _MAKERS or name.startswith((PETTINGZOO, *MINIGRID_NAMES))):
        return True
    registered = gymnasium.registry.get(id)
    if registered is None:
        return ":" not in id  # There is no such environment.
    return str(registered.entry_point).startswith("gymnasium.")


def is_python_factory(name: Factory) -> bool:
    """Returns whether an environment is made by a class or function of the user's own, which may be given by name."""
    return _resolve(name, "check")[0] is check_factory


def _is_mixture(env: Environment) -> TypeGuard[Sequence[Any]]:
    return isinstance(env, list | tuple)


def environments_in(env: Environment, options: Mapping[str, Any] | None) -> list[tuple[Factory, dict[str, Any]]]:
    """Returns the name and the options of an environment, or of each in a list."""
    if _is_mixture(env):
        return [(entry.name, {**(options or {}), **entry.options}) for entry in read_mixture(env)]
    name, own_options = named_factory(env)
    return [(name, {**own_options, **(options or {})})]


def _make_mixture(
    mixture: Sequence[WeightedEnvironment],
    seeds: Sequence[int],
    options: Mapping[str, Any],
    slots: Sequence[int],
    actor: int | None,
    warn: Callable[[str], object],
) -> BatchedEnvironment:
    chosen = environment_of_slots([entry.weight for entry in mixture], max(slots) + 1)[np.asarray(slots)]
    with contextlib.ExitStack() as opened:
        parts = []
        for index, entry in enumerate(mixture):
            rows = np.flatnonzero(chosen == index)
            if rows.size:
                own_seeds, own_slots = [seeds[row] for row in rows], [slots[row] for row in rows]
                merged = {**options, **entry.options}
                parts.append(MixturePart(make(entry.name, len(rows), own_seeds, merged, own_slots, actor, warn), rows))
                opened.callback(parts[-1].environment.close)
        opened.pop_all()
    return parts[0].environment if len(parts) == 1 else MixedBatch(parts)


def _evaluation_options(name: Factory, options: Mapping[str, Any]) -> dict[str, Any]:
    left_out = _TRAINING_OPTIONS.get(_beginning(name), ())
    kept = {key: value for key, value in options.items() if key not in left_out}
    if WRAPPERS not in kept:
        return kept
    if kept.get(PYTHON) is not None:
        return {**kept, TRUE_SCORES: True}
    return {**kept, WRAPPERS: without_rewards(kept[WRAPPERS])}


def _has_singles(name: Factory) -> bool:
    """Returns whether an environment may be made of single Gymnasium environments."""
    return _beginning(name) not in _MAKERS or _beginning(name) == "gymnasium:"


def check_contents(name: str, spec: EnvironmentSpec) -> None:
    """Raises `CallboardError` if parts are no specs of numbers, or there are none, or none in one, or too many."""
    for role, nest, kind in (
        ("observation", spec.observation, specs.Array),
        ("action", spec.action, specs.BoundedArray),
    ):
        for leaf in tree.flatten(nest):
            if not isinstance(leaf, kind) or isinstance(leaf, specs.StringArray):
                raise CallboardError(
                    f"environment {name!r} has {type_text(leaf)} in its {role} spec: give one of dm_env.specs, "
                    f"{kind.__name__} or DiscreteArray"
                )
    try:
        check_sizes(spec.observation, spec.action)
    except CallboardError as error:
        raise CallboardError(f"environment {name!r}: {error}") from error
    for role, nest in (("observation", spec.observation), ("action", spec.action)):
        leaves = tree.flatten_with_path(nest)
        if not leaves:
            shows = "shows nothing" if role == "observation" else "has nothing to do"
            raise CallboardError(f"environment {name!r} {shows}: its {role} space is empty, give it a part")
        for path, leaf in leaves:
            if 0 in leaf.shape:
                place = f" at '{'/'.join(map(str, path))}'" if path else ""
                raise CallboardError(
                    f"environment {name!r} has an {role} of shape {tuple(leaf.shape)}{place}, with nothing in it: "
                    + ("leave that part out" if path else "give it at least one element")
                )


def _resolve(name: Factory, what: Literal["make", "check"]) -> tuple[Callable[..., Any], Any]:
    factory = make_factory if what == "make" else check_factory
    if not isinstance(name, str):
        return factory, name
    if name.startswith("["):
        raise CallboardError(f"env {name!r} is not a list of environments: write '[{{name: A}}, {{name: B}}]'")
    beginning = _beginning(name)
    (module, ending), rest = _GYMNASIUM, name
    if beginning in _MAKERS:
        module, ending = _MAKERS[beginning]
        rest = name[len(beginning) :] if beginning.endswith(":") else name
    elif ":" in name:
        object_path = name.partition(":")[2]
        if "<" in object_path:
            if is_by_command():
                raise of_program("environment", name)
            raise CallboardError(
                f"environment {name!r} cannot be imported: it was given to an experiment as an object without a name; "
                "continue its run from the program that made it, and give it again, as in evaluate(run, env=...)"
            )
        # `module:Id-v0` is Gymnasium's syntax to import a module that registers ids; `Id-v0` is not an identifier.
        if all(part.isidentifier() for part in object_path.split(".")) and not _registers(name):
            return factory, name
    elif name.startswith(MINIGRID_NAMES):
        module, ending = _MINIGRID
    else:
        refuse_old_atari(name)
    return getattr(importlib.import_module(module, __package__), f"{what}_{ending}"), rest


def _registers(name: str) -> bool:
    """Returns whether `module:Id` is an id that the module registers with Gymnasium, not a class or function in it."""
    module, _, id = name.partition(":")
    return not hasattr(import_module("environment", name, module), id) and id in gymnasium.registry


def _beginning(name: Factory) -> str:
    """Returns the name up to and including the first `:` or `/`; a namespace in lower case, to tolerate typos."""
    found = re.match(r"\w+:|\w+/", name) if isinstance(name, str) else None
    if found is None:
        return ""
    return found[0].lower() if found[0].endswith("/") else found[0]
