"""Entry point of `agentwrap` and `python -m agentwrap`."""

import gc
import os
import sys

_COLLECT_EVERY = 20_000
"""Objects between two looks for dead cycles, of which we make few: the default of 700 costs a tenth of a start-up."""


def _occupy_standard_descriptors() -> None:
    """Put /dev/null where 0, 1 or 2 was closed, so that no file or socket of ours gets that number.

    It is close-on-exec: a command that is wrapped finds closed what was closed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest free number: this one (open(2))


def main() -> None:
    """Run the command line; every failure leaves as one clear error and an exit status."""
    _occupy_standard_descriptors()
    gc.set_threshold(_COLLECT_EVERY)
    from agentwrap.cli.main import run

    status = run()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        pass  # told where it could be; the status of a wrapped command is not ours to change
    # Taking the interpreter apart takes 10 ms and has nothing left to do: files are closed where they were opened.
    os._exit(status)


if __name__ == "__main__":
    main()
