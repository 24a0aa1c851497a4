"""What runs, evaluations and suites have recorded: readers, statistics, figures, tables and pages."""
