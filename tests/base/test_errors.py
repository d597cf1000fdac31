"""Which errors are the user's, told in one line, and which are bugs, with their traceback."""

from collections.abc import Callable
from typing import Any

import pytest

from pmeta.base.errors import WorkerDiedError, for_user
from pmeta.training.settings import parse_bytes


def raising(error: Exception) -> Callable[[], Any]:
    def function() -> None:
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: parse_bytes("much"), True),  # raised in the package
        (lambda: int("much"), False),  # raised elsewhere
        (raising(ValueError("from a test")), False),
        (raising(FileNotFoundError("no such file")), True),
        (raising(PermissionError("not yours")), True),
        (raising(ConnectionError("a bug")), False),
        (raising(WorkerDiedError("worker 1")), True),
        (raising(KeyError("bug")), False),
    ],
)
def test_for_user(function: Callable[[], Any], expected: bool) -> None:
    with pytest.raises(Exception, match=r".+") as caught:
        function()
    assert for_user(caught.value) == expected


def test_an_error_that_was_never_raised_is_nobodys() -> None:
    assert not for_user(ValueError("made, not raised"))
