"""What the charts draw, prepared: pure functions and frozen views, which a report uses too."""
