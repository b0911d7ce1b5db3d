"""A/B comparisons and sweeps: blocks, statistics, verdicts."""
