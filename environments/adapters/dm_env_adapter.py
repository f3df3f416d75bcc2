"""Adapter that batches environments with the `dm_env` interface."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import dm_env
import numpy as np
from dm_env import specs

from ...data import Nest, Timestep
from ...errors import CallboardError
from ...specs import EnvironmentSpec, check_same_form
from ..batches import encoding
from ..batches.batched import BatchedEnvironment, first_timestep, picture
from ..batches.given_observations import one_number
from ..batches.infos import Infos, chosen_rows, no_infos
from ..batches.space_sizes import check_array, check_depth
from ..batches.tasks import Task, Tasks

NO_INFOS = "has no infos: give it a method 'info' that returns a mapping, or leave episode_metrics and record_infos out"
NO_TASK = "cannot be set to a task: give it a method 'set_task'"
NO_PICTURE = "has no picture to show: it has no method 'render'"


class DmEnvBatch(BatchedEnvironment):
    """B environments with the `dm_env` interface, stepped one after the other.

    Mappings in observations and actions become dictionaries, and sequences become tuples.  The discount is the
    environment's: at a LAST step it distinguishes termination (0) from a time limit (1).  `dm_env` cannot seed an
    existing environment, so environments must be seeded when they are created.

    `dm_env` defines neither infos nor tasks.  An environment has infos if it has a method `info()`, which returns a
    mapping such as Gymnasium's and is called after every reset and step; and tasks if it has a method `set_task(task)`,
    which is called before a reset.
    """

    has_own_seeds = True

    def __init__(self, environments: Sequence[dm_env.Environment]) -> None:
        """Takes ownership of B separate environments; `close` closes them.

        Raises:
          CallboardError: if an observation or action spec is not supported.
        """
        self._environments = tuple(environments)
        self._observation = spec_encoding(environments[0].observation_spec(), "observation")
        self._action = spec_encoding(environments[0].action_spec(), "action")
        self._spec = encoding.EnvironmentEncoding(self._observation, self._action).spec()
        for index, environment in enumerate(environments):
            own = (
                spec_encoding(environment.observation_spec(), "observation"),
                spec_encoding(environment.action_spec(), "action"),
            )
            spec = encoding.EnvironmentEncoding(*own).spec()
            check_same_form(self._spec, spec, f"environments 0 and {index} of {type(environment).__name__}")
        self._over = [True] * len(environments)
        self._tasks = Tasks(len(environments))
        self._takes_task = False
        self._keeps_infos = False
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return self._spec

    @property
    def batch_size(self) -> int:
        return len(self._environments)

    @property
    def environments(self) -> Sequence[Any]:
        return self._environments

    def reset(self) -> Timestep:
        observations = [self._begin(index).observation for index in range(self.batch_size)]
        self._over = [False] * self.batch_size
        if self._keeps_infos:
            self._store_infos([True] * self.batch_size)
        return first_timestep(encoding.stack(self._observation, observations), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        batch_size = len(self._environments)
        observations: list[Any] = [None] * batch_size
        rewards = [0.0] * batch_size
        discounts = [1.0] * batch_size
        first = [False] * batch_size
        for index, action in enumerate(encoding.split(self._action, actions, batch_size)):
            environment = self._environments[index]
            # In dm_env, `step` after LAST should behave like `reset`; calling `reset` does not rely on that.
            timestep = self._begin(index) if self._over[index] else environment.step(action)
            observations[index] = timestep.observation
            if timestep.first():
                first[index] = True
            else:
                reward, discount = one_number(timestep.reward), one_number(timestep.discount)
                if reward is None or discount is None or not 0 <= discount <= 1:
                    raise CallboardError(
                        f"'step' of {type(environment).__name__} gives the reward {timestep.reward!r} and the discount "
                        f"{timestep.discount!r}: both must be numbers, and the discount one from 0 to 1"
                    )
                rewards[index], discounts[index] = reward, discount
            self._over[index] = timestep.last()
        if self._keeps_infos:
            self._store_infos(first)
        return Timestep(
            observation=encoding.stack(self._observation, observations),
            reward=np.array(rewards, np.float32),
            discount=np.array(discounts, np.float32),
            first=np.array(first, np.bool_),
            last=np.array(self._over, np.bool_),
        )

    def keep_infos(self) -> None:
        self._methods("info", NO_INFOS)
        self._keeps_infos = True

    def set_task(self, task: Task) -> None:
        self._methods("set_task", NO_TASK)
        self._takes_task = True
        self._tasks.set(task)

    @property
    def frames_per_second(self) -> float | None:
        # dm_control's environments define the duration of a timestep.
        timestep = getattr(self._environments[0], "control_timestep", None)
        return 1.0 / timestep() if timestep is not None else None

    def render(self) -> np.ndarray:
        # dm_env does not define rendering.  dm_control renders through `physics`; others have a `render` method.
        environment: Any = self._environments[0]
        render = getattr(environment, "render", None) or getattr(getattr(environment, "physics", None), "render", None)
        if render is None:
            raise CallboardError(f"{type(environment).__name__} {NO_PICTURE}")
        return picture(render(), type(environment).__name__)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for environment in self._environments:
                environment.close()

    def _begin(self, index: int) -> dm_env.TimeStep:
        environment: Any = self._environments[index]
        if self._takes_task:
            self._tasks.pass_on(index, environment.set_task)
        return environment.reset()

    def _methods(self, name: str, problem: str) -> None:
        """Raises `CallboardError` unless the environments have a method of this name."""
        if not callable(getattr(self._environments[0], name, None)):
            raise CallboardError(f"{type(self._environments[0]).__name__} {problem}")

    def _store_infos(self, first: Sequence[bool]) -> None:
        rows = [dict(environment.info() or {}) for environment in cast(Sequence[Any], self._environments)]
        nothing = no_infos(len(rows))
        mask = np.array(first, np.bool_)
        self.infos = Infos(followed=chosen_rows(mask, nothing, rows), begun=chosen_rows(mask, rows, nothing))


def spec_encoding(spec: Any, role: str, path: tuple[str, ...] = ()) -> Nest:
    """Returns the encoding of a spec for a role, `observation` or `action`.

    Raises:
      CallboardError: the spec is not supported.
    """
    check_depth(role, path)
    if isinstance(spec, Mapping):
        encoding.check_keys(spec, f"a dictionary of the {role} spec")
        return {key: spec_encoding(part, role, (*path, str(key))) for key, part in spec.items()}
    if isinstance(spec, list | tuple):
        return tuple(spec_encoding(part, role, (*path, str(index))) for index, part in enumerate(spec))
    if not isinstance(spec, specs.Array) or not (
        np.issubdtype(spec.dtype, np.number) or np.issubdtype(spec.dtype, np.bool_)
    ):
        raise CallboardError(f"the {role} spec {type(spec).__name__} is not supported: arrays of numbers are")
    check_array(spec.shape, role, path, spec.num_values if isinstance(spec, specs.DiscreteArray) else None)
    if isinstance(spec, specs.DiscreteArray):
        return encoding.choice(int(spec.num_values), spec.dtype)
    bounds = (spec.minimum, spec.maximum) if isinstance(spec, specs.BoundedArray) else ()
    if role == "observation":
        return encoding.numbers(spec.shape, spec.dtype, *bounds)
    if np.issubdtype(spec.dtype, np.floating):
        return encoding.controls(spec.shape, spec.dtype, *bounds)
    if not bounds:
        raise CallboardError(f"the action spec {spec.dtype}{spec.shape} has no bounds: give it as a BoundedArray")
    # Bounded integers are choices: many environments use them instead of a DiscreteArray.
    return encoding.bounded_integers(spec.shape, spec.dtype, *bounds)
