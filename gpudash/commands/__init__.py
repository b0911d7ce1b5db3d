"""Run the verbs of the command line, one module a verb."""

COMMAND_LINE = "command line"
"""`set_by` of settings that the command line names."""
