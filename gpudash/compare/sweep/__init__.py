"""A sweep: its grid, file, table, picture and presets."""
