"""The commands, a folder for each subject. ``cli.app`` puts them together."""
