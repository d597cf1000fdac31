"""Whether JSON is what it should be: shapes as data, and an error that says what is wrong where."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

MOST = 1e15
"""No figure of a run is larger, and larger ones cannot be drawn."""


class Plain(NamedTuple):
    """A number, a count or a text; perhaps null."""

    words: str
    null: bool = False

    def fits(self, value: Any) -> bool:
        if value is None:
            return self.null
        if self.words == "a text":
            return isinstance(value, str)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not abs(value) <= MOST:  # nor if it is not a number
            return False
        return self.words == "a number" or (isinstance(value, int) and value >= 0)


NUMBER, COUNT, TEXT = Plain("a number"), Plain("a count"), Plain("a text")
MAYBE_NUMBER, MAYBE_COUNT, MAYBE_TEXT = (
    Plain(kind.words, null=True) for kind in (NUMBER, COUNT, TEXT)
)
Shape = Plain | list[Any] | dict[str, Any]
"""What a value must be: plain, a list of one shape, or an object whose "key?" may be missing."""


def check(where: str, value: Any, shape: Shape, at: str = "") -> None:
    """Raise ValueError unless the value has the shape.

    >>> check("x.json", {"tasks": 4, "alpha": [[0.1, "a"]]}, {"tasks": COUNT, "alpha": [[NUMBER]]})
    Traceback (most recent call last):
    ValueError: x.json should have a number at alpha[0][1], and has 'a': it is broken, or not ours.
    """
    if isinstance(shape, Plain):
        if not shape.fits(value):
            raise _wrong(where, shape.words, at, value)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(where, "a list", at, value)
        for i, item in enumerate(value):
            check(where, item, shape[0], f"{at}[{i}]")
    else:
        _check_object(where, value, shape, at)


def _check_object(where: str, value: Any, shape: dict[str, Any], at: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", at, value)
    for key, inner in shape.items():
        name = key.rstrip("?")
        if name in value:
            check(where, value[name], inner, f"{at}.{name}".lstrip("."))
        elif not key.endswith("?"):
            raise ValueError(
                f"{where} has no {f'{at}.{name}'.lstrip('.')}: it is broken, or not ours."
            )


def _wrong(where: str, words: str, at: str, value: Any) -> ValueError:
    place = f" at {at}" if at else ""
    given = f"{value!s:.40}"
    return ValueError(
        f"{where} should have {words}{place}, and has {given!r}: it is broken, or not ours."
    )


def check_settings(where: str, settings: dict[str, Any], kind: type) -> None:
    """Raise ValueError where a setting has a value that its field cannot have."""
    for field in dataclasses.fields(kind):
        if field.name in settings and not _allowed(settings[field.name], field.type):
            given = f"{settings[field.name]!s:.40}"
            raise ValueError(
                f"{where} gives {field.name} the value {given!r}, which it cannot have: "
                "it is broken, or not ours."
            )


def _allowed(value: Any, kind: Any) -> bool:
    """Whether a value is of a type: a Literal, a union, or a class; an int will do for a float."""
    if get_origin(kind) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(kind))
    choices: Sequence[Any] = get_args(kind) or (kind,)
    if isinstance(value, int | float) and not abs(value) <= MOST:
        return False
    return (
        type(value) in choices
        or (type(value) is int and float in choices)
        or (value is None and type(None) in choices)
    )
