"""A run: its sources, the session that folds them, the worker's process."""
