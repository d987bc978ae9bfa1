"""A headless Chromium that a test drives over its debugging protocol; no further package is needed.

Every console error, uncaught exception and request is kept, so that a test can say that there were none.
"""

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HOW = "no Chromium or Chrome on the PATH: apt-get install chromium, or name one in REASONER_CHROMIUM"
KEYS = {
    "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Home": 36, "End": 35, "PageDown": 34, "PageUp": 33,
    "Tab": 9,
}  # fmt: skip


def find_chromium() -> str | None:
    """The path of a browser, or None."""
    named = os.environ.get("REASONER_CHROMIUM")
    return next((path for name in ((named,) if named else NAMES) if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page. A context manager."""

    def __init__(
        self, program: str, *, width: int = 1440, height: int = 900, patience: float = 120.0
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="reasoner-chromium-")
        self._patience = patience
        self.errors: list[str] = []
        """Uncaught exceptions, console errors and refused content."""
        self.requests: list[str] = []
        """Addresses that the page asked for."""
        self._ids = itertools.count(1)
        argv = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-extensions", "--mute-audio", "--hide-scrollbars=false",
            f"--window-size={width},{height}", f"--user-data-dir={self._folder}", "--remote-debugging-port=0",
            "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            self._socket = connect(self._page(), max_size=None, open_timeout=patience)
        except BaseException:
            self.close()
            raise
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _page(self) -> str:
        """The address of the first page, once the browser has written its port."""
        port, deadline = Path(self._folder) / "DevToolsActivePort", time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the browser ended with status {self._process.returncode}")
            if port.is_file() and (lines := port.read_text().split()):
                with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=30) as answer:
                    pages = [p for p in json.load(answer) if p["type"] == "page"]
                if pages:
                    return str(pages[0]["webSocketDebuggerUrl"])
            time.sleep(0.1)
        raise TimeoutError(f"the browser did not start within {self._patience:.0f} s")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol. Raises RuntimeError where the browser refuses it."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=self._patience))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif message.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(str([a.get("value") for a in params["args"]]))
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path: Path, fragment: str = "") -> float:
        """Load a report and wait until its list stands; returns the seconds that it took."""
        self.call("Page.navigate", url="about:blank")
        started = time.perf_counter()
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        self.wait("document.documentElement?.dataset.ready === 'true'")
        return time.perf_counter() - started

    def evaluate(self, expression: str) -> Any:
        """The value of an expression or a promise. Raises RuntimeError where it throws."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true. Raises TimeoutError, with the expression."""
        deadline = time.monotonic() + self._patience
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"still false after {self._patience:.0f} s: {expression}")
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """A key as a person presses it: a letter, a sign, or a name in KEYS."""
        code = KEYS.get(key)
        text = {} if code and key != "Enter" else {"text": "\r" if key == "Enter" else key}
        named = {"key": key, "windowsVirtualKeyCode": code or ord(key.upper()), "code": key if code else ""}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def insert(self, text: str) -> None:
        """Text into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """A real click in the middle of an element, which is scrolled to first."""
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1
            )

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """What the system asks for: `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """End the browser and forget its folder."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
