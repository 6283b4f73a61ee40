"""The command line as `python -m toolcrib`: for an environment whose programs are not on the PATH."""

from .cli.entry import main

if __name__ == "__main__":
    main()
