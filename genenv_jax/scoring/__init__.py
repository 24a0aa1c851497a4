"""Scoring and inspecting what models wrote, while the devices go on: threads, worker processes, outcomes."""
