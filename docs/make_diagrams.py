"""Draws the diagrams of kv-cache.md, each for a light and a dark page.

python docs/make_diagrams.py            writes docs/kv-cache-*.svg
python docs/make_diagrams.py --check    names those that are not current, exit code 1

The words come from kv_cache_guide.toml; which software takes which way, and what a setting amounts to, from gdsctl.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]  # installed only where tomllib is missing

if TYPE_CHECKING:
    from gdsctl.data.app_edges import EdgeRow

DOCS = Path(__file__).resolve().parent
WIDTH = 960
SANS = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace"

# Text of 4.5:1 and more on its own ground; the grounds are those of GitHub's pages.
THEMES = {
    "light": {
        "page": "#ffffff",
        "line": "#d1d9e0",
        "text": "#1f2328",
        "quiet": "#59636e",
        "card": "#f6f8fa",
        "direct": "#1a7f37",
        "direct-ground": "#dafbe1",
        "staged": "#9a6700",
        "staged-ground": "#fff8c5",
        "ask": "#0969da",
        "ask-ground": "#ddf4ff",
    },
    "dark": {
        "page": "#0d1117",
        "line": "#3d444d",
        "text": "#f0f6fc",
        "quiet": "#9198a1",
        "card": "#151b23",
        "direct": "#3fb950",
        "direct-ground": "#12261e",
        "staged": "#d29922",
        "staged-ground": "#272115",
        "ask": "#4493f8",
        "ask-ground": "#121d2f",
    },
}


@cache
def guide() -> dict[str, Any]:
    words: dict[str, Any] = tomllib.loads((DOCS / "kv_cache_guide.toml").read_text("utf-8"))
    return words


# --- drawing -------------------------------------------------------------------------------------------------------------


def width(text: str, size: float, *, mono: bool = False) -> float:
    """About how wide a text is in the widest of the fonts (DejaVu Sans, bold): no reader's text runs over."""
    if mono:
        return len(text) * size * 0.62
    tenths = {**dict.fromkeys("ijl.,:;'|! ", 3.6), **dict.fromkeys("frtI()[]-/", 4.4), **dict.fromkeys("mwMW", 10)}
    return sum(tenths.get(letter, 7.8 if letter.isupper() else 6.8) for letter in text) * size / 10


def wrapped(text: str, room: float, size: float, *, mono: bool = False) -> list[str]:
    """Lines that fit. Only between words."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer, size, mono=mono) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


class Drawing:
    """An SVG that grows downwards. Colours are names of a theme."""

    def __init__(self, theme: dict[str, str], title: str, described: str) -> None:
        self.theme = theme
        self.title = title
        self.described = described
        self.parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, *, fill: str = "card", line: str = "line") -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8" fill="{self.theme[fill]}" '
            f'stroke="{self.theme[line]}" stroke-width="1.5"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 13,
        colour: str = "text",
        bold: bool = False,
        mono: bool = False,
        middle: bool = False,
    ) -> None:
        more = ' font-weight="600"' if bold else ""
        more += f' font-family="{MONO}"' if mono else ""
        more += ' text-anchor="middle"' if middle else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{self.theme[colour]}"{more}>{escape(words, quote=False)}</text>'
        )

    def paragraph(self, x: float, y: float, words: str, room: float, *, size: float = 13, **style: Any) -> float:
        """A wrapped text whose first line stands at y; gives the y of the line that would come next."""
        for line in wrapped(words, room, size, mono=style.get("mono", False)):
            self.text(x, y, line, size=size, **style)
            y += size * 1.4
        return y

    def way(self, *points: tuple[float, float], colour: str, ends: str = "both") -> None:
        """A line through the points, with arrowheads at its `ends`: both, last or none."""
        path = " L".join(f"{x:g} {y:g}" for x, y in points)
        marks = f' marker-end="url(#{colour})"' if ends != "none" else ""
        marks += f' marker-start="url(#{colour})"' if ends == "both" else ""
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{self.theme[colour]}" stroke-width="2.5"{marks}/>')

    def svg(self, height: float) -> str:
        heads = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="5" markerHeight="5" '
            f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{self.theme[name]}"/></marker>'
            for name in ("direct", "staged", "ask", "quiet")
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}"',
                f'height="{height:g}" role="img" aria-labelledby="title desc" font-family="{SANS}">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="desc">{escape(self.described)}</desc>',
                f"<defs>{heads}</defs>",
                f'<rect x="0.75" y="0.75" width="{WIDTH - 1.5:g}" height="{height - 1.5:g}" rx="10"',
                f'fill="{self.theme["page"]}" stroke="{self.theme["line"]}" stroke-width="1.5"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


# --- what gdsctl knows ---------------------------------------------------------------------------------------------------


def _named(rows: Iterable[EdgeRow], way: str) -> list[str]:
    """Names of rows, each once, and which direction where it is only one."""
    found: dict[str, set[str]] = {}
    for row in rows:
        label = next(label for label in guide()["label"] if fnmatch.fnmatchcase(row.shape, label["shape"]))
        name = label.get(way) or label["text"]
        if name:
            found.setdefault(name, set()).add(row.direction)
    return [f"{name} (loads)" if ways == {"load"} else name for name, ways in found.items()]


def direct() -> list[str]:
    """Software whose bytes cuFile takes between GPU memory and files."""
    from gdsctl.data import app_edges

    rows = (row for row in app_edges.rows() if {row.from_, row.to} == {"gpu", "file"} and "cuFile" in row.api)
    return _named((row for row in rows if row.gds_helps == "yes"), "text")


def staged() -> list[str]:
    """Software of the KV cache whose bytes stop in host memory between GPU and storage."""
    from gdsctl.data import app_edges

    rows = (row for row in app_edges.rows() if not row.shape.startswith("weights."))
    return _named((row for row in rows if row.staged_in == "dram"), "staged")


def helps(reads: str) -> str:
    """What gdsctl says of a setting: direct both ways or one, or through host memory."""
    from gdsctl.kvcache.app import judge
    from gdsctl.model.node import Tool

    report = judge([("f", reads)], tool=Tool(name="gdsctl", version=""))
    edges = [edge for stack in report.stacks for edge in stack.edges if "file" in (edge.from_, edge.to)]
    ways = {edge.direction for edge in edges if edge.gds_helps == "yes"}
    if not ways:
        return "always through host memory"
    return "direct, loads and stores" if "both" in ways or len(ways) > 1 else f"direct, {ways.pop()}s alone"


# --- the diagrams --------------------------------------------------------------------------------------------------------


def tiers(theme: dict[str, str]) -> str:
    drawing = Drawing(
        theme,
        "Tiers of the KV cache and the ways between them",
        "G1 GPU memory, G2 host memory, G3 local files, G3.5 shared files, G4 objects. All tiers below G2 are reached "
        "through host memory; only cuFile leads from G1 straight to local and to shared files.",
    )
    left, bar, high, gap = 326, 310, 62, 36
    tops = [44 + n * (high + gap) + (52 if n > 1 else 0) for n in range(5)]
    fills = [("direct-ground", "direct"), ("staged-ground", "staged"), *[("card", "line")] * 3]
    for tier, top, (fill, line) in zip(guide()["tier"], tops, fills, strict=True):
        drawing.box(left, top, bar, high, fill=fill, line=line)
        drawing.text(left + 16, top + 38, tier["name"], size=19, bold=True)
        drawing.text(left + 82, top + 27, tier["title"], size=15, bold=True)
        drawing.text(left + 82, top + 46, tier["holds"], size=12, colour="quiet" if fill == "card" else "text")
    mid = [top + high / 2 for top in tops]
    right = left + bar
    drawing.way((left + 150, tops[0] + high + 2), (left + 150, tops[1] - 2), colour="staged")
    drawing.text(left + 164, tops[1] - 14, "CUDA copy", size=12, colour="quiet")
    for end in mid[2:]:
        drawing.way((left - 3, mid[1]), (left - 26, mid[1]), (left - 26, end), (left - 3, end), colour="staged")
    for end in mid[2:4]:
        drawing.way((right + 3, mid[0]), (right + 26, mid[0]), (right + 26, end), (right + 3, end), colour="direct")
    drawing.text(24, 38, "Through host memory", size=16, bold=True, colour="staged")
    y = drawing.paragraph(24, 60, "POSIX, O_DIRECT, or cuFile on host memory: GDS has no part", 262, colour="quiet")
    for label in staged():
        y = drawing.paragraph(24, y + 5, label, 270)
    side = right + 42
    drawing.text(side, 38, "GPUDirect Storage", size=16, bold=True, colour="direct")
    y = drawing.paragraph(side, 60, "cuFile on GPU memory: direct where the mount is", 264, colour="quiet")
    for label in direct():
        y = drawing.paragraph(side, y + 5, label, 264)
    for end, head, words, colour in (
        (max(mid[2], y + 22), "local GDS", "drive and GPU over PCIe, by nvidia-fs or P2PDMA", "direct"),
        (mid[3], "remote GDS", "NIC and GPU over PCIe, by nvidia-fs and RDMA", "direct"),
        (mid[4], "no GDS", "vendors' engines of NIXL OBJ go to GPU memory by RDMA", "quiet"),
    ):
        drawing.text(side, end - 10, head, size=14, bold=True, colour=colour)
        drawing.paragraph(side, end + 9, words, 264, size=12.5, colour="quiet")
    return drawing.svg(tops[-1] + high + 24)


def paths(theme: dict[str, str]) -> str:
    drawing = Drawing(
        theme,
        "What each path needs",
        "; ".join(f"{path['name']}: {' to '.join(path['hops'])}" for path in guide()["path"]),
    )
    across, room = 448, 416
    rows = [guide()["path"][n : n + 2] for n in (0, 2)]
    top = 20.0
    for pair in rows:
        needs = [
            [
                (head, wrapped(path[key].replace("`", ""), room - 92, 12.5))
                for head, key in (("node", "node"), ("container", "container"))
            ]
            for path in pair
        ]
        high = 112 + max(sum(len(lines) for _, lines in need) for need in needs) * 17.5 + 10
        for column, (path, need) in enumerate(zip(pair, needs, strict=True)):
            x = 24 + column * (across + 16)
            stops = "host memory" in path["hops"]
            colour = "staged" if stops else "direct"
            drawing.box(x, top, across, high)
            drawing.text(x + 16, top + 28, path["name"], size=16, bold=True, colour=colour)
            _chain(drawing, x + 16, top + 44, path["hops"], colour)
            y = top + 108
            for head, lines in need:
                drawing.text(x + 16, y, head, size=12.5, bold=True)
                for line in lines:
                    drawing.text(x + 16 + 88, y, line, size=12.5)
                    y += 17.5
                y += 6
        top += high + 16
    return drawing.svg(top + 4)


def _chain(drawing: Drawing, x: float, y: float, hops: list[str], colour: str) -> None:
    gap = 36 if len(hops) < 5 else 30
    for number, hop in enumerate(hops):
        wide = width(hop, 13) + 18
        stop = hop == "host memory"
        drawing.box(x, y, wide, 30, fill=f"{colour}-ground" if stop or number == 0 else "page", line=colour)
        drawing.text(x + wide / 2, y + 20, hop, size=13, middle=True, bold=stop or number == 0)
        if number + 1 < len(hops):
            drawing.way((x + wide + 2, y + 15), (x + wide + gap - 2, y + 15), colour=colour)
        x += wide + gap


def decision(theme: dict[str, str]) -> str:
    drawing = Drawing(
        theme,
        "From stack to setting",
        " ".join(f"{q['ask']} {q['leave_on']}: {q['then']}" for q in guide()["question"] if "then" in q),
    )
    x, wide, leaf = 24, 400, 512
    room = WIDTH - 24 - leaf - 32
    top = 24.0
    for question in guide()["question"]:
        lines = wrapped(question["ask"], wide - 36, 15)
        words = wrapped(question.get("then", ""), room, 13) if "then" in question else []
        high = max(len(lines) * 21 + 28, (len(words) + ("setting" in question)) * 18.2 + 28)
        drawing.box(x, top, wide, high, fill="ask-ground", line="ask")
        for n, line in enumerate(lines):
            drawing.text(x + 18, top + high / 2 + 5 + (n - (len(lines) - 1) / 2) * 21, line, size=15, bold=True)
        after, label = top + high, {"no": "yes", "yes": "no"}.get(question.get("leave_on", ""), "")
        if words:
            drawing.way((x + wide + 3, top + high / 2), (leaf - 4, top + high / 2), colour="quiet", ends="last")
            drawing.text(
                (x + wide + leaf) / 2, top + high / 2 - 9, question["leave_on"], size=14, middle=True, bold=True
            )
            drawing.box(leaf, top, WIDTH - 24 - leaf, high, fill="staged-ground", line="staged")
            y = top + high / 2 + 5 - (len(words) + ("setting" in question) - 1) * 9.1
            for line in words:
                drawing.text(leaf + 16, y, line)
                y += 18.2
            if "setting" in question:
                drawing.text(leaf + 16, y, question["setting"], size=12, mono=True)
        drawing.way((x + 60, after + 3), (x + 60, after + 36), colour="quiet", ends="last")
        if label:
            drawing.text(x + 76, after + 25, label, size=14, bold=True)
        top = after + 40
    return drawing.svg(_settings(drawing, top) + 10)


def _settings(drawing: Drawing, top: float) -> float:
    across, high = 448, 84
    for number, row in enumerate(guide()["setting"]):
        x = 24 + number % 2 * (across + 16)
        y = top + number // 2 * (high + 14)
        told = helps(row["reads"])
        colour = "direct" if told.startswith("direct") else "staged"
        drawing.box(x, y, across, high, fill=f"{colour}-ground", line=colour)
        drawing.text(x + 16, y + 25, row["stack"], size=14, bold=True)
        mono = not row["setting"].startswith("none")
        drawing.text(x + 16, y + 47, row["setting"], size=12.5, mono=mono)
        drawing.text(x + 16, y + 69, told, size=13, bold=True, colour=colour)
    return top + -(-len(guide()["setting"]) // 2) * (high + 14)


DIAGRAMS = {"tiers": tiers, "paths": paths, "decision": decision}


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    stale = []
    for name, draw in DIAGRAMS.items():
        for mode, theme in THEMES.items():
            file = DOCS / f"kv-cache-{name}-{mode}.svg"
            text = draw(theme)
            if check:
                if not file.exists() or file.read_text("utf-8") != text:
                    stale.append(file.name)
            else:
                file.write_text(text, "utf-8")
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)}; run python docs/make_diagrams.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
