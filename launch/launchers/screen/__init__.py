"""The terminal's view of a run: progress, the part that limits it, and the next commands."""
