"""The agent of an experiment."""

import dataclasses

from ....agents import Agent


@dataclasses.dataclass(frozen=True)
class AgentPart:
    """The agent of an experiment.

    Attributes:
      agent: the agent and its hyperparameters; or its class or its name, with default hyperparameters.
    """

    agent: Agent
