"""The command `pmeta page MODEL`: one HTML file in which anybody teaches the model."""

import webbrowser
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import tyro

from pmeta import zoo
from pmeta.base.files import write_atomically
from pmeta.cli.device.learn import open_model, run_for_more
from pmeta.device.support import way_to_more
from pmeta.web.page import page

MANY = 10**6


@dataclass(frozen=True)
class PageConfig:
    """Write one HTML page in which a model is taught with pictures, by file, camera, drag and drop
    or paste. All of it runs in the browser; nothing is sent anywhere."""

    model: tyro.conf.Positional[str]
    """Name of a model that `pmeta zoo` lists, or file that `pmeta export` or `pmeta adapt --save`
    wrote."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])] = "teach.html"
    """The page to write; an old file there is replaced."""
    classes: int = 0
    """Classes that a model of the zoo is to tell apart; 0: as many as it can."""
    title: str = "Teach it"
    """The page's heading."""
    open: bool = False
    """Serve the page on 127.0.0.1 and open the browser, until Ctrl-C. (On a page from the disk,
    some browsers refuse the camera.)"""


def main(argv: list[str]) -> None:
    """Run the command."""
    config = tyro.cli(PageConfig, args=argv, prog="pmeta page", description=PageConfig.__doc__)
    if config.classes < 0:
        raise ValueError(f"--classes is a number of classes, got {config.classes}.")
    named = config.model in (*zoo.names(), *zoo.recognisers())
    model = open_model(config.model)  # says what is wrong with it
    path = zoo.find(config.model, config.classes or MANY) if named else Path(config.model)
    most = open_model(str(path)).outputs
    if config.classes > most:
        raise ValueError(
            f"--classes must be at most {most} for {config.model}, got {config.classes}: "
            f"{way_to_more(run_for_more(config.model, model), config.classes)}, and give that."
        )
    text = page(path.read_bytes(), path.stem, config.title).encode()
    write_atomically(Path(config.out), text)
    print(f"{config.out}: {len(text) / 1000:,.0f} kB, open it in a browser")
    if config.open:
        serve(text)


def server(text: bytes) -> ThreadingHTTPServer:
    """A server of this one page, on a free port of this machine alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(text) if found else 0))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if found:
                self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def serve(text: bytes) -> None:
    """Until Ctrl-C."""
    with server(text) as running:
        url = f"http://127.0.0.1:{running.server_address[1]}/"
        print(f"{url} (Ctrl-C ends it)", flush=True)
        webbrowser.open(url)
        running.serve_forever()
