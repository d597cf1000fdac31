"""A page in headless Chromium, by its debugging protocol over a pipe: what went wrong, what it shows, and a picture of it."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
PATIENCE = 120
"""Seconds after which a browser that says nothing is given up."""
BROKEN = (
    "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src.slice(0, 80))"
)


def find() -> str | None:
    """Where Chromium is, if it is there."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One tab. Every command is answered in order; events come in between and are kept."""

    def __init__(self, to: int, back: int):
        self.to, self.back, self.rest = to, back, b""
        self.numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol; returns its result."""
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            assert select.select([self.back], [], [], PATIENCE)[0], (
                f"Chromium has said nothing for {PATIENCE} seconds"
            )
            more = os.read(self.back, 1 << 20)
            assert more, "Chromium has ended"
            self.rest += more
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def open(self, path: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of this width, and wait until all of it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(self._read())
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def problems(self) -> list[str]:
        """Errors of scripts, messages in the console, requests for anything but the page itself, pictures without pixels."""
        found = []
        for event in self.events:
            kind, params = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                found.append(
                    f"exception: {params['exceptionDetails'].get('exception', {}).get('description')}"
                )
            elif kind == "Runtime.consoleAPICalled":
                found.append(f"console: {params['args']}")
            elif kind == "Log.entryAdded":
                found.append(f"log: {params['entry']['text']}")
            elif kind == "Network.loadingFailed":
                found.append(f"failed: {params['errorText']}")
            elif kind == "Network.requestWillBeSent" and params["type"] != "Document":
                url = params["request"]["url"]
                found += [] if url.startswith("data:") else [f"request: {url}"]
        return found + [f"broken picture: {source}" for source in self.evaluate(BROKEN)]

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write the page, or only what the window shows, as PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def chromium(binary: str) -> Iterator[Page]:
    """Chromium with an empty profile and one tab, ended at the end."""
    (for_it, to), (back, from_it) = os.pipe(), os.pipe()
    for_it, from_it = _above_4(for_it), _above_4(from_it)

    def wire() -> None:  # it reads commands at 3 and answers at 4
        os.dup2(for_it, 3)
        os.dup2(from_it, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [binary, *FLAGS, f"--user-data-dir={profile}"]
        with subprocess.Popen(
            command, pass_fds=(3, 4), preexec_fn=wire, stderr=subprocess.DEVNULL
        ) as process:
            os.close(for_it)
            os.close(from_it)
            try:
                yield Page(to, back)
            finally:
                process.terminate()
                process.wait()
                os.close(to)
                os.close(back)


def _above_4(fd: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved
