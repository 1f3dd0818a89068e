"""JSON in pieces, and files that are replaced in one step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gdsctl.errors import RefusedError
from gdsctl.record import Record
from gdsctl.render import documents


class Row(Record, frozen=True, kw_only=True, rename={"class_": "class"}):
    class_: str


class Document(Record, frozen=True, kw_only=True, rename={"from_": "from"}):
    from_: str = "a"
    rows: tuple[Row, ...] = ()
    table: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)


@pytest.mark.parametrize("count", [0, 1, 500, 501, 1000, 1001])
def test_pieces_are_the_whole(count: int) -> None:
    rows = tuple(Row(class_=f'line {number}\n{{"[,]"}}\u202e') for number in range(count))
    document = Document(rows=rows, table={"a\nb": (1, 2), "": ()})
    text = "".join(documents.json_pieces(document))
    assert text == documents.to_json(document)
    assert json.loads(text)["rows"] == [{"class": row.class_} for row in rows]
    assert text == json.dumps(json.loads(text), indent=2) + "\n"  # ASCII, for no other character is in it


def test_control_and_hidden_characters_are_escaped() -> None:
    assert documents.to_json({"a": "\x1b\x7f\x9b\u202e\u00e9"}) == '{\n  "a": "\\u001b\\u007f\\u009b\\u202e\u00e9"\n}\n'


def test_a_failure_half_way_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")

    def pieces() -> Iterator[str]:
        yield "new"
        raise RefusedError("no more")

    with pytest.raises(RefusedError):
        documents.deliver(pieces(), str(target))
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_link_stays_a_link_and_a_mode_stays_a_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    documents.deliver("new", str(link))
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert os.stat(real).st_mode & 0o777 == 0o600
