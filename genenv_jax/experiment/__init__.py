"""Arms × seeds: what a suite runs, and how.  `genenv experiment` does it and then reports."""
