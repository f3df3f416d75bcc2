"""The definition of a run: its settings, their sources and checks, policies, limits and curricula."""
