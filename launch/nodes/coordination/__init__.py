"""The coordinator: counters, limits, metrics, hooks, and the state that all nodes follow."""
