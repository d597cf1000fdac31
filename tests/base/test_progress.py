"""Progress where there is no terminal."""

import pytest

from pmeta.base import progress as module
from pmeta.base.progress import progress


def test_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, *(4.0 * i for i in range(1000))])
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    assert list(progress(range(8), "adapting")) == list(range(8))
    assert capsys.readouterr().err == (
        "adapting: 3 of 8 (37 %), about 20 s left\nadapting: 6 of 8 (75 %), about 10 s left\n"
    )


def test_nothing_of_what_is_short_or_not_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(range(3), "adapting")) == [0, 1, 2]
    assert list(progress([], "adapting")) == []
    assert list(progress(range(3), "adapting", shown=False)) == [0, 1, 2]
    assert capsys.readouterr().err == ""
