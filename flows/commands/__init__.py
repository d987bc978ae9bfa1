"""The work behind the command line, a module a group of commands."""
