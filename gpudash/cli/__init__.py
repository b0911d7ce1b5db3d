"""The command line: what may be asked for, and what it says of itself. Each verb is a module."""
