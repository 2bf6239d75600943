"""`python -m dejaqueue`: the same as the command `dejaq`.

Room: cli.
"""

from dejaqueue.cli.main import main

if __name__ == "__main__":
    main()
