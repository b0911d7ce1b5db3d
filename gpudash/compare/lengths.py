"""How long comparisons are where nobody says; `--help` tells it without importing them."""

PAIRS = 40
"""Pairs of blocks of an A/B, at most."""
ROUNDS = 5
"""Blocks of each setting of a sweep."""
MIN_STEPS = 10
"""Steps of each of these."""
