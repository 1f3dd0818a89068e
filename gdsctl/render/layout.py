"""Lines and tables that fit the terminal without breaking a word: an address, a path or a command stays whole to be copied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gdsctl.render.safe_text import safe

_GAP = 2


class Line:
    """A text folded between words, each of its lines `indent` columns in. `whole`: never folded, what is to be pasted;
    `commas`: folded behind commas too.
    """

    def __init__(
        self, text: str | Text, *, indent: int = 0, style: str = "", whole: bool = False, commas: bool = False
    ) -> None:
        self.text = text if isinstance(text, Text) else Text(safe(text), style=style)
        self.indent = indent
        self.whole = whole
        self.commas = commas

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width - self.indent, 1)
        for line in [self.text] if self.whole else _folded(self.text, room, commas=self.commas):
            yield Text(" " * self.indent, no_wrap=True, overflow="ignore").append_text(line)


def unbroken(body: RenderableType) -> RenderableType:
    """The same with its texts as lines that break no word."""
    if isinstance(body, Group):
        return Group(*map(unbroken, body.renderables))
    if isinstance(body, Padding) and isinstance(body.renderable, Text):
        return Line(body.renderable, indent=body.left)
    return Line(body) if isinstance(body, Text) else body


class Columns:
    """Rows below a header, for as many columns as the terminal has room for.

    Columns shrink as far as their longest word. Where that is not enough, `lists` go into a line of their own below the
    row, which folds behind commas; and where that is not enough either, each row is told as `column: value`, line by line.
    `right`: columns set to the right.
    """

    def __init__(self, *names: str, right: Sequence[str] = (), lists: Sequence[str] = ()) -> None:
        self.names = names
        self.right = right
        self.lists = lists
        self.rows: list[tuple[Text, ...]] = []

    def add(self, *cells: object) -> None:
        """One row; None is not known."""
        self.rows.append(tuple(cell if isinstance(cell, Text) else Text(shown(cell)) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for columns in (range(len(self.names)), [at for at, name in enumerate(self.names) if name not in self.lists]):
            widths = self._widths(columns, options.max_width)
            if widths is not None:
                yield from self._table(widths)
                return
        yield self._records()

    def _table(self, widths: dict[int, int]) -> RenderResult:
        """`widths`: of the columns that stand side by side."""
        header = [Text(name, style="bold") for name in self.names]
        for row in (header, *self.rows):
            table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
            for at, width in widths.items():
                justify: JustifyMethod = "right" if self.names[at] in self.right else "left"
                table.add_column(justify=justify, overflow="fold", width=width)
            table.add_row(
                *(Group(*_folded(row[at], w, commas=self.names[at] in self.lists)) for at, w in widths.items())
            )
            yield table
            below = [cell for at, cell in enumerate(row) if at not in widths and row is not header]
            yield from (Line(cell, indent=_GAP, commas=True) for cell in below if cell.plain != "-")

    def _widths(self, columns: Iterable[int], room: int) -> dict[int, int] | None:
        least, widths = {}, {}
        for at in columns:
            texts = [self.names[at], *(row[at].plain for row in self.rows)]
            words = [word for text in texts for word in _words(text, commas=self.names[at] in self.lists)]
            least[at] = max((cell_len(word.strip()) for word in words), default=1)
            widths[at] = max(map(cell_len, texts))
        room -= _GAP * (len(widths) - 1)
        if sum(least.values()) > room:
            return None
        while sum(widths.values()) > room:
            widest = max((at for at in widths if widths[at] > least[at]), key=lambda at: widths[at])
            widths[widest] -= 1
        return widths

    def _records(self) -> RenderableType:
        lines: list[RenderableType] = []
        for row in self.rows:
            lines.append(Line(row[0].copy(), whole=True))
            for name, cell in zip(self.names[1:], row[1:], strict=True):
                lines.append(Line(Text(f"{name}: ").append_text(cell), indent=_GAP))
        return Group(*lines)


def shown(value: object) -> str:
    """`?` for what is not known."""
    return "?" if value is None else safe(value)


def _words(text: str, *, commas: bool) -> list[str]:
    """In order, each with the blanks behind it; all of them together are the text."""
    return re.findall(r"\s*[^\s,]*(?:,+|[^\s,]+)\s*" if commas else r"\s*\S+\s*", text)


def _folded(text: Text, width: int, *, commas: bool = False) -> list[Text]:
    """Lines of as many words as fit; one that is longer stands alone."""
    if cell_len(text.plain) <= width and "\n" not in text.plain:
        return [text]
    cuts, at, used = [], 0, 0
    for word in _words(text.plain, commas=commas):
        if used and used + cell_len(word.rstrip()) > width:
            cuts.append(at)
            used = 0
        at += len(word)
        used = 0 if word.endswith("\n") else used + cell_len(word)
        if word.endswith("\n"):
            cuts.append(at)
    lines = list(text.divide(cuts))
    for line in lines:
        line.rstrip()
    return [line for line in lines if line.plain] or [Text("")]
