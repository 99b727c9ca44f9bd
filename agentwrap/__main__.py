"""Entry point of `agentwrap` and `python -m agentwrap`."""

import gc
import os
import sys

_COLLECT_EVERY = 20_000
"""Objects between two looks for dead cycles, of which we make few: the default of 700 costs a tenth of a start-up."""


def main() -> None:
    """Run the command line; every failure leaves as one clear error and an exit status."""
    gc.set_threshold(_COLLECT_EVERY)
    from agentwrap.cli.main import run

    status = run()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        sys.exit(status)
    # Taking the interpreter apart takes 10 ms and has nothing left to do: files are closed where they were opened.
    os._exit(status)


if __name__ == "__main__":
    main()
