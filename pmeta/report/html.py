"""HTML and SVG elements as values; all text is escaped, so that a run's name cannot become markup."""

import json
from collections.abc import Iterable
from html import escape
from typing import Any

VOID = {"br", "img", "input", "meta"}


class Markup(str):
    """Text that is markup already; any other string is escaped where it is put into an element."""


Child = str | None | Iterable["Child"]


def el(name: str, /, *children: Child, **attributes: Any) -> Markup:
    """An element. `class_` is class, `font_size` is font-size; an attribute that is None is left out.

    >>> el("p", "a < b", el("b", "!"), class_="x")
    '<p class="x">a &lt; b<b>!</b></p>'
    """
    given = "".join(
        f' {_name(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """Children one after the other, however they are nested.

    >>> join(["1 < 2", [el("br"), None]])
    '1 &lt; 2<br>'
    """
    if children is None:
        return Markup("")
    if isinstance(children, str):
        return children if isinstance(children, Markup) else Markup(escape(children))
    return Markup("".join(join(child) for child in children))


def data(value: Any, **attributes: Any) -> Markup:
    """JSON for scripts to read, which cannot end its element early.

    >>> data("</script>", id="x")
    '<script type="application/json" id="x">"\\\\u003c/script>"</script>'
    """
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return el("script", Markup(text), type="application/json", **attributes)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: Any) -> str:
    return escape(
        f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    )
