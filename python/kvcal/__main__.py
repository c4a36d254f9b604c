"""`kvcal` and `python -m kvcal`: this process becomes the program that lies in the package."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "kvcal")
    os.execv(program, ["kvcal", *sys.argv[1:]])


if __name__ == "__main__":
    main()
