"""`python -m txlog`: the command line."""

from txlog.cli import main

if __name__ == "__main__":
    main()
