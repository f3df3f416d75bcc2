"""The agent protocol, acting, learning, losses, and one module for each algorithm."""

from .agent import Agent, Learner, Mode, Policy
from .registry import agent_class

__all__ = ["Agent", "Learner", "Mode", "Policy", "agent_class"]
