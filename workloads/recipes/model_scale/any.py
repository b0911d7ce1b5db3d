"""Not a technique: it sets how large the model of the demonstration is."""
