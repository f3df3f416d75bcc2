"""Checks of an environment: values, bounds, masks, and a trial before a run starts."""
