"""Commands of the command line, one module each; closely related ones share it. `cli.main` is their table."""
