"""Arms × seeds: the implementation of `genenv experiment`."""
