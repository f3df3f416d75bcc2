"""Losses and returns: pure functions of time-major tensors, one concept per module."""
