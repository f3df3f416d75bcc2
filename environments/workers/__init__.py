"""Environments in a worker process, which may run under another interpreter."""
