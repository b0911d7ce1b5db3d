"""Not a technique: it exchanges the demonstration's own model for a smaller one."""
