"""`python -m txlog`: the command line."""

from txlog.tools.cli import main

if __name__ == "__main__":
    main()
