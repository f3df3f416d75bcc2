"""The numeric core: pure functions of time-major tensors, one concept to a module."""
