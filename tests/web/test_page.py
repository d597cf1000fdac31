"""`pmeta page`: one small file with everything inside, or a clear word why not."""

import re
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pmeta import zoo
from pmeta.cli import main
from pmeta.cli.device.page import server
from pmeta.web.page import SCRIPT, WORKER, bundle

LARGE = {"miniimagenet-4conv64": 850_000}
"""Pages of models with more weights; docs/guide/browser.md says how much they take."""


@pytest.mark.parametrize("name", zoo.names())
def test_a_page_is_smaller_than_500_kb_and_names_no_address(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "teach.html"
    assert main(["page", name, "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGE.get(name, 500_000)
    assert "open it in a browser" in capsys.readouterr().out
    assert "default-src 'none'" in text
    assert not re.findall(r"\{\{\w+\}\}", text)
    assert not re.findall(r"https?:", text)


@pytest.mark.parametrize("names", [WORKER, SCRIPT])
def test_modules_become_one_script(names: tuple[str, ...]) -> None:
    assert not re.findall(r"^(?:import|export)\b", bundle(names), re.M)


def test_what_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photo.pmeta").write_bytes(b"no model")
    assert main(["page", str(tmp_path / "photo.pmeta"), "-o", str(tmp_path / "x.html")]) == 2
    assert "photo.pmeta" in capsys.readouterr().err
    assert main(["page", "miniimagenet-4conv", "--classes", "-1"]) == 2
    assert "--classes is a number of classes, got -1" in capsys.readouterr().err
    assert main(["page", "miniimagenet-4conv", "--classes", "50"]) == 2
    assert "--classes must be at most 20 for miniimagenet-4conv, got 50" in capsys.readouterr().err
    assert main(["page", "har-conv1d", "-o", str(tmp_path / "x.html")]) == 2
    assert "har-conv1d reads recordings: use pmeta adapt" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_the_server_has_this_page_for_this_machine_and_nothing_else() -> None:
    with server(b"<p>hello") as running:
        host, port = running.server_address[:2]
        assert host == "127.0.0.1"
        threading.Thread(target=running.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert answer.read() == b"<p>hello"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/passwd")
        running.shutdown()
