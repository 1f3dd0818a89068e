"""A corrected cufile.json: only corrections that leave no doubt about what was meant. The rest stays for the operator."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

from gdsctl.assess.cufile_lint import PathKind, belongs, lint, type_fault
from gdsctl.assess.cufile_merge import Problem, get
from gdsctl.data import cufile_keys
from gdsctl.data.cufile_keys import Key
from gdsctl.data.cufile_keys import keys as all_keys
from gdsctl.parse.cufile_json import parse
from gdsctl.record import Record

_ROUNDS = 4  # a moved key may want its value corrected, and that its neighbour's
_MOST_RENAMED = 50
# Strings, comments, marks, scalars and blanks; what has no end goes to the end of the text, so that time stays linear.
_PIECE = re.compile(
    r'"(?:[^"\\]|\\.)*(?:"|\Z)|//[^\r\n]*|/\*.*?(?:\*/|\Z)|#[^\r\n]*|[{}\[\],:]|[^\s{}\[\],:"#/]+|\s+|.', re.DOTALL
)
_MISSPELT = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "None": "null", "Null": "null"}
_DIRECT, _BUFFER = "properties.max_direct_io_size_kb", "properties.per_buffer_cache_size_kb"
_SIZES, _COUNTS = "properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count"
_SLABS = "properties.gpu_bounce_buffer_slab_config"


class Fixed(Record, frozen=True, kw_only=True):
    """`text`: plain JSON without comments; `changes`: one sentence each; `left`: what lint still says of it."""

    text: str
    changes: tuple[str, ...]
    left: tuple[Problem, ...]


def fix(
    path: str, text: str, *, version: str | None, kind_of: Callable[[str], PathKind | None] | None = None
) -> Fixed | None:
    """The file with its safe corrections; None where there is none to make, or the text cannot be read even so.

    Never makes a file worse: a name that libcufile passed over is put right only if the library takes the result.
    """
    readable, changes = (text, []) if parse(text).valid else repaired(text)
    read = parse(readable)
    if not read.valid:
        return None
    root = read.value if isinstance(read.value, dict) else {}
    changes += [f"{pointer}: given more than once, the last one kept" for pointer in read.duplicates]
    fixer = _Fixer(path, copy.deepcopy(root), version, kind_of)
    changes += fixer.run()
    if not changes:
        return None
    if read.comments:
        changes.append("comments left out")
    return Fixed(text=fixer.text, changes=tuple(changes), left=fixer.problems())


def repaired(text: str) -> tuple[str, list[str]]:
    """The text with what JsonCpp refuses and people write all the same put right, and what that was."""
    told: dict[str, None] = {}
    if text.startswith("\ufeff"):
        text = text[1:]
        told["byte order mark taken out"] = None
    out: list[str] = []
    last = -1  # place in `out` of the last piece that is neither blank nor comment
    for piece in _PIECE.findall(text):
        if piece.startswith("#"):
            told["# comments taken out"] = None
            continue
        if piece.isspace() or piece.startswith(("//", "/*")):
            out.append(piece)
            continue
        before = out[last] if last >= 0 else ""
        if piece in {"]", "}"} and before == ",":
            out[last] = ""
            told["commas before a closing bracket taken out"] = None
        elif piece not in {"]", "}", ",", ":"} and before not in {"", "[", "{", ",", ":"}:
            out.insert(last + 1, ",")
            told["missing commas put in"] = None
        if piece in _MISSPELT:
            told[f"{piece} written as JSON has it"] = None
        last = len(out)
        out.append(_MISSPELT.get(piece, piece))
    return "".join(out), list(told)


class _Fixer:
    def __init__(
        self, path: str, root: dict[str, Any], version: str | None, kind_of: Callable[[str], PathKind | None] | None
    ) -> None:
        self.path = path
        self.root = root
        self.version = version
        self.kind_of = kind_of
        self.renamed = 0

    @property
    def text(self) -> str:
        return json.dumps(self.root, indent=2) + "\n"

    def problems(self, root: dict[str, Any] | None = None) -> tuple[Problem, ...]:
        text = self.text if root is None else json.dumps(root)
        return lint([(self.path, text)], version=self.version, env={}, kind_of=self.kind_of)

    def run(self) -> list[str]:
        changes: list[str] = []
        for _ in range(_ROUNDS):
            found = [change for problem in self.problems() if (change := self._one(problem))]
            changes += found
            if not found:
                break
        return list(dict.fromkeys(changes))

    def _one(self, problem: Problem) -> str | None:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in (problem.pointer or "").split("/")[1:]]
        place = self._place(parts)
        if place is None:
            return None
        dotted = ".".join(parts)
        if problem.id == "cufile.label-not-key":
            return self._rename(parts, next((row.key for row in cufile_keys.labels() if row.label == dotted), None))
        if problem.id == "cufile.wrong-section":
            homes = belongs(dotted)
            return self._rename(parts, homes[0]) if len(homes) == 1 else None
        if problem.id == "cufile.unknown-key":
            same = [row.key for row in all_keys() if row.key.lower() == dotted.lower()]
            return self._rename(parts, same[0]) if same else None
        if problem.id == "cufile.dead-key":
            return self._dead(parts, dotted, problem)
        if problem.id == "cufile.slab-lengths":
            return self._pair(dotted)
        if problem.id == "rdma.dev-addr-not-ipv4":
            return self._address(*place)
        key = cufile_keys.key(dotted) or cufile_keys.key(".".join(parts[:-1]))
        if key is None:
            return self._section(parts, *place) if problem.id == "cufile.type" else None
        if problem.id == "cufile.type":
            return self._type(key, *place)
        if problem.id in ("cufile.alignment", "cufile.range"):
            return self._number_or_word(key, problem, *place)
        return None

    def _place(self, parts: list[str]) -> tuple[Any, Any] | None:
        """(container, key or index) of what stands at a pointer now."""
        container: Any = self.root
        for at, part in enumerate(parts):
            index: Any = int(part) if isinstance(container, list) and part.isdecimal() else part
            there = (
                index < len(container) if isinstance(index, int) else isinstance(container, dict) and index in container
            )
            if not there:
                return None
            if at == len(parts) - 1:
                return container, index
            container = container[index]
        return None

    # --- names ----------------------------------------------------------------------------------------------------

    def _rename(self, parts: list[str], target: str | None) -> str | None:
        """Take a name that has no effect to the key that is meant, or out; not where the library would then refuse."""
        shown = ".".join(parts)
        trial = copy.deepcopy(self.root)
        value = _taken(trial, parts)
        there = get(trial, target) if target is not None else None
        if target is not None and isinstance(there, dict) and isinstance(value, dict):
            shown, value = f"{shown} (joined with what {target} has)", _joined(there, value)
        elif target is None or there is not None:
            self.root = trial
            return f"{shown} taken out" + (f": {target} is set already" if target else ": it has no effect")
        self.renamed += 1
        if not _put(trial, target, value) or self.renamed > _MOST_RENAMED:
            return None
        key = cufile_keys.key(target)
        if key is not None and type_fault(key, value):
            corrected = _retyped(key, value)
            if corrected is None:
                return None
            _put(trial, target, corrected)
        if sum(p.fatal for p in self.problems(trial)) > sum(p.fatal for p in self.problems()):
            return None
        self.root = trial
        return f"{shown} -> {target}"

    def _dead(self, parts: list[str], dotted: str, problem: Problem) -> str | None:
        for row in cufile_keys.dead_keys():
            if row.key == dotted:
                return self._rename(parts, row.instead)
            if row.key.endswith(".*") and f"{dotted}.*" == row.key and row.instead:
                return self._rename(parts, row.instead.removesuffix(".*"))
        # Without effect in some of the releases asked about only: it stays for the others.
        return self._rename(parts, None) if problem.since is None or self.version else None

    # --- values ---------------------------------------------------------------------------------------------------

    def _section(self, parts: list[str], container: Any, name: Any) -> str | None:
        """A section that libcufile dies of and that says nothing."""
        if container[name]:
            return None
        _taken(self.root, parts)
        return f"{'.'.join(parts)} taken out: empty, and no object"

    def _type(self, key: Key, container: Any, name: Any) -> str | None:
        before = container[name]
        after = _retyped(key, before)
        if after is None:
            return None
        container[name] = after
        return f"{key.key}: {json.dumps(before)} -> {json.dumps(after)}"

    def _number_or_word(self, key: Key, problem: Problem, container: Any, name: Any) -> str | None:
        before = container[name]
        after: Any = None
        bounds = key.range_in(self.version or cufile_keys.releases()[-1].gds)
        if isinstance(before, str):
            after = next((word for word in key.values if word.lower() == before.lower()), None)
        elif key.key == f"{_SLABS}.slab_size_kb" and isinstance(before, list):
            return self._ascending()
        elif isinstance(before, int) and bounds and problem.id == "cufile.alignment" and bounds.multiple_of:
            step = bounds.multiple_of
            after = max(before // step * step, -(-(bounds.min or step) // step) * step)
        elif isinstance(before, int) and key.out_of_range == "clamped" and bounds:
            after = min(max(before, bounds.min or 0), before if bounds.max is None else bounds.max)
        elif key.key in (_DIRECT, _BUFFER):
            return self._beside(key, before)
        if after is None or after == before:
            return None
        container[name] = after
        return f"{key.key}: {json.dumps(before)} -> {json.dumps(after)}"

    def _beside(self, key: Key, value: Any) -> str | None:
        """The library compares the two; where the file names one of them only, that one holds."""
        other = _BUFFER if key.key == _DIRECT else _DIRECT
        bounds = key.range_in(self.version or cufile_keys.releases()[-1].gds)
        fits = isinstance(value, int) and bounds and (bounds.min or 0) <= value <= (bounds.max or value)
        if not fits or get(self.root, other) is not None:
            return None
        _put(self.root, other, value)
        return f"{other}: {value}, as {key.key}"

    def _pair(self, dotted: str) -> str | None:
        """Sizes and counts belong together by their place: what has no partner is left out."""
        if dotted == _SLABS:
            sizes_key, counts_key = f"{_SLABS}.slab_size_kb", f"{_SLABS}.slab_count"
        else:
            sizes_key, counts_key = _SIZES, _COUNTS
        sizes, counts = get(self.root, sizes_key), get(self.root, counts_key)
        for missing, there in ((counts_key, sizes), (sizes_key, counts)):
            default = cufile_keys.key(missing)
            usual = default.default_in(self.version or cufile_keys.releases()[-1].gds) if default else None
            if get(self.root, missing) is None and usual and isinstance(there, list) and 0 < len(there) < len(usual):
                _put(self.root, missing, list(usual[: len(there)]))
                return f"{missing}: {json.dumps(list(usual[: len(there)]))}, the library's own, as many as there are"
        if not (isinstance(sizes, list) and isinstance(counts, list) and sizes and counts) or len(sizes) == len(counts):
            return None
        short = min(len(sizes), len(counts))
        _put(self.root, sizes_key, sizes[:short])
        _put(self.root, counts_key, counts[:short])
        return f"{sizes_key}, {counts_key}: cut to the {short} that have a partner"

    def _ascending(self) -> str | None:
        sizes, counts = get(self.root, f"{_SLABS}.slab_size_kb"), get(self.root, f"{_SLABS}.slab_count")
        plain = isinstance(counts, list) and all(isinstance(n, int) for n in [*sizes, *counts])
        if not plain or len(sizes) != len(counts) or len(set(sizes)) != len(sizes):
            return None
        pairs = sorted(zip(sizes, counts, strict=True))
        if [size for size, _ in pairs] == sizes:
            return None
        _put(self.root, f"{_SLABS}.slab_size_kb", [size for size, _ in pairs])
        _put(self.root, f"{_SLABS}.slab_count", [count for _, count in pairs])
        return f"{_SLABS}: sorted by size"

    def _address(self, container: Any, name: Any) -> str | None:
        before = container[name]
        bare = (
            re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,3}){3})(?:/\d{1,2})?\s*", before) if isinstance(before, str) else None
        )
        if bare is None or bare[1] == before:
            return None
        container[name] = bare[1]
        return f"{before!r} -> {bare[1]}"


def _retyped(key: Key, value: Any) -> Any:
    """The value in the type of its key where that leaves no doubt, else None."""
    after: Any = None
    if key.type == "bool":
        after = {"true": True, "false": False, "1": True, "0": False}.get(str(value).strip().lower())
    elif key.type in ("uint", "int") and isinstance(value, str) and re.fullmatch(r"\s*\d{1,10}\s*", value):
        after = int(value)
    elif key.type == "string_list" and isinstance(value, str) and value:
        after = [part.strip() for part in value.split(",")]
    elif key.type == "uint_list" and isinstance(value, list):
        after = [int(n) if isinstance(n, str) and n.isdecimal() and n.isascii() and len(n) < 10 else n for n in value]
    elif key.type == "hex" and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        after = f"0x{value:x}"
    elif key.type == "mount_table" and isinstance(value, dict):
        after = {m: {"rdma_dev_addr_list": entry} if isinstance(entry, list) else entry for m, entry in value.items()}
    return None if after is None or type_fault(key, after) else after


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both sections as one: lists united, of two other values the first."""
    both = {**second, **first}
    for name, more in second.items():
        if isinstance(more, list) and isinstance(first.get(name), list):
            both[name] = [*first[name], *(entry for entry in more if entry not in first[name])]
    return both


def _taken(root: dict[str, Any], parts: list[str]) -> Any:
    """Take a value out, and the objects that it leaves empty."""
    above: list[dict[str, Any]] = [root]
    for part in parts[:-1]:
        above.append(above[-1][part])
    value = above[-1].pop(parts[-1])
    for container, name in zip(reversed(above[:-1]), reversed(parts[:-1]), strict=True):
        if container[name] == {}:
            del container[name]
    return value


def _put(root: dict[str, Any], dotted: str, value: Any) -> bool:
    """Set a value by its dotted path; False where something else than an object stands in the way."""
    *sections, name = dotted.split(".")
    place = root
    for section in sections:
        if place.get(section) is None:
            place[section] = {}
        place = place[section]
        if not isinstance(place, dict):
            return False
    place[name] = value
    return True
