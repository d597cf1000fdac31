"""A page in headless Chromium: what went wrong, what it shows, and a picture of it."""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
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

    def open(
        self, path: Path | str, width: int = 1200, height: int = 900, dark: bool = False
    ) -> None:
        """Show a file or an address in a window of this width, and wait until all of it is
        loaded."""
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
        url = path if isinstance(path, str) else path.resolve().as_uri()
        self.call("Page.navigate", url=url)
        self.event("Page.loadEventFired")
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def event(self, method: str) -> dict[str, Any]:
        """The parameters of the first event of this name that was not taken yet."""
        while True:
            for i, event in enumerate(self.events):
                if event["method"] == method:
                    return self.events.pop(i)["params"]
            self.events.append(self._read())

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element, which must be there to be pressed."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{place} && !{place}.disabled && !{place}.closest('[inert]')")
        x, y, hit = self.evaluate(
            f"""(() => {{ const e = {place}; e.scrollIntoView({{block: "center"}});
            const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
            return [x, y, e.contains(document.elementFromPoint(x, y))]; }})()"""
        )
        assert hit, f"{selector} is not to be seen"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def choose(self, selector: str, files: Sequence[Path]) -> None:
        """Press a button that asks for files, and choose these."""
        self.call("Page.setInterceptFileChooserDialog", enabled=True)
        self.click(selector)
        node = self.event("Page.fileChooserOpened")["backendNodeId"]
        paths = [str(path.resolve()) for path in files]
        self.call("DOM.setFileInputFiles", files=paths, backendNodeId=node)

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Until an expression of the page is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"after {seconds} s still not: {condition}"
            time.sleep(0.05)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def problems(self) -> list[str]:
        """Errors of scripts, messages in the console, requests for anything but the page itself,
        pictures without pixels."""
        found = []
        for event in self.events:
            kind, params = event["method"], event["params"]
            if kind == "Runtime.exceptionThrown":
                found.append(
                    "exception: "
                    f"{params['exceptionDetails'].get('exception', {}).get('description')}"
                )
            elif kind == "Runtime.consoleAPICalled":
                found.append(f"console: {params['args']}")
            elif kind == "Log.entryAdded":
                found.append(f"log: {params['entry']['text']}")
            elif kind == "Network.loadingFailed":
                found.append(f"failed: {params['errorText']}")
            elif kind == "Network.requestWillBeSent" and params["type"] != "Document":
                url = params["request"]["url"]
                found += [] if url.startswith(("data:", "blob:")) else [f"request: {url}"]
        return found + [f"broken picture: {source}" for source in self.evaluate(BROKEN)]

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write the page, or only what the window shows, as PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def chromium(binary: str, *flags: str) -> Iterator[Page]:
    """Chromium with an empty profile and one tab, ended at the end."""
    (for_it, to), (back, from_it) = os.pipe(), os.pipe()
    for_it, from_it = _above_4(for_it), _above_4(from_it)

    def wire() -> None:  # it reads commands at 3 and answers at 4
        os.dup2(for_it, 3)
        os.dup2(from_it, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [binary, *FLAGS, *flags, f"--user-data-dir={profile}"]
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
