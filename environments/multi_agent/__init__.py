"""Environments with several agents: adapters, groups, padding, and batches for each policy."""
