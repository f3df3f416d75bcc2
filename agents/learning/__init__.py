"""Shared parts of learners: gradients and their steps, rollouts, normalization, weights by name."""
