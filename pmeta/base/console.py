"""The console of rich, on which names are shown and not obeyed."""

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment
from rich.text import Text

from pmeta.base.terminal import printable


class Console(console.Console):
    """That of rich, which passes control characters in texts on to the terminal."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text, lines=True), **how)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text, lines=True))
