"""Pure folds and statistics over records: no I/O, no clock, no threads."""
