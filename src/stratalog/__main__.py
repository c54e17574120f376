"""``python -m stratalog`` is the command ``stratalog``."""

from stratalog.cli import main

if __name__ == "__main__":
    main()
