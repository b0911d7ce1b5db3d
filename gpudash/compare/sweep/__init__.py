"""Run a sweep: its grid, file, table, plot and presets."""
