"""How long comparisons are where nobody says; `--help` tells it without importing them."""

PAIRS = 40
"""Pairs of blocks of an A/B, at most."""
FEWEST_PAIRS = 4
"""With fewer, an interval is too wild to be shown, and an A/B that is ended has no verdict."""
ROUNDS = 5
"""Blocks of each setting of a sweep."""
MIN_STEPS = 10
"""Steps of each of these."""
