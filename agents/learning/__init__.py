"""What learns, shared by agents: gradients and their steps, rollouts, normalization, weights by name."""
