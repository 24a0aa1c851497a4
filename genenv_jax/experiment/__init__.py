"""Arms × seeds: what `genenv experiment` is made of."""
