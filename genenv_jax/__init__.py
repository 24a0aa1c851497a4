"""GenEnv (arXiv 2512.19682) in JAX: an agent and the simulator that writes its tasks, trained together."""
