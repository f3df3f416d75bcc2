"""Messages between nodes and the coordinator: reports, commands, health and budgets of steps."""
