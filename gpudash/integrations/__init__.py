"""Callbacks for frameworks that own the training loop. They declare its steps."""
