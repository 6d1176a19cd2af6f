"""The command line, called as a function."""

from sddm.cli import main


def told(arguments, capsys):
    """The exit code of a command, what it printed and what it said."""
    capsys.readouterr()
    try:
        main([str(argument) for argument in arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code
    heard = capsys.readouterr()
    return code, heard.out, heard.err


def ends(arguments, capsys):
    """The exit code of a command, and what it said."""
    code, _, said = told(arguments, capsys)
    return code, said
