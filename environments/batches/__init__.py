"""Batches of environments: timesteps, encodings of observations, seeds, tasks, infos and episode metrics."""
