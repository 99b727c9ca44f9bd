"""`python patient_sender.py ARGUMENTS`: agentwrap whose sender of spans has minutes where it has seconds.

What is told of here is what is sent, and a machine may take as long over it as it likes.
"""

import os
import subprocess
import sys
from typing import Any

PATIENT = (sys.executable, __file__)
PATIENCE_S = 300.0


def main() -> None:
    from agentwrap.cli import otlp
    from agentwrap.cli.main import run

    otlp.GRACE_S = otlp._LIVE_TIMEOUT_S = otlp._LAST_TIMEOUT_S = PATIENCE_S
    started = subprocess.Popen

    def start(words: Any, **more: Any) -> Any:
        ours = words[1:3] == ["-m", "agentwrap"]
        return started([*PATIENT, *words[3:]] if ours else words, **more)

    subprocess.Popen = start  # type: ignore[assignment, misc]
    os._exit(run())


if __name__ == "__main__":
    main()
