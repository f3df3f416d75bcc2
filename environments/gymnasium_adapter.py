"""Adapters for Gymnasium environments: single ones, which are batched here, and vector environments."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import tree
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ..data import Nest, Timestep
from ..errors import CallboardError
from ..specs import EnvironmentSpec
from . import encoding
from .batched import BatchedEnvironment, check_seeds, first_timestep, picture
from .spaces import action_encoding, observation_encoding


class GymnasiumBatch(BatchedEnvironment):
    """B single Gymnasium environments, stepped one after the other and seeded individually.

    Only termination sets the discount to 0.  An episode that is truncated and terminated in the same step counts as
    terminated.
    """

    def __init__(self, environments: Sequence[gymnasium.Env], seeds: Sequence[int]) -> None:
        """Takes ownership of B separate environments; `close` closes them.

        Args:
          environments: environments with the same spaces.
          seeds: one seed per environment, for its first reset.

        Raises:
          CallboardError: if a space is not supported.
        """
        check_seeds(len(environments), seeds)
        _check_has(environments[0], ("observation_space", "action_space"))
        self._environments = tuple(environments)
        self._observation = observation_encoding(environments[0].observation_space)
        self._action = action_encoding(environments[0].action_space)
        self._spec = EnvironmentSpec(encoding.spec(self._observation), encoding.spec(self._action))
        self._seeds: list[int | None] = [int(seed) for seed in seeds]
        self._over = [True] * len(environments)
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return self._spec

    @property
    def batch_size(self) -> int:
        return len(self._environments)

    def reset(self) -> Timestep:
        observations = [self._begin(index) for index in range(self.batch_size)]
        self._over = [False] * self.batch_size
        return first_timestep(encoding.stack(self._observation, observations), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        batch_size = len(self._environments)
        observations: list[Any] = [None] * batch_size
        rewards = [0.0] * batch_size
        discounts = [1.0] * batch_size
        over = [False] * batch_size
        for index, action in enumerate(encoding.split(self._action, actions, batch_size)):
            if self._over[index]:
                observations[index] = self._begin(index)
                continue
            outcome = self._environments[index].step(action)
            try:
                observations[index], reward, terminated, truncated, _ = outcome
                rewards[index] = float(reward)
            except (TypeError, ValueError) as error:
                raise _wrong_step(self._environments[index], outcome) from error
            if terminated:
                discounts[index] = 0.0
            if terminated or truncated:
                over[index] = True
        first, self._over = self._over, over
        return Timestep(
            observation=encoding.stack(self._observation, observations),
            reward=np.array(rewards, np.float32),
            discount=np.array(discounts, np.float32),
            first=np.array(first, np.bool_),
            last=np.array(over, np.bool_),
        )

    @property
    def frames_per_second(self) -> float | None:
        return _frame_rate(self._environments[0])

    def render(self) -> np.ndarray:
        environment = self._environments[0]
        name = _name(environment)
        _check_picture(environment, name)
        return picture(_rendered(environment, name), name)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for environment in self._environments:
                environment.close()

    def _begin(self, index: int) -> Any:
        # Only the first reset is seeded; otherwise every episode would begin in the same state.
        seed, self._seeds[index] = self._seeds[index], None
        environment = self._environments[index]
        with _reset_errors(environment):
            return _observation_of_reset(environment, environment.reset(seed=seed))


class GymnasiumVectorBatch(BatchedEnvironment):
    """A Gymnasium vector environment.

    With `AutoresetMode.NEXT_STEP` the timesteps are those of `GymnasiumBatch`.  With `AutoresetMode.SAME_STEP` the end
    of a terminated episode and the start of the next share one timestep: `first`, never `last`, with the final reward
    and a discount of 0.

    Where an episode is truncated in the same-step mode, the timestep is `last` instead and contains
    `info["final_obs"]`, so that the learner can bootstrap from it; the next timestep is `first`.  By then the
    environment has been stepped again, so it is reset with `reset(options={"reset_mask": ...})`, which `SyncVectorEnv`
    and `AsyncVectorEnv` support.  Other vector environments show the final observation only if all environments are
    truncated in the same step, because then no step is needed before the next timestep.  Otherwise the timestep is
    `first` and the truncated transition is not valid.

    Environments are seeded individually if the vector environment takes a list of seeds.  If it has one generator for
    all (as CartPole's vector form does), the seeds are mixed into one, and each environment depends on the whole batch:
    on its size, and on when the others begin new episodes.
    """

    def __init__(self, environment: VectorEnv, seeds: Sequence[int]) -> None:
        """Takes ownership of a vector environment of `len(seeds)` environments; `close` closes it.

        Raises:
          CallboardError: if a space is not supported, or the environment does not reset automatically.
        """
        _check_has(environment, ("num_envs", "single_observation_space", "single_action_space"))
        check_seeds(environment.num_envs, seeds)
        self._environment = environment
        self._observation = observation_encoding(environment.single_observation_space)
        self._action = action_encoding(environment.single_action_space)
        self._spec = EnvironmentSpec(encoding.spec(self._observation), encoding.spec(self._action))
        self._same_step = autoreset_mode(environment) is AutoresetMode.SAME_STEP
        self._resets_single = isinstance(environment.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._next_observation: Nest = None
        self._seeds: list[int] | None = [int(seed) for seed in seeds]
        self._over = np.zeros(environment.num_envs, np.bool_)
        self._closed = False

    @property
    def spec(self) -> EnvironmentSpec:
        return self._spec

    @property
    def batch_size(self) -> int:
        return self._environment.num_envs

    def reset(self) -> Timestep:
        seeds, self._seeds = self._seeds, None
        outcome = self._environment.reset() if seeds is None else self._seeded_reset(seeds)
        observations = _observation_of_reset(self._environment, outcome)
        self._over = np.zeros(self.batch_size, np.bool_)
        return first_timestep(encoding.encode(self._observation, observations), self.batch_size)

    def step(self, actions: Nest) -> Timestep:
        own_actions = encoding.decode(self._action, actions, self.batch_size)
        if self._same_step and self._over.all():
            self._over = np.zeros_like(self._over)
            return first_timestep(self._next_observation, self.batch_size)
        outcome = self._environment.step(own_actions)
        try:
            observations, rewards, terminations, truncations, info = outcome
        except (TypeError, ValueError) as error:
            raise _wrong_step(self._environment, outcome) from error
        observation = encoding.encode(self._observation, observations)
        first = self._over
        reward = np.array(rewards, np.float32)
        terminated = np.array(terminations, np.bool_)
        over = np.logical_or(terminated, truncations)
        any_first = np.count_nonzero(first)
        if any_first:
            # The step after an episode's last timestep executes no action, so its reward and termination are not those
            # of a transition.
            reward[first] = 0.0
            terminated[first] = False
            over[first] = False
        if self._same_step:
            if any_first:
                restarted = encoding.encode(self._observation, self._restarted(first))
                for leaf, restarted_leaf in zip(tree.flatten(observation), tree.flatten(restarted), strict=True):
                    leaf[first] = restarted_leaf[first]
            last = self._show_final(observation, over & ~terminated, info)
            first, self._over = first | (over & ~last), last.copy()
        else:
            last, self._over = over, over.copy()
        return Timestep(
            observation=observation,
            reward=reward,
            discount=(~terminated).astype(np.float32),
            first=first,
            last=last,
        )

    @property
    def frames_per_second(self) -> float | None:
        return _frame_rate(self._environment)

    def render(self) -> np.ndarray:
        name = _name(self._environment)
        _check_picture(self._environment, name)
        frames = _rendered(self._environment, name)
        return picture(None if frames is None else frames[0], name)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._environment.close()

    def _restarted(self, mask: np.ndarray) -> Any:
        """Resets the environments in `mask`; returns observations, of which only theirs are meaningful."""
        return self._environment.reset(options={"reset_mask": mask.copy()})[0]

    def _show_final(self, observation: Nest, truncated: np.ndarray, info: Any) -> np.ndarray:
        """Writes final observations into `observation`; returns for which environments, bool `[B]`."""
        nothing = np.zeros_like(truncated)
        if not truncated.any() or not isinstance(info, Mapping) or "final_obs" not in info:
            return nothing
        final, known = info["final_obs"], np.broadcast_to(info.get("_final_obs", True), truncated.shape)
        rows = np.flatnonzero(truncated & known)
        if not rows.size:
            return nothing
        if isinstance(final, np.ndarray):
            final = encoding.stack(self._observation, [final[row] for row in rows])
        else:
            # A nest of batched arrays, like the observation.
            final = tree.map_structure(lambda leaf: leaf[rows], encoding.encode(self._observation, final))
        leaves = list(zip(tree.flatten(observation), tree.flatten(final), strict=True))
        # An environment that reuses one array for all observations has overwritten the final one.
        same = [(leaf[rows] == final_leaf).reshape(len(rows), -1).all(1) for leaf, final_leaf in leaves]
        shown = nothing.copy()
        shown[rows] = ~np.logical_and.reduce(same)
        if not (self._resets_single or shown.all()):
            return nothing
        self._next_observation = tree.map_structure(np.copy, observation) if shown.all() else None
        for leaf, final_leaf in leaves:
            leaf[shown] = final_leaf[shown[rows]]
        return shown

    def _seeded_reset(self, seeds: list[int]) -> Any:
        try:
            # The base class's annotation is too narrow: vector environments of single ones take a list.
            return self._environment.reset(seed=seeds)  # type: ignore[arg-type]
        except (gymnasium.error.Error, TypeError, ValueError):
            mixed = int(np.random.SeedSequence(seeds).generate_state(1)[0]) >> 1
            with _reset_errors(self._environment):
                return self._environment.reset(seed=mixed)


def autoreset_mode(environment: VectorEnv) -> AutoresetMode:
    """Returns how a vector environment begins new episodes.

    Raises:
      CallboardError: if its metadata lacks the mode, or it does not reset automatically.
    """
    try:
        mode = AutoresetMode(environment.metadata.get("autoreset_mode"))
    except ValueError:
        mode = None
    if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        raise CallboardError(
            f"{_name(environment)} must say how it resets by itself: "
            "metadata['autoreset_mode'] as AutoresetMode.NEXT_STEP or AutoresetMode.SAME_STEP"
        )
    return mode


def _name(environment: Any) -> str:
    # An object not derived from Gymnasium's classes may lack their attributes.
    own_id = getattr(getattr(environment, "spec", None), "id", None)
    return own_id or type(getattr(environment, "unwrapped", environment)).__name__


def _check_has(environment: Any, attributes: Sequence[str]) -> None:
    """Raises `CallboardError` if an environment lacks one of `attributes` of Gymnasium's interface."""
    for attribute in attributes:
        if getattr(environment, attribute, None) is None:
            raise CallboardError(
                f"{_name(environment)} has no {attribute}: an environment of Gymnasium 1 must have one"
            )


@contextlib.contextmanager
def _reset_errors(environment: Any) -> Iterator[None]:
    try:
        yield
    except TypeError as error:
        if "unexpected keyword argument 'seed'" not in str(error):
            raise
        raise CallboardError(
            f"{_name(environment)} cannot be seeded ({error}): let 'reset' take seed=None and options=None"
        ) from error


def _observation_of_reset(environment: Any, outcome: Any) -> Any:
    if isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[1], Mapping | None):
        return outcome[0]
    raise CallboardError(f"'reset' of {_name(environment)} gives no info: let it return (observation, info)")


def _wrong_step(environment: Any, outcome: Any) -> CallboardError:
    """Returns the error for an invalid result of `step`."""
    name = _name(environment)
    if isinstance(outcome, tuple) and len(outcome) == 5:
        return CallboardError(f"'step' of {name} gives the reward {outcome[1]!r}: it must be a number")
    what = f"{len(outcome)} values" if isinstance(outcome, tuple) else f"a {type(outcome).__name__}"
    old = ", as in the old interface of Gym" if isinstance(outcome, tuple) and len(outcome) == 4 else ""
    return CallboardError(
        f"'step' of {name} returns {what}{old}: let it return (observation, reward, terminated, truncated, info)"
    )


def _check_picture(environment: Any, name: str) -> None:
    if environment.render_mode == "rgb_array":
        return
    if "rgb_array" in environment.metadata.get("render_modes", ()):
        raise CallboardError(f"{name} has no picture to show: make it with the option render_mode='rgb_array'")
    raise CallboardError(f"{name} has no picture to show: it has no render mode 'rgb_array'")


def _frame_rate(environment: Any) -> float | None:
    rate = (getattr(environment, "metadata", None) or {}).get("render_fps")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def _rendered(environment: Any, name: str) -> Any:
    try:
        return environment.render()
    except (gymnasium.error.DependencyNotInstalled, NotImplementedError) as error:
        raise CallboardError(f"{name} has no picture to show: {' '.join(str(error).split())}") from error
