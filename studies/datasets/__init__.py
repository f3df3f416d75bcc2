"""Recorded data sets: their numbers, plots and videos."""
