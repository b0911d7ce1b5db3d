"""Compare two runs that were recorded at different times, setting by setting."""
