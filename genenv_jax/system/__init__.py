"""What a process needs of its machine: signals, locks, secrets, a cache.  Needs no JAX."""
