"""What a process needs of its machine: signals, locks, secrets.  Needs no JAX."""
