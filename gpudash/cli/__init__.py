"""The command line: parsing, help, completion and configuration. Each verb is a module."""
