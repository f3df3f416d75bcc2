"""Policies of the agents: compiled or computed with NumPy, over one batch or several, and their checks."""
