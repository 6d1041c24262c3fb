"""`python -m ringcast` is the command `ringcast`."""

from ringcast.cli import main

if __name__ == "__main__":
    main()
