"""As the training has it: there is nothing to write."""
