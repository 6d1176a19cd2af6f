"""The command line: argument parsing only."""

from __future__ import annotations

from collections.abc import Sequence

import tyro

from sddm.experiments import demo


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `sddm COMMAND ...`."""
    command = tyro.extras.SubcommandApp()
    command.command(name="demo")(_demo)
    command.cli(args=arguments, prog="sddm", description="Diffusion models of categorical data.")


def _demo(config: tyro.conf.OmitArgPrefixes[demo.DemoConfig]) -> None:
    """Train a small model of a 2-D density, sample it, measure it and draw it: two minutes on a laptop."""
    demo.run(config)
