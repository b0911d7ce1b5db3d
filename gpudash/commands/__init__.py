"""The command line: one module a verb, and what they share."""

COMMAND_LINE = "command line"
"""Who has set what a command names itself."""
