"""A headless Chromium that is told when to look (Chrome DevTools Protocol, chromedevtools.github.io): for screenshots.

Needs `chromium` and the package websockets. Pages are on loopback; the browser is given no other network.
"""

import base64
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--disable-background-networking",
    "--no-first-run", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class Browser:
    """One page. `width`, `height`: of the window, in pixels."""

    def __init__(self, width: int = 1700, height: int = 1300) -> None:
        program = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        words = [program, *_FLAGS, f"--window-size={width},{height}", f"--user-data-dir={self._folder.name}"]
        self._process = subprocess.Popen([*words, "about:blank"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._numbers = itertools.count(1)
        self._link = self._page()

    def _page(self) -> ClientConnection:
        from urllib.request import urlopen

        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = re.search(rb"ws://(127\.0\.0\.1:\d+)/", line)
            if found:
                break
        else:
            raise RuntimeError("the browser did not start")
        with urlopen(f"http://{found[1].decode()}/json/list", timeout=30) as told:
            (page, *_) = [one for one in json.load(told) if one["type"] == "page"]
        return connect(page["webSocketDebuggerUrl"], max_size=None, open_timeout=30)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events are let pass."""
        number = next(self._numbers)
        self._link.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._link.recv(timeout=60))
            if told.get("id") == number:
                return dict(told.get("result", {}))

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression on the page."""
        told = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return told.get("result", {}).get("value")

    def open(self, url: str, until: str, patience_s: float = 60) -> bool:
        """Go to a page and wait until an expression is true of it; whether it became so."""
        self.ask("Page.navigate", url=url)
        return self.wait(until, patience_s)

    def wait(self, until: str, patience_s: float = 60) -> bool:
        """Wait until an expression is true."""
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            if self.evaluate(f"Boolean({until})"):
                return True
            time.sleep(0.5)
        return False

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.evaluate("document.body.innerText") or "")

    def screenshot(self, target: Path) -> None:
        """A picture of the window."""
        target.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        self._link.close()
        self._process.terminate()
        self._process.wait(30)
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
