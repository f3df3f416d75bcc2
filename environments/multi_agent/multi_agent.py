"""The interface of one environment with several agents."""

import abc
import contextlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import tree

from ...action_masks import MASK, choice_sizes, has_mask
from ...data import Nest
from ...errors import CallboardError
from ...specs import EnvironmentSpec
from ..batches.infos import NO_INFO, Info
from ..batches.tasks import Task, no_task


class AgentStep(NamedTuple):
    """The timestep that one agent receives from a reset or a step."""

    observation: Nest
    """Nest of arrays `[...]`, as in the agent's spec."""
    reward: float = 0.0
    """Reward of the action just taken; 0 after a reset, and where the agent has just appeared."""
    terminated: bool = False
    """Whether that action ended the agent's part in the episode, so that no reward can follow."""
    truncated: bool = False
    """Whether the agent's part ends here for another reason, such as a time limit."""
    info: Info = NO_INFO
    """The info that the library returned for the agent."""


class MultiAgentEnvironment(abc.ABC):
    """One environment with several agents, which act at the same time.

    An agent is *present* if it is a key of what the last `reset` or `step` returned and its part has not ended there.
    Agents may appear and disappear during an episode, also repeatedly; one that is present gets an action in the next
    `step`.  When `is_over`, the next call is `reset`.
    """

    agents: tuple[str, ...]
    """Names of all agents that may appear, in a fixed order."""
    specs: Mapping[str, EnvironmentSpec]
    """Observation and action specs by agent, the same in every episode."""
    is_over: bool = True
    """Whether the episode has ended."""

    @abc.abstractmethod
    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        """Begins an episode.

        Args:
          seed: seed of the environment's generators; None to continue from their state.

        Returns:
          What the agents that are present receive.
        """

    @abc.abstractmethod
    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        """Executes one action of every agent that is present.

        Args:
          actions: by agent, each as in its spec: an int for a `DiscreteArray`, otherwise an array or a nest of them.

        Returns:
          What agents receive, those whose part ends with this step included.  An agent that is no key is absent.
        """

    @property
    def state_size(self) -> int | None:
        """Number of elements of `state`; None if the environment has no state."""
        return None

    def state(self) -> np.ndarray:
        """Returns the environment's state after the last reset or step, float32 `[state_size]`.

        Raises:
          CallboardError: the environment has none.
        """
        raise CallboardError(f"{type(self).__name__} has no state: override 'state' and 'state_size'")

    def set_task(self, task: Task) -> None:
        """Sets the task that the environment takes at its next reset; None for its own task.

        Args:
          task: plain data; what it means is the environment's own.

        Raises:
          CallboardError: the environment has no tasks, or not this one.
        """
        raise no_task(type(self).__name__, "override 'set_task', or leave the task and the curriculum out")

    @property
    def frames_per_second(self) -> float | None:
        """Frame rate at which rendered steps play in real time; None if the environment does not define one."""
        return None

    def render(self) -> np.ndarray:
        """Renders the environment as an image, uint8 `[H, W, 3]`.

        Raises:
          CallboardError: the environment cannot be rendered.
        """
        raise CallboardError(f"{type(self).__name__} has no picture to show: override 'render'")

    @property
    def unwrapped(self) -> Any:
        """The library's own environment, without adapters and wrappers."""
        return self

    def close(self) -> None:  # noqa: B027
        """Releases the environment's resources.  A second call does nothing."""


class MultiAgentWrapper(MultiAgentEnvironment):
    """Forwards all calls to another environment; subclasses override what they change.

    Those that change what agents receive, at resets as in steps, override `received`.

    Args:
      environment: the other environment.
    """

    def __init__(self, environment: MultiAgentEnvironment):
        self._environment = environment
        self.agents = environment.agents
        self.specs = environment.specs

    @property
    def is_over(self) -> bool:  # type: ignore[override]
        return self._environment.is_over

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        return self.received(self._environment.reset(seed))

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        return self.received(self._environment.step(actions))

    def received(self, steps: dict[str, AgentStep]) -> dict[str, AgentStep]:
        """Returns what agents receive in place of the steps of the other environment."""
        return steps

    @property
    def state_size(self) -> int | None:
        return self._environment.state_size

    def state(self) -> np.ndarray:
        return self._environment.state()

    def set_task(self, task: Task) -> None:
        self._environment.set_task(task)

    @property
    def frames_per_second(self) -> float | None:
        return self._environment.frames_per_second

    def render(self) -> np.ndarray:
        return self._environment.render()

    @property
    def unwrapped(self) -> Any:
        return self._environment.unwrapped

    def close(self) -> None:
        self._environment.close()


def state_vector(given: Any, size: int | None) -> np.ndarray:
    """Returns what an environment gives as its state as a new array, float32 `[size]`.

    Raises:
      CallboardError: it is not that many finite numbers.
    """
    with contextlib.suppress(TypeError, ValueError):
        state = np.array(given, np.float32).reshape(-1)
        if state.size == size and np.isfinite(state).all():
            return state
    raise CallboardError(
        f"the environment's state is {' '.join(repr(given).split())[:100]}: it must be {size} finite numbers"
    )


def close_environment(environment: Any) -> None:
    """Closes a library's environment, if it can be closed."""
    close = getattr(environment, "close", None)
    if callable(close):
        close()


def absent_observation(spec: EnvironmentSpec, legal: Literal["all", "first"] = "all") -> Nest:
    """Returns the observation of an absent agent: zeros, except in action masks.

    Args:
      spec: the agent's spec.
      legal: the actions that its `action_mask` allows: all, or only 0 for each choice.
    """

    def leaf(path: tuple[Any, ...], part: Any) -> np.ndarray:
        return np.full(part.shape, MASK in path, part.dtype)

    absent = tree.map_structure_with_path(leaf, spec.observation)
    if legal == "first" and has_mask(spec.observation):
        sizes = choice_sizes(spec.action)
        allowed = np.zeros(sizes.sum(), np.bool_)
        allowed[np.cumsum(sizes) - sizes] = True
        parts = tree.flatten(absent[MASK])
        pieces = np.split(allowed, np.cumsum([part.size for part in parts])[:-1])
        for part, piece in zip(parts, pieces, strict=True):
            part[:] = piece
    return absent
