"""Callbacks for frameworks that own the loop: they say where its steps begin and end."""
