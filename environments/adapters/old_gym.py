"""The interface of Gym before version 0.26, as an environment of Gymnasium."""

from typing import Any

import gymnasium

from ...errors import CallboardError


class OldGym(gymnasium.Wrapper):
    """Gives an environment with the interface of old versions of Gym that of Gymnasium.

    In the old interface `reset` takes no seed and returns the observation alone, and `step` returns four values, of
    which `done` says that the episode has ended, and `info["TimeLimit.truncated"]` that a time limit was the reason.  A
    seed goes to the environment's method `seed`, if it has one.

    Args:
      env: an environment of Gymnasium's class, or of any other with spaces of Gym or Gymnasium.
    """

    def __init__(self, env: Any):
        super().__init__(env if isinstance(env, gymnasium.Env) else _Renamed(env))
        self.observation_space = converted_space(env.observation_space)
        self.action_space = converted_space(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self.unwrapped, seed=seed)
        if seed is not None and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)  # type: ignore[attr-defined]
        outcome: Any = self.env.reset()
        if isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[1], dict):
            raise _not_old()
        return outcome, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        outcome: Any = self.env.step(action)
        if not isinstance(outcome, tuple) or len(outcome) != 4:
            raise _not_old()
        observation, reward, done, info = outcome
        # What `done` is, who takes the step checks.
        ends = (False, done) if info.get("TimeLimit.truncated", False) else (done, False)
        return observation, reward, *ends, info


def _not_old() -> CallboardError:
    return CallboardError("the environment does not have the old interface of Gym: leave the wrapper OldGym out")


class _Renamed(gymnasium.Env):
    """An environment of another class as one of Gymnasium's, with its old interface."""

    def __init__(self, environment: Any):
        self._environment = environment
        self.observation_space, self.action_space = environment.observation_space, environment.action_space
        self.metadata = getattr(environment, "metadata", None) or {}
        self.render_mode = getattr(environment, "render_mode", None)

    def reset(self, **arguments: Any) -> Any:
        return self._environment.reset(**arguments)

    def step(self, action: Any) -> Any:
        return self._environment.step(action)

    def seed(self, seed: int) -> None:
        if callable(getattr(self._environment, "seed", None)):
            self._environment.seed(seed)

    def render(self) -> Any:
        return self._environment.render()

    def close(self) -> None:
        if callable(getattr(self._environment, "close", None)):
            self._environment.close()


def has_old_interface(environment: Any) -> bool:
    """Returns whether an object looks like an environment of Gym that is not one of Gymnasium's class."""
    names = ("reset", "step", "observation_space", "action_space")
    return all(hasattr(environment, name) for name in names) and not hasattr(environment, "num_envs")


def as_gymnasium(environment: Any) -> Any:
    """Returns an environment of another class as one of Gymnasium's; everything else as it is."""
    is_other = has_old_interface(environment) and not isinstance(environment, gymnasium.Env)
    return _Renamed(environment) if is_other else environment


def converted_space(space: Any) -> gymnasium.Space:
    """Returns a space of Gym as that of Gymnasium; one of Gymnasium unchanged.

    Raises:
      CallboardError: it is of a kind that Gymnasium does not have.
    """
    if isinstance(space, gymnasium.Space):
        return space
    spaces, kind = gymnasium.spaces, type(space).__name__
    if kind == "Box":
        return spaces.Box(space.low, space.high, dtype=space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec)
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Tuple":
        return spaces.Tuple([converted_space(part) for part in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: converted_space(part) for key, part in space.spaces.items()})
    raise CallboardError(f"the space {kind} of the environment is not one of Gymnasium's: give it another")
