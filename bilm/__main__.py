"""`python -m bilm` is the program `bilm`."""

from bilm.commands.main import main

if __name__ == "__main__":
    main()
