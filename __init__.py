"""Callboard: training reinforcement-learning agents with many actors and few learners."""

__version__ = "0.2.0"
