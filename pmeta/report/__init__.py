"""One HTML page of runs and results."""
