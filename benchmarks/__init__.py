"""Benchmarks: our part of a piece of work beside the same work done bare, in turn."""
