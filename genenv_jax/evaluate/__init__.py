"""Scoring models on benchmarks: who answers, how episodes are played, and what the numbers say."""
