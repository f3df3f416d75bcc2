"""What a run is: its settings, their sources and checks, policies, limits and curricula."""
