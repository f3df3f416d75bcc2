"""Adapters: one module or a few for each library of environments."""
