"""Benchmarks: Callboard's part of a task, measured in turn with a minimal implementation of the same task."""
