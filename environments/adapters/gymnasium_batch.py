"""The adapter for single Gymnasium environments, which are batched here."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from ...data import Nest, Timestep
from ...specs import EnvironmentSpec, check_same_form
from ..batches import encoding
from ..batches.batched import BatchedEnvironment, check_seeds, first_timestep, picture
from ..batches.given_observations import one_number
from ..batches.goal_rewards import GoalRewards, goal_rewards
from ..batches.infos import Infos, chosen_rows, no_infos
from ..batches.spaces import action_encoding, observation_encoding
from ..batches.tasks import Task, Tasks, reset_options
from .gymnasium_checks import (
    check_has,
    check_picture,
    check_reset_error,
    check_step,
    checked_reset,
    environment_name,
    frame_rate,
    rendered,
    wrong_step,
)


class GymnasiumBatch(BatchedEnvironment):
    """B single Gymnasium environments, stepped one after the other and seeded individually.

    Only termination sets the discount to 0.  An episode that is truncated and terminated in the same step counts as
    terminated.

    A task is passed to the environment's method `set_task` before a reset, if it has one; otherwise every reset gets
    the task, a mapping, as its `options`.
    """

    has_own_seeds = True

    def __init__(self, environments: Sequence[gymnasium.Env], seeds: Sequence[int]) -> None:
        """Takes ownership of B separate environments; `close` closes them.

        Args:
          environments: environments with the same spaces.
          seeds: one seed per environment, for its first reset.

        Raises:
          CallboardError: if a space is not supported.
        """
        check_seeds(len(environments), seeds)
        check_has(environments[0], ("observation_space", "action_space"))
        self._environments = tuple(environments)
        self._observation = observation_encoding(environments[0].observation_space)
        self._action = action_encoding(environments[0].action_space)
        self._spec = encoding.EnvironmentEncoding(self._observation, self._action).spec()
        for index, environment in enumerate(environments):
            if environment.observation_space is not environments[0].observation_space or (
                environment.action_space is not environments[0].action_space
            ):
                own = observation_encoding(environment.observation_space), action_encoding(environment.action_space)
                spec = encoding.EnvironmentEncoding(*own).spec()
                check_same_form(self._spec, spec, f"environments 0 and {index} of {environment_name(environment)}")
        self._seeds: list[int | None] = [int(seed) for seed in seeds]
        self._over = [True] * len(environments)
        self._tasks = Tasks(len(environments))
        self._sets_task = environments[0].has_wrapper_attr("set_task")
        self._options: dict[str, Any] | None = None
        self._followed: list[Any] = no_infos(len(environments))
        self._begun: list[Any] = no_infos(len(environments))
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

    @property
    def goal_rewards(self) -> GoalRewards | None:
        return goal_rewards(self, self._environments)

    def reset(self) -> Timestep:
        observations = [self._begin(index) for index in range(self.batch_size)]
        self._over = [False] * self.batch_size
        if self._keeps_infos:
            self.infos = Infos(no_infos(self.batch_size), list(self._begun))
        return first_timestep(encoding.stack(self._observation, observations), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        environments, was_over = self._environments, self._over
        batch_size = len(environments)
        observations: list[Any] = [None] * batch_size
        rewards = [0.0] * batch_size
        discounts = [1.0] * batch_size
        over = [False] * batch_size
        followed = self._followed
        for index, action in enumerate(encoding.split(self._action, actions, batch_size)):
            if was_over[index]:
                observations[index] = self._begin(index)
                continue
            outcome = environments[index].step(action)
            try:
                observations[index], reward, terminated, truncated, followed[index] = outcome
            except (TypeError, ValueError) as error:
                raise wrong_step(environments[index], outcome) from error
            number = reward if type(reward) is float else one_number(reward)
            if number is None:
                raise wrong_step(environments[index], outcome)
            rewards[index] = number
            if terminated is not False or truncated is not False:
                check_step(environments[index], outcome)
                discounts[index] = 0.0 if terminated else 1.0
                over[index] = bool(terminated or truncated)
        first, self._over = was_over, over
        if self._keeps_infos:
            nothing, mask = no_infos(batch_size), np.array(first, np.bool_)
            self.infos = Infos(chosen_rows(mask, nothing, followed), chosen_rows(mask, self._begun, nothing))
        return Timestep(
            observation=encoding.stack(self._observation, observations),
            reward=np.array(rewards, np.float32),
            discount=np.array(discounts, np.float32),
            first=np.array(first, np.bool_),
            last=np.array(over, np.bool_),
        )

    def keep_infos(self) -> None:
        self._keeps_infos = True

    def set_task(self, task: Task) -> None:
        if not self._sets_task:
            self._options = reset_options(environment_name(self._environments[0]), task)
        self._tasks.set(task)

    @property
    def frames_per_second(self) -> float | None:
        return frame_rate(self._environments[0])

    def render(self) -> np.ndarray:
        environment = self._environments[0]
        name = environment_name(environment)
        check_picture(environment, name)
        return picture(rendered(environment, name), name)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for environment in self._environments:
                environment.close()

    def _begin(self, index: int) -> Any:
        # Only the first reset is seeded; otherwise every episode would begin in the same state.
        seed, self._seeds[index] = self._seeds[index], None
        environment = self._environments[index]
        if self._sets_task:
            self._tasks.pass_on(index, environment.get_wrapper_attr("set_task"))
        try:
            if self._options is None:
                outcome = environment.reset(seed=seed)
            else:
                outcome = environment.reset(seed=seed, options=dict(self._options))
        except TypeError as error:
            check_reset_error(environment, error)
            raise
        observation, self._begun[index] = checked_reset(environment, outcome)
        return observation
