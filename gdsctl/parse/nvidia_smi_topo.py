"""`nvidia-smi topo -m` (and `-mp`, `-m -nvme`): the matrix of path classes between GPUs and NICs.

            GPU0    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      PHB     0-251   0               N/A
    NIC0    PHB      X

    NIC Legend:

      NIC0: mlx5_0

Before driver 510 the NIC columns bear device names (`mlx5_0`) and there is no NIC legend; SYS was SOC before 384. The
tool separates by tabs, pastes by anything. What makes a cell certain is the `X` on the diagonal: a row's cells left of
it are right if there are as many as columns left of its own, those right of it likewise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gdsctl.errors import InputError
from gdsctl.parse import pasted
from gdsctl.record import Record, Warned

Matrix = dict[str, dict[str, str | None]]


class NvidiaSmiTopo(Record, frozen=True, kw_only=True):
    """`matrix[row][column]`: X, NV#, PIX, PXB, PHB, NODE, SYS as printed (SOC as SYS); null where not certain.

    Affinities and NUMA ids are as printed (`0-31,64-95`, `N/A`); null for rows that print none.
    """

    devices: tuple[str, ...] = ()
    matrix: Matrix = {}
    cpu_affinity: dict[str, str | None] = {}
    numa_affinity: dict[str, str | None] = {}
    gpu_numa_id: dict[str, str | None] = {}
    nic_legend: dict[str, str] = {}
    nvme_matrix: Matrix | None = None
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


def parse(text: str) -> NvidiaSmiTopo:
    """Read one matrix (of several, the last). Raises InputError where no header and no row of one is found."""
    reader = _Reader()
    lines = pasted.lines(text.encode("utf-8", "replace").decode("utf-8"))
    for number, line in enumerate(lines, start=1):
        if len(line) > _LINE_LIMIT:
            reader.warn(number, f"a line of {len(line)} characters is no row of a matrix")
        else:
            reader.read(number, _COMMENT.sub("", line))
    return reader.report(unfinished=len(lines) if lines[-1].strip() else None)


_LINE_LIMIT = 65536
_CLASS = r"(?:X|SYS|SOC|NODE|PHB|PXB|PIX|C2C|NV\d{1,3})"
_IS_CLASS = re.compile(_CLASS)
_CLOSED = frozenset({"X", "SYS", "SOC", "NODE", "PHB", "PXB", "PIX", "C2C", "N/A"})
_GLUED = re.compile(rf"{_CLASS}{{2,}}")
_GLUED_AFFINITY = re.compile(rf"({_CLASS}*(?:X|SYS|SOC|NODE|PHB|PXB|PIX))(\d[\d,-]*)")
_NAME = re.compile(r"(?:GPU|NIC|NVMe)\d{1,5}|(?!NV\d+$)[a-z][\w.-]{0,60}\d[\w.-]{0,60}")
_FIRST = re.compile(r"(?:GPU|NVMe)\d{1,5}")
_META_VALUE = re.compile(r"\d[\d,-]*|N/A|-\d[\d,-]*|,\d[\d,-]*")
_COMMENT = re.compile(r"^ {0,8}(?:#|//)[ ]?(?=\s|GPU|NIC|NVMe|mlx)")
_NIC_LEGEND = re.compile(r"\s*(NIC\d{1,5})\s?[:=]\s?(\S{1,200})\s*")
_CLASS_LEGEND = re.compile(r"\s*(?:X|SYS|SOC|NODE|PHB|PXB|PIX|C2C|NV#)\s{0,8}=")
_META = ("cpu_affinity", "numa_affinity", "gpu_numa_id")
_META_HEADERS = {
    "": _META[:0],
    "CPUAffinity": _META[:1],
    "CPUAffinityNUMAAffinity": _META[:2],
    "CPUAffinityNUMAAffinityGPUNUMAID": _META,
}


class _Token:
    """A word and its place: the number of tabs before it, or its column in a line without tabs."""

    __slots__ = ("key", "text")

    def __init__(self, text: str, key: int) -> None:
        self.text = text
        self.key = key


class _Line:
    """A header or a row, with its wrapped continuation lines appended (`wrapped`: places count no longer)."""

    def __init__(self, number: int, text: str, tokens: list[_Token]) -> None:
        self.number = number
        self.last = number
        self.tokens = tokens
        self.tabbed = "\t" in text.strip()
        self.wrapped = False

    def join(self, number: int, tokens: list[_Token], *, header: bool) -> None:
        """Append a continuation line. A word that the wrap cut in two is joined where only that reading is possible."""
        self.wrapped = True
        self.last = number
        tail, head = self.tokens[-1], tokens[0]
        whole = tail.text + head.text
        valid = _NAME.fullmatch if header else _IS_CLASS.fullmatch
        if valid(whole) and not valid(head.text):
            if header or not valid(tail.text):
                tail.text = whole
            else:
                # NV1 and 8: NV18, or NV1 and a CPU.
                tail.text = "?"
            tokens = tokens[1:]
        self.tokens += tokens


class _Table:
    def __init__(self, header: _Line | None) -> None:
        self.header = header
        self.rows: list[_Line] = []


class _Reader:
    def __init__(self) -> None:
        self.warnings: list[Warned] = []
        self.main: _Table | None = None
        self.nvme: _Table | None = None
        self.table: _Table | None = None
        self.open: _Line | None = None
        self.nic_legend: dict[str, str] = {}

    def warn(self, number: int, message: str) -> None:
        self.warnings.append(Warned(line=number, message=message))

    def read(self, number: int, line: str) -> None:
        if not line.strip():
            if self.table is not None and self.table.rows:
                self.open = None
            return
        if legend := _NIC_LEGEND.fullmatch(line):
            self.open = self.table = None
            if self.nic_legend.setdefault(legend[1], legend[2]) != legend[2]:
                self.warn(number, f"{legend[1]} stands twice in the legend; the first is kept")
            return
        if _CLASS_LEGEND.match(line) or line.strip().endswith("Legend:"):
            self.open = self.table = None
            return
        tokens = _tokens(line)
        words = [token.text for token in tokens]
        if _is_header(words):
            self.start(number, _Line(number, line, tokens))
        elif _is_row(words):
            if self.table is None:
                self.table = _Table(None)
                if self.main is None:
                    self.main = self.table
            self.open = _Line(number, line, tokens)
            self.table.rows.append(self.open)
        elif self.open is not None and self.table is not None and self.continues(words):
            self.open.join(number, tokens, header=self.open is self.table.header)
        elif self.open is not None:
            self.warn(number, f"not read: {line.strip()[:80]}")
            # Whatever this is, a number in front of it may have gone on in it.
            if words[0][0] in "0123456789,-" and self.open.tokens[-1].text not in _CLOSED:
                self.open.tokens[-1].text = "?"
            self.open = None

    def start(self, number: int, header: _Line) -> None:
        self.open = header
        self.table = _Table(header)
        if header.tokens[0].text.startswith("NVMe"):
            self.nvme = self.table
            return
        if self.main is not None:
            self.warn(number, "a second matrix starts here; the one before it is left out")
            self.nic_legend, self.nvme = {}, None
        self.main = self.table

    def continues(self, words: Sequence[str]) -> bool:
        if self.table is not None and self.open is self.table.header:
            return all(_NAME.fullmatch(word) or word in "CPU Affinity NUMA Affinity GPU NUMA ID" for word in words[1:])
        return all(
            _IS_CLASS.fullmatch(word) or _META_VALUE.fullmatch(word) or _GLUED.fullmatch(word) for word in words[1:]
        )

    def report(self, *, unfinished: int | None) -> NvidiaSmiTopo:
        """`unfinished`: the number of the last line where no line end follows it."""
        main = self.main
        if main is None or not (main.rows or (main.header and _columns(main.header)[1])):
            raise InputError("not nvidia-smi topo output: no matrix of GPUs", line=1)
        columns, meta = self.header(main)
        names = [row.tokens[0].text for row in main.rows]
        devices = list(dict.fromkeys([*columns, *names]))
        matrix: Matrix = {device: dict.fromkeys(columns) for device in devices}
        facts: dict[str, dict[str, str | None]] = {name: dict.fromkeys(devices) for name in _META}
        short = False
        seen: set[str] = set()
        for row in main.rows:
            name = row.tokens[0].text
            if name in seen:
                self.warn(row.number, f"row {name} stands twice; the first is kept")
                continue
            seen.add(name)
            cells, values = self.split(row, unfinished)
            matrix[name] = self.assign(row, main.header, columns, cells, values)
            short = len(cells) < len(columns)
            self.affinities(row, meta, values, facts)
        missing = [device for device in devices if device not in seen]
        if missing:
            self.warn(main.rows[-1].last if main.rows else 1, f"no row for {', '.join(missing)[:200]}")
        nvme_matrix = self.nvme_matrix(unfinished)
        nics = [device for device in columns if device.startswith("NIC")]
        return NvidiaSmiTopo(
            devices=tuple(devices),
            matrix=matrix,
            **facts,
            nic_legend=self.nic_legend,
            nvme_matrix=nvme_matrix,
            truncated=bool(
                (devices and devices[-1] in missing) or short or any(nic not in self.nic_legend for nic in nics)
            ),
            warnings=tuple(sorted(self.warnings, key=lambda warned: warned.line)),
        )

    def nvme_matrix(self, unfinished: int | None) -> Matrix | None:
        if self.nvme is None or self.nvme.header is None:
            return None
        columns, _ = self.header(self.nvme)
        matrix: Matrix = {}
        for row in self.nvme.rows:
            cells, values = self.split(row, unfinished)
            matrix.setdefault(row.tokens[0].text, self.assign(row, self.nvme.header, columns, cells, values))
        return matrix

    def header(self, table: _Table) -> tuple[list[str], tuple[str, ...] | None]:
        """Columns and the affinity columns (None: unreadable). Without a header the rows' own names, if they fit."""
        if table.header is None:
            self.warn(table.rows[0].number, "no header above the rows; the columns are taken to be the rows, in order")
            return list(dict.fromkeys(row.tokens[0].text for row in table.rows)), None
        columns, meta = _columns(table.header)
        if meta is None:
            self.warn(table.header.number, "the header's affinity columns are not readable")
        if len(set(columns)) < len(columns):
            self.warn(table.header.number, "the header names a device twice; no cell is certain")
            return list(dict.fromkeys(columns)), meta
        return columns, meta

    def split(self, row: _Line, unfinished: int | None) -> tuple[list[_Token], list[_Token]]:
        """A row's cells and the affinity values after them; glued words taken apart where there is one way to."""
        cells: list[_Token] = []
        values: list[_Token] = []
        words = row.tokens[1:]
        if unfinished == row.last and words and words[-1].text not in _CLOSED:
            self.warn(row.last, f"the text ends in {words[-1].text[:40]}, which may be cut")
            words = [*words[:-1], _Token("?", words[-1].key)]
        for word in words:
            if values or _META_VALUE.fullmatch(word.text):
                values.append(word)
            elif glued := _GLUED_AFFINITY.fullmatch(word.text):
                self.warn(row.number, f"glued cells: {word.text[:40]}")
                cells += [_Token(part, -1) for part in _IS_CLASS.findall(glued[1])]
                values.append(_Token(glued[2], -1))
            elif _GLUED.fullmatch(word.text):
                self.warn(row.number, f"glued cells: {word.text[:40]}")
                cells += [_Token(part, -1) for part in _IS_CLASS.findall(word.text)]
            else:
                cells.append(word)
        return cells, values

    def assign(
        self, row: _Line, header: _Line | None, columns: list[str], cells: list[_Token], values: list[_Token]
    ) -> dict[str, str | None]:
        """Column -> class. Cells anchored neither by the diagonal nor by their places are null."""
        result: dict[str, str | None] = dict.fromkeys(columns)
        name = row.tokens[0].text
        classes = [self.classify(row, cell) for cell in cells]
        broken = any(_IS_CLASS.fullmatch(value.text) for value in values)
        own = columns.index(name) if name in columns else None
        if header is not None and len(_columns(header)[0]) != len(columns):
            return result
        if own is None:
            if len(classes) == len(columns) and "X" not in classes and not broken:
                return dict(zip(columns, classes, strict=True))
        elif classes.count("X") == 1:
            left = classes.index("X")
            right = len(classes) - left - 1
            places = None
            if (left != own or right != len(columns) - own - 1) and header is not None:
                places = _by_place(header, row, cells, values, own)
            if places is not None:
                for place, value in zip(places, classes, strict=True):
                    result[columns[place]] = value
            else:
                if left == own:
                    result.update(zip(columns[: own + 1], classes[: left + 1], strict=True))
                if right == len(columns) - own - 1 and not broken:
                    result.update(zip(columns[own:], classes[left:], strict=True))
        lost = [column for column, value in result.items() if value is None]
        if lost:
            self.warn(
                row.number,
                f"row {name}: {len(classes)} cells for {len(columns)} columns; null: {', '.join(lost)[:200]}",
            )
        return result

    def classify(self, row: _Line, cell: _Token) -> str | None:
        if not _IS_CLASS.fullmatch(cell.text):
            self.warn(row.number, f"not a path class: {cell.text[:40]}")
            return None
        return "SYS" if cell.text == "SOC" else cell.text

    def affinities(
        self, row: _Line, meta: tuple[str, ...] | None, values: list[_Token], facts: dict[str, dict[str, str | None]]
    ) -> None:
        name = row.tokens[0].text
        if meta is None or (not values and not name.startswith("GPU")):
            return
        texts = [value.text for value in values]
        if len(texts) != len(meta) or not all(re.fullmatch(r"\d+(?:[-,]\d+)*|N/A", text) for text in texts):
            self.warn(row.number, f"row {name}: {len(texts)} affinity values for {len(meta)} columns, none is certain")
            return
        for column, text in zip(meta, texts, strict=True):
            facts[column][name] = text


def _tokens(line: str) -> list[_Token]:
    if "\t" not in line.strip():
        return [_Token(match[0], match.start()) for match in re.finditer(r"\S+", line)]
    return [_Token(word, key) for key, field in enumerate(line.split("\t")) for word in field.split()]


def _is_header(words: Sequence[str]) -> bool:
    """`GPU0 GPU1 ... CPU Affinity`: names side by side, no class; a lone name is a header only with an affinity column."""
    if not _FIRST.fullmatch(words[0]):
        return False
    if len(words) == 1:
        return words[0].startswith("NVMe")
    return bool(_NAME.fullmatch(words[1])) or (words[1] == "CPU" and len(words) > 2 and words[2].startswith("Aff"))


def _is_row(words: Sequence[str]) -> bool:
    if not _NAME.fullmatch(words[0]) or len(words) < 2:
        return False
    return _IS_CLASS.match(words[1]) is not None and not _NAME.fullmatch(words[1])


def _columns(header: _Line) -> tuple[list[str], tuple[str, ...] | None]:
    words = [token.text for token in header.tokens]
    count = next((place for place, word in enumerate(words) if not _NAME.fullmatch(word)), len(words))
    return words[:count], _META_HEADERS.get("".join(words[count:]))


def _by_place(header: _Line, row: _Line, cells: list[_Token], values: list[_Token], own: int) -> list[int] | None:
    """Each cell's column by where it stands, or None where that proves nothing.

    Every cell must stand under a header, X under its own, and the row's far end under the header's far end: only then
    has nothing between been lost together with its padding.
    """
    if header.wrapped or row.wrapped or header.tabbed != row.tabbed:
        return None
    end = len(_columns(header)[0])
    places = {token.key: place for place, token in enumerate(header.tokens[:end])}
    found: list[int] = []
    for cell in cells:
        # Blank-aligned, the diagonal is " X ".
        key = cell.key - 1 if cell.text == "X" and not row.tabbed else cell.key
        place = places.get(key)
        if place is None or (found and place <= found[-1]) or (cell.text == "X") != (place == own):
            return None
        found.append(place)
    anchored = found[-1] == end - 1 or (
        bool(values) and len(header.tokens) > end and values[0].key == header.tokens[end].key
    )
    return found if anchored else None
