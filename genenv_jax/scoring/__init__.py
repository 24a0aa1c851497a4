"""Scores and inspects the models' texts while the devices keep sampling: threads, workers, outcomes."""
