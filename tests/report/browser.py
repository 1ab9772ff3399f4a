# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that opens a file and tells what happened: its messages, its requests, and how the page lies.

It is spoken to over a pipe in the browser's own protocol, so nothing but the browser itself is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 120.0  # seconds for one answer; far more than any takes, so that a dead browser is an error and not a hang
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--disable-sync", "--mute-audio"),
)


def find_chromium() -> str | None:
    """The path of the browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Browser:
    """A page of a running browser.

    Attributes:
        messages: What was written to the console or the log: errors, warnings, refusals.
        requests: The address of every request that the page made.
    """

    to: int
    back: int
    session: str = ""
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _number: int = 0
    _buffer: bytes = b""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def open(
        self, path: Path, width: int = 1200, height: int = 900, *, dark: bool = False, phone: bool = False
    ) -> None:
        """Open a file and wait until it is complete."""
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.messages.clear()
        self.requests.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, as plain JSON values."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Save a picture of the whole page, or of what is in view."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self.back], [], [], PATIENCE)
            part = os.read(self.back, 2**20) if ready else b""
            if not part:
                raise RuntimeError("the browser does not answer any more")
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded":
                self.messages.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.messages.append(json.dumps(params))
        return message


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """A browser with an empty page, and with a profile that is thrown away afterwards."""
    read_there, to = os.pipe()
    back, write_there = os.pipe()

    def place() -> None:  # the browser reads from descriptor 3 and writes to 4
        high = [os.dup2(fd, 100 + fd) for fd in (read_there, write_there)]
        for number, fd in zip((3, 4), high, strict=True):
            os.dup2(fd, number)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read_there)
        os.close(write_there)
        page = Browser(to, back)
        try:
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Log", "Runtime"):
                page.call(f"{domain}.enable")
            yield page
        finally:
            process.terminate()
            process.wait()
            os.close(to)
            os.close(back)
