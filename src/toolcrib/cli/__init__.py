"""The command line. `main` is all that loads at first; each command's module loads when the command runs."""
