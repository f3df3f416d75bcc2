"""Checks of what Gymnasium environments of a user's own have and return, with one-line errors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ...errors import CallboardError, exits_refused, message_of, type_text
from ...messages.caller_words import argument
from ..batches.encoding import encode_one
from ..batches.given_observations import one_number
from ..batches.spaces import observation_encoding
from ..batches.tasks import check_options_error
from .old_gym import OldGym


def environment_name(environment: Any) -> str:
    """Returns an environment's id, or else its class."""
    # An object not derived from Gymnasium's classes may lack their attributes.
    own_id = getattr(getattr(environment, "spec", None), "id", None)
    return own_id or type(getattr(environment, "unwrapped", environment)).__name__


def check_has(environment: Any, attributes: Sequence[str]) -> None:
    """Raises `CallboardError` if an environment lacks one of `attributes` of Gymnasium's interface."""
    for attribute in attributes:
        if getattr(environment, attribute, None) is None:
            raise CallboardError(
                f"{environment_name(environment)} has no {attribute}: an environment of Gymnasium 1 must have one"
            )


def check_reset_error(environment: Any, error: TypeError) -> None:
    """Checks whether `reset` has raised an error because it takes no seed or no options.

    Raises:
      CallboardError: that is so.
    """
    check_options_error(environment_name(environment), error)
    reason = message_of(error)
    if "unexpected keyword argument 'seed'" in reason:
        raise CallboardError(
            f"{environment_name(environment)} cannot be seeded ({reason}): let 'reset' take seed=None and "
            f"options=None, or, for the old interface of Gym, add {argument('env_wrappers', OldGym.__name__)}"
        ) from error


def checked_reset(environment: Any, outcome: Any) -> tuple[Any, Any]:
    """Returns the observation and info that `reset` gave; raises `CallboardError` if it gave anything else."""
    if isinstance(outcome, tuple) and len(outcome) == 2 and (outcome[1] is None or isinstance(outcome[1], Mapping)):
        return outcome
    raise CallboardError(f"'reset' of {environment_name(environment)} gives no info: let it return (observation, info)")


def wrong_step(environment: Any, outcome: Any) -> CallboardError:
    """Returns the error for an invalid result of `step`."""
    name = environment_name(environment)
    if isinstance(outcome, tuple) and len(outcome) == 5:
        return CallboardError(f"'step' of {name} gives the reward {outcome[1]!r}: it must be a number")
    what = f"{len(outcome)} values" if isinstance(outcome, tuple) else type_text(outcome)
    is_old = isinstance(outcome, tuple) and len(outcome) == 4
    old = ", as in the old interface of Gym" if is_old else ""
    # The wrapper is for single environments.
    wraps = is_old and not isinstance(environment, gymnasium.vector.VectorEnv)
    wrapper = f", or add {argument('env_wrappers', OldGym.__name__)}" if wraps else ""
    return CallboardError(
        f"'step' of {name} returns {what}{old}: let it return (observation, reward, terminated, truncated, info)"
        f"{wrapper}"
    )


def check_step(environment: Any, outcome: tuple[Any, ...]) -> None:
    """Checks the reward and the flags in a result of `step` of a single environment.

    Raises:
      CallboardError: the reward is not a number, or a flag is not true or false.
    """
    _, reward, terminated, truncated, _ = outcome
    if one_number(reward) is None:
        raise wrong_step(environment, outcome)
    check_flags(f"'step' of {environment_name(environment)} gives", terminated, truncated)


class CheckedSteps(gymnasium.Wrapper):
    """Checks what `reset` and `step` return where it is converted before it arrives, as from other processes."""

    def __init__(self, environment: gymnasium.Env) -> None:
        super().__init__(environment)
        self._encoding = observation_encoding(environment.observation_space)
        self._native = _array_maker(environment.action_space)

    @exits_refused()
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        outcome = checked_reset(self.env, self.env.reset(seed=seed, options=options))
        encode_one(self._encoding, outcome[0])
        return outcome

    def step(self, action: Any) -> Any:
        if self._native is not None:
            action = self._native(action)
        try:
            outcome = self.env.step(action)
        except BaseException:  # To enter `exits_refused` each time would take a fifth of a step.
            with exits_refused():
                raise
        if not isinstance(outcome, tuple) or len(outcome) != 5:
            raise wrong_step(self.env, outcome)
        encode_one(self._encoding, outcome[0])
        check_step(self.env, outcome)
        return outcome


def _array_maker(space: gymnasium.Space) -> Callable[[Any], Any] | None:
    """Returns a function that makes arrays of NumPy's numbers in an action; None if all its arrays have axes.

    Gymnasium's vector environments split arrays of shape `()` into numbers.
    """
    if isinstance(space, spaces.Dict):
        parts = {key: _array_maker(part) or _same for key, part in space.spaces.items()}
        is_needed = any(make is not _same for make in parts.values())
        return (lambda action: {key: make(action[key]) for key, make in parts.items()}) if is_needed else None
    if isinstance(space, spaces.Tuple):
        makers = [_array_maker(part) or _same for part in space.spaces]
        is_needed = any(make is not _same for make in makers)
        return (lambda action: tuple(map(lambda make, part: make(part), makers, action))) if is_needed else None
    is_number = isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) and space.shape == ()
    return np.asarray if is_number else None


def _same(value: Any) -> Any:
    return value


def check_flags(beginning: str, terminated: Any, truncated: Any) -> None:
    """Checks `terminated` and `truncated`, which may also be the numbers 0 and 1.

    Args:
      beginning: how an error begins, such as `'step' of Maze gives`.
      terminated: whether the episode has terminated.
      truncated: whether the episode was truncated.

    Raises:
      CallboardError: one of them is something else, such as the text `no`, which Python takes as true.
    """
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if not (isinstance(value, bool | np.bool_) or _are_flags(np.asarray(value), 1)):
            raise CallboardError(f"{beginning} {name} {value!r}: it must be True or False")


def check_batch_step(environment: Any, outcome: Sequence[Any], batch_size: int) -> None:
    """Checks rewards, terminations and truncations that `step` of a vector environment gives.

    Raises:
      CallboardError: they are not one number, or one of true and false, per environment.
    """
    rewards, terminations, truncations = map(np.asarray, outcome)
    are_rewards = rewards.size == batch_size and rewards.dtype.kind in "buif"
    for name, values, right, what in (
        ("rewards", rewards, are_rewards, "numbers"),
        ("terminations", terminations, _are_flags(terminations, batch_size), "booleans"),
        ("truncations", truncations, _are_flags(truncations, batch_size), "booleans"),
    ):
        if not right or values.shape != (batch_size,):
            raise CallboardError(
                f"'step' of {environment_name(environment)} gives {name} of shape {values.shape} and type "
                f"{values.dtype}: let it return an array of {batch_size} {what}"
            )


def _are_flags(values: np.ndarray, count: int) -> bool:
    """Returns whether an array has this number of booleans, or of numbers 0 and 1."""
    is_number = values.dtype.kind in "uif" and bool(np.isin(values, (0, 1)).all())
    return values.size == count and (values.dtype.kind == "b" or is_number)


def autoreset_mode(environment: VectorEnv) -> AutoresetMode:
    """Returns how a vector environment begins new episodes.

    Raises:
      CallboardError: its metadata lacks the mode, or it does not reset by itself.
    """
    name = environment_name(environment)
    try:
        mode = AutoresetMode(environment.metadata.get("autoreset_mode"))
    except ValueError as error:
        raise CallboardError(
            f"{name} must declare how it resets by itself: "
            "metadata['autoreset_mode'] as AutoresetMode.NEXT_STEP or AutoresetMode.SAME_STEP"
        ) from error
    if mode is AutoresetMode.DISABLED:
        raise CallboardError(
            f"{name} begins no episode by itself (AutoresetMode.DISABLED): make it with "
            "autoreset_mode=AutoresetMode.NEXT_STEP"
        )
    return mode


def check_picture(environment: Any, name: str) -> None:
    """Raises `CallboardError` if an environment was not made to be rendered as pictures."""
    if getattr(environment, "render_mode", None) == "rgb_array":
        return
    if "rgb_array" in (getattr(environment, "metadata", None) or {}).get("render_modes", ()):
        raise CallboardError(f"{name} has no picture to show: make it with the option render_mode='rgb_array'")
    raise CallboardError(f"{name} has no picture to show: it has no render mode 'rgb_array'")


def frame_rate(environment: Any) -> float | None:
    """Returns the frames per second that an environment declares, or None."""
    rate = (getattr(environment, "metadata", None) or {}).get("render_fps")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def rendered(environment: Any, name: str) -> Any:
    """Renders an environment; raises `CallboardError` if that needs a package or is not implemented."""
    try:
        return environment.render()
    except (gymnasium.error.DependencyNotInstalled, NotImplementedError) as error:
        raise CallboardError(f"{name} has no picture to show: {' '.join(message_of(error).split())}") from error
