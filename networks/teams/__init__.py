"""Networks of several agents that learn as one: team networks and the mixing of their values."""
