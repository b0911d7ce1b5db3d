"""Two runs that were recorded at different times, compared setting by setting."""
