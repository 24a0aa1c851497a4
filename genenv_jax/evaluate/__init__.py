"""Evaluating models on benchmarks: held-out scores with intervals, simulator output, result files."""
