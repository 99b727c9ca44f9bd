"""Entry point of `agentwrap` and `python -m agentwrap`."""

import sys


def main() -> None:
    """Run the command line; every failure leaves as one clear error and an exit status."""
    from agentwrap.cli.main import run

    sys.exit(run())


if __name__ == "__main__":
    main()
