"""What the command line does: a documented dataclass of options and a `run` function for each command."""
