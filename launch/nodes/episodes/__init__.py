"""Episodes as nodes see them: callbacks, metrics, and episodes of several agents."""
