"""Checks of what agents of an environment receive, as of environments with one agent."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tree

from ...action_masks import has_mask, illegal_rows
from ...data import Nest
from ...errors import CallboardError, unknown
from ...specs import EnvironmentSpec
from ..adapters.gymnasium_checks import check_flags
from ..batches.checked_observations import ObservationBounds
from ..batches.encoding import encode_one, encoding_of
from ..batches.observation_values import check_finite_observation
from .agent_rewards import finite_reward
from .multi_agent import AgentStep, MultiAgentEnvironment, MultiAgentWrapper

_logger = logging.getLogger(__name__)


class AgentBounds:
    """The bounds of agents' observations, which environments of one name share: each part is reported once.

    Args:
      warn: see `ObservationBounds`.
    """

    def __init__(self, warn: Callable[[str], object] = _logger.warning):
        self._warn = warn
        self._found: dict[str, ObservationBounds] = {}

    def of(self, name: str, agent: str, spec: EnvironmentSpec) -> ObservationBounds:
        """Returns those of an agent of the environment `name`."""
        if agent not in self._found:
            what = f"environment {f'{name}, agent {agent}'!r}"
            self._found[agent] = ObservationBounds(spec.observation, what, self._warn)
        return self._found[agent]


class CheckedAgents(MultiAgentWrapper):
    """An environment whose every `AgentStep` is checked before anything else sees it.

    Adapters refuse what they cannot convert, with the same functions; everything else is refused here, whatever the
    environment's interface is: agents that it does not list, observations that do not fit their spec or are not finite,
    action masks of agents that act next and allow nothing, rewards that are no finite numbers, and ends that are not
    true or false.  Values outside of bounds are reported.

    Args:
      environment: the environment.
      name: its name, for messages.
      bounds: the bounds of its agents.
    """

    def __init__(self, environment: MultiAgentEnvironment, name: str, bounds: AgentBounds | None = None):
        super().__init__(environment)
        self._name = name
        bounds = bounds or AgentBounds()
        self._bounds = {agent: bounds.of(name, agent, spec) for agent, spec in self.specs.items()}
        # What has another encoding was converted by it.
        self._encodings = {
            agent: encoding_of(spec).observation for agent, spec in self.specs.items() if spec.encoding is None
        }

    def reset(self, seed: int | None = None) -> dict[str, AgentStep]:
        steps = self._checked("reset", self._environment.reset(seed))
        if self.is_over:
            # Its next step would be another reset, and so on without an end.
            raise CallboardError(f"'reset' of {self._name} leaves is_over True: let it be False after a reset")
        return steps

    def step(self, actions: Mapping[str, Nest]) -> dict[str, AgentStep]:
        return self._checked("step", self._environment.step(actions))

    def _checked(self, method: str, steps: Any) -> dict[str, AgentStep]:
        if not isinstance(steps, Mapping):
            raise CallboardError(f"{method!r} of {self._name} must return a dictionary of an AgentStep by agent")
        is_over = self.is_over
        if not isinstance(is_over, bool | np.bool_):
            raise CallboardError(f"{method!r} of {self._name} leaves is_over {is_over!r}: it must be True or False")
        for agent in steps:
            if agent not in self.specs:
                raise unknown(f"agent in what {method!r} of {self._name} gives:", str(agent), self.agents)
        return {agent: self._checked_step(method, agent, step, is_over) for agent, step in steps.items()}

    def _checked_step(self, method: str, agent: str, step: Any, is_over: bool) -> AgentStep:
        name = self._name
        try:
            observation, reward, terminated, truncated, info = step
        except (TypeError, ValueError) as error:
            raise CallboardError(f"{method!r} of {name} gives agent {agent!r} {step!r:.100}, no AgentStep") from error
        if terminated is not False or truncated is not False:
            check_flags(f"{method!r} of {name} gives agent {agent!r}", terminated, truncated)
        if not isinstance(info, Mapping):
            raise CallboardError(f"{method!r} of {name} gives agent {agent!r} the info {info!r:.100}, no dictionary")
        reward = finite_reward(name, agent, reward, method)
        if agent in self._encodings:
            observation = encoded_observation(name, agent, self._encodings[agent], observation)
        try:
            check_finite_observation(observation)
        except CallboardError as error:
            raise CallboardError(f"agent {agent!r} of {name}: {error}") from error
        bounds, spec = self._bounds[agent], self.specs[agent]
        masked = has_mask(spec.observation)
        if masked or bounds.exist:
            batch = tree.map_structure(lambda leaf: leaf[np.newaxis], observation)
            bounds.look(batch)
            if masked and self._is_illegal(spec, batch, agent) and not (terminated or truncated or is_over):
                raise CallboardError(
                    f"agent {agent!r} of {name} has an action mask that allows nothing: let its part end, or allow an "
                    "action that does nothing"
                )
        return AgentStep(observation, reward, bool(terminated), bool(truncated), info)

    def _is_illegal(self, spec: EnvironmentSpec, batch: Nest, agent: str) -> bool:
        try:
            return bool(illegal_rows(spec, batch).size)
        except CallboardError as error:
            raise CallboardError(f"agent {agent!r} of {self._name}: {error}") from error


def encoded_observation(name: str, agent: str, encoding: Nest, observation: Any) -> Nest:
    """Returns the observation of an agent of the environment `name` as a nest of new arrays `[...]`.

    Raises:
      CallboardError: it does not fit its space, see `encoding.stack`.
    """
    try:
        return encode_one(encoding, observation)
    except CallboardError as error:
        raise CallboardError(f"agent {agent!r} of {name}: {error}") from error
