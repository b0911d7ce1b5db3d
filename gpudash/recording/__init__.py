"""Files a run leaves behind: CSV rows and their provenance."""
