"""Arms × seeds: what a suite runs, and how.  `genenv experiment` runs it and then reports."""
