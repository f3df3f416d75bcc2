"""What nodes and the coordinator send each other: reports, commands, health and budgets of steps."""
