"""The short help of a command with many options: those that people change, on one screen."""

import ast
import dataclasses
import inspect
import textwrap
import typing
from typing import Any

WIDTH = 96


def short_help(default: Any, names: tuple[str, ...], usage: str) -> str:
    """A line or two for each of these settings, with the value that it has unless told."""
    said, hints = docstrings(type(default)), typing.get_type_hints(type(default))
    lines = [usage, "", *textwrap.wrap(" ".join((type(default).__doc__ or "").split()), WIDTH), ""]
    for name in names:
        value = getattr(default, name)
        shown = f"--{name.replace('_', '-')}" + ("" if value in ("", None) else f" {value}")
        first, _, _ = said[name].partition(". ")
        choices = typing.get_args(hints[name])
        of = f" One of {', '.join(choices)}." if isinstance(choices and choices[0], str) else ""
        text = textwrap.wrap(first.rstrip(".") + "." + of, WIDTH - 28)
        head = f"  {shown:<24}"
        lines += [f"{head}  {text[0]}"] if len(head) <= 26 else [head, f"{'':28}{text[0]}"]
        lines += [f"{'':28}{line}" for line in text[1:]]
    return "\n".join([*lines, "", "--help-all shows all options."])


def docstrings(config: type) -> dict[str, str]:
    """What stands below each field of a dataclass, the nearest class first."""
    found: dict[str, str] = {}
    for owner in config.__mro__:
        if not dataclasses.is_dataclass(owner):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                name, value = field.target, text.value
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                    found.setdefault(name.id, " ".join(str(value.value).split()))
    return found
