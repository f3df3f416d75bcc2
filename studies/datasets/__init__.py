"""What is done with recorded data sets: their numbers, plots and videos."""
