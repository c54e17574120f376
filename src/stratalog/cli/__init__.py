"""The command ``stratalog``: a log in a shell, readable for people and exact for programs.

Nothing of the terminal (Typer, Rich) is loaded before ``main`` runs, and what a command needs of
Rich only when it draws.
"""


def main() -> None:
    """Run the command line and leave the process with one of the codes in ``cli.exits``."""
    from stratalog.cli.app import app
    from stratalog.cli.parameters import OWN_PROCESS

    app(prog_name="stratalog", obj=OWN_PROCESS)
