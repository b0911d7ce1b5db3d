"""As the script has it: there is nothing to write."""
