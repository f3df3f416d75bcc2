"""What a run shows on the terminal: progress, the part that limits it, and what to run next."""
