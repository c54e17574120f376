"""The command ``stratalog``: a log in a shell, readable for people and exact for programs.

Nothing of the terminal (Typer, Rich) is loaded before ``main`` runs, and what a command needs of
Rich only when it draws.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave the process with one of the codes in ``cli.exits``."""
    from stratalog.cli.app import app

    app(prog_name="stratalog")


__all__ = ["main"]
