"""What gpudash does inside a script of the user's: find steps, measure them, move levers."""
