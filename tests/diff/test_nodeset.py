from __future__ import annotations

import itertools
import re
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.diff import nodeset
from gdsctl.diff.nodeset import fold


def expand(text: str) -> set[str]:
    """Our own reading of the notation in ClusterShell's and Slurm's manuals: prefix[a-b,c]suffix, padded as written."""
    names: set[str] = set()
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if match is None:
            names.add(part)
            continue
        for piece in match[2].split(","):
            first, _, last = piece.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names |= {f"{match[1]}{number:0{len(first)}d}{match[3]}" for number in numbers}
    return names


TABLE = [
    ([f"gpu{n:03d}" for n in range(1, 129)], "gpu[001-128]"),
    (["gpu001", "gpu003", "gpu002", "gpu007"], "gpu[001-003,007]"),
    ([f"n{n}" for n in range(8, 12)], "n[8-11]"),
    (["n1", "n01"], "n01,n1"),
    (["login"], "login"),
    (["gpu1.a.example", "gpu2.a.example", "login"], "gpu[1-2].a.example,login"),
    (["gpu007"], "gpu007"),
    ([], ""),
]


@pytest.mark.parametrize(("names", "folded"), TABLE)
def test_fold(names: list[str], folded: str) -> None:
    assert nodeset._fold(sorted(set(names), key=nodeset._order)) == folded


@given(st.lists(st.from_regex(r"(?:gpu|r1-n|login)(?:[0-9]{0,4})(?:\.a)?", fullmatch=True), max_size=30))
@settings(max_examples=100, deadline=None)
def test_folded_names_expand_to_the_same_set(names: list[str]) -> None:
    assert expand(fold(names)) == set(names)
    for mixed in itertools.islice(itertools.permutations(names), 3):
        assert fold(mixed) == fold(names)


class TestClusterShell:
    """Where the library is installed it writes the expression, as pdsh, clush and Slurm of that site read it."""

    def test_the_library_itself(self) -> None:
        library = pytest.importorskip("ClusterShell.NodeSet")
        for names, _ in TABLE:
            assert set(library.NodeSet(fold(names))) == set(names)
        assert fold(f"gpu{n:03d}" for n in range(1, 129)) == "gpu[001-128]"
        assert fold(["r1-n1", "r1-n2", "r2-n1", "r2-n2"]) == "r[1-2]-n[1-2]"  # over two dimensions, which ours is not

    def test_names_that_its_grammar_has_other_uses_for(self) -> None:
        """Paths of snapshots and names with brackets, commas or `@` never reach it."""
        names = ["a/gpu1.tar", "a/gpu2.tar", "@all", "n[1-9]", "x,y"]
        assert fold(names) == nodeset._fold(sorted(names, key=nodeset._order))

    def test_it_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class NodeSet:
            @staticmethod
            def fromlist(names: list[str]) -> str:
                return "/".join(names)

        module = types.ModuleType("ClusterShell.NodeSet")
        module.__dict__["NodeSet"] = NodeSet
        monkeypatch.setitem(sys.modules, "ClusterShell", types.ModuleType("ClusterShell"))
        monkeypatch.setitem(sys.modules, "ClusterShell.NodeSet", module)
        assert fold(["n2", "n1"]) == "n1/n2"
        assert fold(["n2", "/n1"]) == "/n1,n2"
