"""The adapter for Gymnasium's vector environments, in either mode of resetting."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import tree
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ...action_masks import MASK, has_mask, with_legal_choices
from ...data import Nest, Timestep
from ...specs import EnvironmentSpec
from ..batches import encoding
from ..batches.batched import BatchedEnvironment, check_seeds, first_timestep, picture
from ..batches.goal_rewards import GoalRewards, goal_rewards
from ..batches.infos import Info, Infos, chosen_rows, final_info_rows, info_rows, no_infos
from ..batches.overwritten_observations import FinalObservationCheck
from ..batches.spaces import action_encoding, observation_encoding
from ..batches.tasks import Task, no_task, reset_options
from .gymnasium_checks import (
    autoreset_mode,
    check_batch_step,
    check_has,
    check_picture,
    check_reset_error,
    checked_reset,
    environment_name,
    frame_rate,
    rendered,
    wrong_step,
)
from .waiting import Waiting


class GymnasiumVectorBatch(BatchedEnvironment):
    """A Gymnasium vector environment.

    With `AutoresetMode.NEXT_STEP` the timesteps are those of `GymnasiumBatch`.  With `AutoresetMode.SAME_STEP` the end
    of a terminated episode and the start of the next share one timestep: `first`, never `last`, with the final reward
    and a discount of 0.

    Where an episode is truncated in the same-step mode, the timestep is `last` instead and contains
    `info["final_obs"]`, so that the learner can bootstrap from it; the next timestep is `first`.  The environments of
    a `SyncVectorEnv` wait for it.  Those of an `AsyncVectorEnv` have been stepped by then, so they are reset once more,
    and the episode that had begun is not played.  Other vector environments show the final observation only if all
    environments are truncated in the same step, because then no step is needed before the next timestep.  Otherwise the
    timestep is `first` and the truncated transition is not valid, as where the environment overwrites its final
    observations.

    Environments are seeded individually if the vector environment takes a list of seeds.  If it has one generator for
    all (as CartPole's vector form does), the seeds are mixed into one, and each environment depends on the whole batch:
    on its size, and on when the others begin new episodes.

    A task is passed at once to the method `set_task` of the vector environment or of the environments in it, which must
    wait for their next reset.  The environments of a `SyncVectorEnv` without one take the task, a mapping, as the
    `options` of each reset.  Those of an `AsyncVectorEnv` are reset once more where they have begun an episode, unless
    they are a `WaitingEnvironment`.
    """

    def __init__(self, environment: VectorEnv, seeds: Sequence[int]) -> None:
        """Takes ownership of a vector environment of `len(seeds)` environments; `close` closes it.

        Raises:
          CallboardError: if a space is not supported, or the environment does not reset automatically.
        """
        check_has(environment, ("num_envs", "single_observation_space", "single_action_space"))
        check_seeds(environment.num_envs, seeds)
        self._environment = environment
        self._observation = observation_encoding(environment.single_observation_space)
        self._action = action_encoding(environment.single_action_space)
        self._spec = encoding.EnvironmentEncoding(self._observation, self._action).spec()
        self._same_step = autoreset_mode(environment) is AutoresetMode.SAME_STEP
        # Those of other vector environments are not objects of this process.
        self._own = environment.unwrapped.envs if isinstance(environment.unwrapped, SyncVectorEnv) else [environment]
        self._waiting: Sequence[Any] = let_wait(environment)
        # Others have one generator, or a list of seeds of which nothing is known.
        self.has_own_seeds = self._resets_single = isinstance(environment.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._next_observation: Nest = None
        self._hidden_mask: Nest = None
        self._next_infos: list[Any] = no_infos(environment.num_envs)
        self._seeds: list[int] | None = [int(seed) for seed in seeds]
        self._finals = FinalObservationCheck(environment_name(environment), environment.num_envs)
        self._over = np.zeros(environment.num_envs, np.bool_)
        self._options: dict[str, Any] | None = None
        self._keeps_infos = False
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return self._spec

    @property
    def batch_size(self) -> int:
        return self._environment.num_envs

    @property
    def environments(self) -> Sequence[Any]:
        return self._own

    @property
    def goal_rewards(self) -> GoalRewards | None:
        # The environments of others are not objects of this process.
        is_here = isinstance(self._environment.unwrapped, SyncVectorEnv)
        return goal_rewards(self, self._own, self._environment) if is_here else None

    def reset(self) -> Timestep:
        seeds, self._seeds = self._seeds, None
        outcome = self._environment.reset(**self._with_task()) if seeds is None else self._seeded_reset(seeds)
        observations, info = checked_reset(self._environment, outcome)
        self._over = np.zeros(self.batch_size, np.bool_)
        if self._keeps_infos:
            self.infos = Infos(no_infos(self.batch_size), info_rows(info or {}, self.batch_size))
        return first_timestep(encoding.encode(self._observation, observations), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        # Actions are ignored where the last timestep was `last`.
        ignored = self._over
        if self._same_step and has_mask(self._spec.observation) and ignored.any():
            # They are chosen for the final observations, but the next episodes have begun.
            actions = with_legal_choices(self._spec, actions, self._hidden_mask, ignored)
        own_actions = encoding.decode(self._action, actions, self.batch_size)
        if self._same_step and not self._waiting and ignored.all():
            return self._begun_timestep()
        for row in np.flatnonzero(ignored) if self._same_step and self._waiting else ():
            self._waiting[row].wait()
        observations, rewards, terminations, truncations, info = self._checked_step(own_actions)
        observation = encoding.encode(self._observation, observations)
        reward = np.array(rewards, np.float32)
        reward[ignored] = 0.0
        terminated = np.array(terminations, np.bool_) & ~ignored
        over = (terminated | np.array(truncations, np.bool_)) & ~ignored
        last = self._show_final(observation, over & ~terminated, info, observations) if self._same_step else over
        first = ignored | (over & ~last)
        self._over = last.copy()
        # Episodes that have begun without the task, or in the same-step mode a step too early, begin once more.
        again = first if self._options is not None else ignored & self._same_step
        restarted = self._restart(again, observation)
        if self._keeps_infos:
            self._store_infos(info, restarted, ignored, over, first)
        return Timestep(
            observation=observation,
            reward=reward,
            discount=(~terminated).astype(np.float32),
            first=first,
            last=last,
        )

    def keep_infos(self) -> None:
        self._keeps_infos = True

    def set_task(self, task: Task) -> None:
        environment = self._environment
        own = getattr(environment, "set_task", None) or getattr(environment.unwrapped, "set_task", None)
        if callable(own):
            own(task)
        elif not isinstance(environment.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            fix = "give it a method 'set_task', or step single ones, with --env-options.vectorized false"
            raise no_task(f"the vector environment {environment_name(environment)}", fix)
        elif all(environment.unwrapped.call("has_wrapper_attr", "set_task")):
            environment.unwrapped.call("set_task", task)
        else:
            options = reset_options(environment_name(environment), task)
            if all(environment.unwrapped.call("has_wrapper_attr", "set_reset_options")):
                environment.unwrapped.call("set_reset_options", options)
            else:
                self._options = options

    @property
    def frames_per_second(self) -> float | None:
        return frame_rate(self._environment)

    def render(self) -> np.ndarray:
        name = environment_name(self._environment)
        check_picture(self._environment, name)
        frames = rendered(self._environment, name)
        return picture(None if frames is None else frames[0], name)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._environment.close()

    def _checked_step(self, own_actions: Any) -> Any:
        """Steps the vector environment; returns the five things that it must return."""
        outcome = self._environment.step(own_actions)
        try:
            _, rewards, terminations, truncations, _ = outcome
        except (TypeError, ValueError) as error:
            raise wrong_step(self._environment, outcome) from error
        check_batch_step(self._environment, (rewards, terminations, truncations), self.batch_size)
        return outcome

    def _begun_timestep(self) -> Timestep:
        """Returns the timestep of episodes that have all begun in the step that ended the last ones."""
        if self._options is not None:
            return self.reset()
        self._over = np.zeros_like(self._over)
        if self._keeps_infos:
            self.infos = Infos(no_infos(self.batch_size), self._next_infos)
        return first_timestep(self._next_observation, self.batch_size)

    def _restart(self, mask: np.ndarray, observation: Nest) -> tuple[np.ndarray, Any] | None:
        """Resets the environments in `mask`, and writes their observations into `observation`.

        Returns:
          The mask and the info of the reset.
        """
        if not mask.any():
            return None
        options = {**(self._options or {}), "reset_mask": mask.copy()}
        observations, info = checked_reset(self._environment, self._environment.reset(options=options))
        encoded = encoding.encode(self._observation, observations)
        for leaf, restarted in zip(tree.flatten(observation), tree.flatten(encoded), strict=True):
            leaf[mask] = restarted[mask]
        return mask, info

    def _store_infos(
        self,
        info: Any,
        restarted: tuple[np.ndarray, Any] | None,
        ignored: np.ndarray,
        over: np.ndarray,
        first: np.ndarray,
    ) -> None:
        """Stores the infos of a step.

        Args:
          info: info of the step.
          restarted: mask and info of the reset that followed it, or None.
          ignored: which actions were ignored, bool `[B]`.
          over: which episodes ended, bool `[B]`.
          first: which episodes begin, bool `[B]`.
        """
        nothing = no_infos(self.batch_size)
        rows: list[Info] = [*info_rows(info or {}, self.batch_size)]
        followed = rows
        if self._same_step:
            followed = chosen_rows(over, final_info_rows(info or {}, self.batch_size), rows)
            self._next_infos = rows
        begun = rows
        if restarted is not None:
            again, info_of_reset = restarted
            begun = chosen_rows(again, info_rows(info_of_reset or {}, self.batch_size), rows)
        self.infos = Infos(chosen_rows(ignored, nothing, followed), chosen_rows(first, begun, nothing))

    def _with_task(self) -> dict[str, Any]:
        return {} if self._options is None else {"options": dict(self._options)}

    def _show_final(self, observation: Nest, truncated: np.ndarray, info: Any, observations: Any) -> np.ndarray:
        """Writes final observations into `observation`, the encoded `observations`.

        Returns:
          For which environments, bool `[B]`.
        """
        self._finals.stepped()
        nothing = np.zeros_like(truncated)
        if not truncated.any() or not isinstance(info, Mapping) or "final_obs" not in info:
            return nothing
        final, known = info["final_obs"], np.broadcast_to(info.get("_final_obs", True), truncated.shape)
        rows = np.flatnonzero(truncated & known)
        if not rows.size:
            return nothing
        of_singles = isinstance(final, np.ndarray) and final.dtype == object
        if of_singles:
            encoded = encoding.stack(self._observation, [final[row] for row in rows])
        else:
            # A nest of batched arrays, like the observations.
            self._finals.returned(final, observations)
            encoded = encoding.encode(self._observation, tree.map_structure(lambda leaf: leaf[rows], final))
        leaves = list(zip(tree.flatten(observation), tree.flatten(encoded), strict=True))
        if of_singles:
            same = [(leaf[rows] == final_leaf).reshape(len(rows), -1).all(1) for leaf, final_leaf in leaves]
            for row, is_equal in zip(rows, np.logical_and.reduce(same), strict=True):
                self._finals.ended(int(row), final[row], bool(is_equal))
        shown = nothing.copy()
        shown[rows] = True
        if self._finals.are_lost or not (self._resets_single or shown.all()):
            return nothing
        self._next_observation = tree.map_structure(np.copy, observation) if shown.all() else None
        if has_mask(observation):
            self._hidden_mask = tree.map_structure(np.copy, observation[MASK])
        for leaf, final_leaf in leaves:
            leaf[shown] = final_leaf[shown[rows]]
        return shown

    def _seeded_reset(self, seeds: list[int]) -> Any:
        try:
            # The base class's annotation is too narrow: vector environments of single ones take a list.
            return self._environment.reset(seed=seeds, **self._with_task())  # type: ignore[arg-type]
        except (gymnasium.error.Error, TypeError, ValueError):
            mixed = int(np.random.SeedSequence(seeds).generate_state(1)[0]) >> 1
            try:
                return self._environment.reset(seed=mixed, **self._with_task())
            except TypeError as error:
                check_reset_error(self._environment, error)
                raise


class WaitingEnvironment(Waiting, gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that can wait at the beginning of an episode while others beside it are stepped.

    Args:
      env: the environment.
    """


def let_wait(vector: VectorEnv[Any, Any, Any]) -> list[WaitingEnvironment]:
    """Lets the environments of a `SyncVectorEnv` wait; returns none for others, which are not objects of this process.

    Args:
      vector: a vector environment, whose own list of environments is replaced.
    """
    unwrapped = vector.unwrapped
    if not isinstance(unwrapped, SyncVectorEnv) or not all(isinstance(one, gymnasium.Env) for one in unwrapped.envs):
        return []
    waiting = [WaitingEnvironment(environment) for environment in unwrapped.envs]
    unwrapped.envs = list(waiting)
    return waiting
