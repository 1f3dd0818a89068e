"""The diagrams of the guide: current, readable on both pages, and complete against gdsctl's tables."""

from __future__ import annotations

import fnmatch
import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gdsctl.data import app_edges

ROOT = Path(__file__).resolve().parent.parent.parent
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def diagrams() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_diagrams", ROOT / "docs" / "make_diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_they_are_current() -> None:
    ran = subprocess.run([sys.executable, "docs/make_diagrams.py", "--check"], cwd=ROOT, check=False)
    assert ran.returncode == 0


def test_check_names_what_is_not(diagrams: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    (tmp_path / "kv_cache_guide.toml").write_text((ROOT / "docs" / "kv_cache_guide.toml").read_text())
    monkeypatch.setattr(diagrams, "DOCS", tmp_path)
    assert diagrams.main(["--check"]) == 1
    assert diagrams.main([]) == 0
    assert diagrams.main(["--check"]) == 0
    (tmp_path / "kv-cache-paths-dark.svg").write_text("old")
    capsys.readouterr()
    assert diagrams.main(["--check"]) == 1
    assert capsys.readouterr().err == "not current: kv-cache-paths-dark.svg; run python docs/make_diagrams.py\n"


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def drawn(diagrams: ModuleType) -> list[tuple[str, ET.Element]]:
    return [
        (f"{name} {mode}", ET.fromstring(draw(theme)))  # noqa: S314 -- our own
        for name, draw in diagrams.DIAGRAMS.items()
        for mode, theme in diagrams.THEMES.items()
    ]


def test_text_stands_out_from_its_ground_and_within_it(diagrams: ModuleType) -> None:
    """4.5:1 (WCAG AA) against the innermost box around it, and no text runs out of that box in a wide font."""
    for name, root in drawn(diagrams):
        boxes = [
            ([float(box.get(key, "0")) for key in ("x", "y", "width", "height")], box.get("fill", ""))
            for box in root.iter(f"{SVG}rect")
        ]
        texts = list(root.iter(f"{SVG}text"))
        assert len(texts) > 15
        for text in texts:
            x, y, size = (float(text.get(key, "0")) for key in ("x", "y", "font-size"))
            words = text.text or ""
            wide = diagrams.width(words, size, mono="mono" in text.get("font-family", ""))
            start = x - wide / 2 if text.get("text-anchor") == "middle" else x
            (left, top, w, h), ground = [
                (box, fill) for box, fill in boxes if 0 <= x - box[0] <= box[2] and 0 <= y - box[1] <= box[3]
            ][-1]
            light, dark = sorted((luminance(ground), luminance(text.get("fill", ""))), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, words)
            assert left <= start <= start + wide <= left + w, (name, words)
            assert top <= y - size <= y + 3 <= top + h, (name, words)


def test_nothing_is_drawn_as_an_outline_and_each_has_a_title(diagrams: ModuleType) -> None:
    for _, root in drawn(diagrams):
        assert root.find(f"{SVG}title") is not None
        assert root.find(f"{SVG}desc") is not None
        assert all(len(path.get("d", "")) < 120 for path in root.iter(f"{SVG}path"))
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
            *("svg", "title", "desc", "defs", "marker", "path", "rect", "text"),
        }


def test_words_are_escaped(diagrams: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    words: dict[str, Any] = {**diagrams.guide()}
    words["path"] = [{**path, "name": 'a <b> & "c"'} for path in words["path"]]
    monkeypatch.setattr(diagrams, "guide", lambda: words)
    root = ET.fromstring(diagrams.paths(diagrams.THEMES["light"]))  # noqa: S314 -- our own
    assert 'a <b> & "c"' in [text.text for text in root.iter(f"{SVG}text")]


def test_every_row_of_the_table_has_its_place(diagrams: ModuleType) -> None:
    for row in app_edges.rows():
        shown = row.staged_in == "dram" or {row.from_, row.to} == {"gpu", "file"}
        assert not shown or any(
            fnmatch.fnmatchcase(row.shape, label["shape"]) for label in diagrams.guide()["label"]
        ), row.shape
    # By hand: the stacks of the field that go direct, and that the nixl adapters do not.
    assert {"LMCache server, GDS L1", "KVBM, disk without CPU", "fastsafetensors (loads)"} <= set(diagrams.direct())
    assert {"LMCache server, nixl_* L2", "SGLang HiCache", "vLLM's own tiers and connectors"} <= set(diagrams.staged())
    assert not set(diagrams.direct()) & set(diagrams.staged())


def test_the_settings_are_what_they_are_painted_as(diagrams: ModuleType) -> None:
    told = {row["stack"]: diagrams.helps(row["reads"]) for row in diagrams.guide()["setting"]}
    assert told["Dynamo KVBM"] == "direct, loads and stores"
    assert told["FlexKV (in vLLM since 0.18)"] == "direct, loads alone"
    assert told["SGLang HiCache"] == "always through host memory"


def test_the_page_shows_each_on_both_pages(diagrams: ModuleType) -> None:
    page = (ROOT / "docs" / "kv-cache.md").read_text()
    for name in diagrams.DIAGRAMS:
        assert f'srcset="kv-cache-{name}-dark.svg"' in page
        assert re.search(rf'<img src="kv-cache-{name}-light.svg" width="\d+" alt="[^"]{{40,}}">', page)
