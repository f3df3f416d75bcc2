"""Networks of policy and value together, shared or separate, for each kind of action."""
