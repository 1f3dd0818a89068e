"""What is wrong with a cufile.json, judged as libcufile would take it. Rows of gdsctl/data/cufile_keys.toml say what holds."""

from __future__ import annotations

import difflib
import ipaddress
import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from gdsctl.assess import static_routing
from gdsctl.assess.cufile_merge import ENVIRONMENT, Layer, Problem, acting, add, converted, get, read
from gdsctl.data import cufile_keys, filesystems
from gdsctl.data.cufile_keys import Key
from gdsctl.data.cufile_keys import keys as all_keys
from gdsctl.data.modules import modules as module_table
from gdsctl.data.nvfs_hooks import hooks as nvfs_hooks
from gdsctl.model.devices import Nic
from gdsctl.model.node import Node
from gdsctl.parse.cufile_json import escape

PathKind = Literal["directory", "other", "there", "absent"]
"""What a path is; `there`: it stands there, and whether it is a folder is not known."""

_MOST_UNKNOWN = 100  # names without meaning that are listed of one file
_LONGEST_NAME = 200
_UINT32 = 2**32 - 1
_HEX = re.compile(r"[ \t\n]*\+?(?:0[xX])?([0-9a-fA-F]+)")
_INTERFACE = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")
_DISK = re.compile(r"/dev/(nvme\d+n\d+(?:p\d+)?|md\d+|dm-\d+)")
_DIRECT, _BUFFER = "properties.max_direct_io_size_kb", "properties.per_buffer_cache_size_kb"
_SIZES, _COUNTS = "properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count"
_SLABS = "properties.gpu_bounce_buffer_slab_config"
_ADDRESSES = "rdma_dev_addr_list"
_P2PDMA = "properties.use_pci_p2pdma"
FORCING = ("properties.force_compat_mode", "properties.vanilla_posix_io_mode")
"""Keys that send every file through host memory."""
_CONFIGURATION = ("cufile_config/files", "cufile_config/env")


def lint(
    layers: Sequence[tuple[str, str]],
    *,
    version: str | None,
    env: Mapping[str, str],
    node: Node | None = None,
    kind_of: Callable[[str], PathKind | None] | None = None,
    place: str = "",
) -> tuple[Problem, ...]:
    """Problems of the files (path, text) in the order libcufile reads them, and of CUFILE_* variables.

    `version` None: all releases are asked, and a problem of some says from and until which. `node`: lets addresses,
    mounts and devices be checked; what it does not know is not claimed. `kind_of` tells what a path is, None where
    that is not known. Order: as in the files, environment last.
    """
    asked = [version] if version else [row.gds for row in cufile_keys.releases()]
    found: dict[Problem, list[str]] = {}
    parsed = [read(path, text) for path, text in layers]
    for release in asked:
        for problem in _problems(parsed, release, env, node, kind_of, place=place, certain=version is not None):
            releases = found.setdefault(problem, [])
            if not releases or releases[-1] != release:
                releases.append(release)
    order = {path: at for at, (path, _) in enumerate(layers)}
    return tuple(
        sorted(
            (_dated(problem, releases, asked) for problem, releases in found.items()),
            key=lambda p: (order.get(p.path, len(order)), p.line or 0, p.column or 0),
        )
    )


def _dated(problem: Problem, releases: list[str], asked: list[str]) -> Problem:
    first, last = asked.index(releases[0]), asked.index(releases[-1])
    since = asked[first] if first else None
    until = asked[last + 1] if last + 1 < len(asked) else None
    when = " ".join([f"from {since} on"] * bool(since) + [f"until {until}"] * bool(until))
    says_when = problem.id in ("cufile.dead-key", "cufile.key-newer-than-library")
    message = f"{problem.message} ({when})" if when and not says_when else problem.message
    return msgspec.structs.replace(problem, since=since, until=until, message=message)


def _problems(
    parsed: Sequence[Layer | Problem],
    release: str,
    env: Mapping[str, str],
    node: Node | None,
    kind_of: Callable[[str], PathKind | None] | None,
    *,
    place: str,
    certain: bool,
) -> Iterator[Problem]:
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    whole: list[Layer] = []
    for layer in parsed:
        if isinstance(layer, Problem):
            yield layer
            continue
        whole.append(layer)
        yield from _layer_problems(layer, release, certain=certain)
        yield from _emptied(layer, values, release)
        add(layer, release, values, origin)
        yield from _together(layer, values, release)
        yield from _paths(layer, release, node, kind_of, place)
        yield from _addresses(layer, release, node)
        yield from _denied(layer, node)
        yield from _shut_out(layer)
    if len(whole) == len(parsed):
        yield from _in_the_end(whole, values, release, env, node)
        yield from _static_files(whole, values, kind_of)
        yield from _static_routing(values, node)
    yield from _environment(env, release, node, [layer.path for layer in parsed], kind_of)


def _at(layer: Layer, pointer: str, **more: Any) -> Problem:
    line, column = layer.line_column(pointer)
    return Problem(path=layer.path, line=line, column=column, pointer=pointer, **more)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."


# --- one file: names, types, ranges -------------------------------------------------------------------------------


def _layer_problems(layer: Layer, release: str, *, certain: bool) -> Iterator[Problem]:
    if layer.no_object:
        yield _at(
            layer,
            "",
            id="cufile.type",
            severity="warning",
            message="the root is no object; libcufile takes an empty list and null for an empty object, so that the file sets nothing",
            remedy='Write {"properties": {...}}, or {} where nothing is to be set.',
        )
    for pointer in layer.duplicates:
        yield _at(
            layer,
            pointer,
            id="cufile.syntax",
            severity="warning",
            message=f"{pointer} is given more than once; only the last counts, whole",
            remedy="Keep one of them.",
        )
    for dotted, since in cufile_keys.sections().items():
        section = get(layer.root, dotted)
        if section is None or isinstance(section, dict) or not _reads(since, release):
            continue
        yield _at(
            layer,
            cufile_keys.pointer(dotted),
            id="cufile.type",
            severity="critical",
            message=f"{dotted} is not an object: libcufile aborts the process",
            remedy=f'Write "{dotted.split(".")[-1]}": {{...}}.',
            fatal=True,
        )
    yield from _names(layer, release, certain=certain)
    for key in cufile_keys.known(release):
        value = get(layer.root, key.key)
        if value is not None:
            yield from _value_problems(layer, key, value, release)


def _reads(since: str, release: str) -> bool:
    return cufile_keys.release(since)[:2] <= cufile_keys.release(release)[:2]


def _names(layer: Layer, release: str, *, certain: bool) -> Iterator[Problem]:
    sections = cufile_keys.sections()
    labels = {row.label: row.key for row in cufile_keys.labels()}
    dead = {row.key: row.instead for row in cufile_keys.dead_keys()}
    unknown = 0
    stack: list[tuple[str, str, Any]] = [(name, f"/{escape(name)}", value) for name, value in layer.root.items()]
    stack.reverse()
    while stack:
        dotted, pointer, value = stack.pop()
        key = cufile_keys.key(dotted)
        known = key is not None and key.pointer == pointer
        if key is not None and known:
            yield from _by_release(layer, key, release, certain=certain)
        if dotted in sections and isinstance(value, dict):
            stack.extend((f"{dotted}.{n}", f"{pointer}/{escape(n)}", v) for n, v in reversed(value.items()))
            continue
        if known or dotted in sections:
            continue
        unknown += 1
        if unknown > _MOST_UNKNOWN:
            yield Problem(
                id="cufile.unknown-key",
                severity="warning",
                path=layer.path,
                message=f"more than {_MOST_UNKNOWN} names that libcufile does not know; the rest is not listed",
                remedy="Is this a cufile.json?",
            )
            return
        if f"{dotted}.*" in dead or dotted in dead:
            instead = dead.get(f"{dotted}.*", dead.get(dotted))
            yield _at(
                layer,
                pointer,
                id="cufile.dead-key",
                severity="warning",
                message=f"{dotted} has no effect in any release since 1.11",
                remedy=f"Use {instead.removesuffix('.*')}{_newer(instead)}." if instead else "Remove it.",
            )
        elif dotted in labels:
            yield _at(
                layer,
                pointer,
                id="cufile.label-not-key",
                severity="warning",
                message=f"{dotted} is only what gdscheck prints; as a key it is ignored",
                remedy=f"The key is {labels[dotted]}." if labels[dotted] else "Remove it.",
            )
        elif isinstance(value, dict) and value and pointer.count("/") < 5 and len(dotted) <= _LONGEST_NAME:
            # an unknown section: what stands in it may be a known key in the wrong place
            inner = list(value.items())[: _MOST_UNKNOWN + 1]
            stack.extend((f"{dotted}.{n}", f"{pointer}/{escape(n)}", v) for n, v in reversed(inner))
        else:
            yield _at(layer, pointer, severity="warning", **_stray(dotted))


def _newer(name: str) -> str:
    """A remark on a key that the oldest release of the table does not have."""
    key = cufile_keys.key(name)
    return f", which came with GDS {key.since}" if key and not key.known_in(cufile_keys.releases()[0].gds) else ""


def _stray(dotted: str) -> dict[str, Any]:
    """Id, message and remedy for a name that is no key where it stands."""
    shown = dotted if len(dotted) <= _LONGEST_NAME else dotted[:_LONGEST_NAME] + "..."
    rows = [row.key for row in all_keys()]
    placed = belongs(dotted)
    if placed:
        where = placed[0] if len(placed) == 1 else "one of " + ", ".join(placed)
        return {
            "id": "cufile.wrong-section",
            "message": f"{shown} is ignored: libcufile does not look for it there",
            "remedy": f"Move it to {where}.",
        }
    folded = {row.lower(): row for row in rows}
    close = folded.get(dotted.lower()) or next(iter(difflib.get_close_matches(shown, rows, n=1, cutoff=0.8)), None)
    return {
        "id": "cufile.unknown-key",
        "message": f"libcufile does not know {shown} and ignores it",
        "remedy": f"Is {close} meant?" if close else "Remove it, or correct its name.",
    }


def belongs(dotted: str) -> list[str]:
    """The keys that a name in the wrong place may stand for: of the same path further in, or of the same last part."""
    last = dotted.rpartition(".")[2]
    rows = [row.key for row in all_keys()]
    return [row for row in rows if dotted.endswith(f".{row}")] or [row for row in rows if row.endswith(f".{last}")]


def _by_release(layer: Layer, key: Key, release: str, *, certain: bool) -> Iterator[Problem]:
    if key.known_in(release):
        return
    if key.until and cufile_keys.release(key.until) <= cufile_keys.release(release):
        yield _at(
            layer,
            key.pointer,
            id="cufile.dead-key",
            severity="warning",
            message=f"{key.key} has no effect from {key.until} on",
            remedy="Remove it.",
        )
        return
    came = f"came with GDS {key.since}; an older library ignores it"
    if key.named:
        came = f"is named from GDS {key.named} on, but the library acts on it only from {key.since} on"
    yield _at(
        layer,
        key.pointer,
        id="cufile.key-newer-than-library",
        severity="warning" if certain else "info",
        message=f"{key.key} {came}",
        remedy=f"Upgrade GDS to {key.since}, or do without.",
    )


def _value_problems(layer: Layer, key: Key, value: Any, release: str) -> Iterator[Problem]:
    falls_back = key.key.startswith(_SLABS)
    fault = type_fault(key, value)
    if fault:
        fatal = not falls_back or key.type == "object"
        yield _at(
            layer,
            key.pointer,
            id="cufile.type",
            severity="critical" if fatal else "warning",
            message=f"{key.key}: {fault}" + ("" if fatal else "; the slab configuration is dropped"),
            remedy=f"Write {_EXAMPLES[key.type]}.",
            fatal=fatal,
        )
        return
    if key.values:
        yield from _word_problems(layer, key, value)
    items = value if isinstance(value, list) else [value]
    for at, item in enumerate(items):
        pointer = f"{key.pointer}/{at}" if isinstance(value, list) else key.pointer
        if key.type in ("uint", "int", "uint_list"):
            yield from _number_problems(layer, key, converted(key, item), release, pointer)


_EXAMPLES = {
    "bool": "true or false, without quotes",
    "uint": "a number that is not negative, without quotes",
    "int": "a whole number, without quotes",
    "string": "a text in double quotes",
    "hex": 'a hexadecimal number in double quotes, such as "0x1f"',
    "string_list": "a list of texts",
    "uint_list": "a list of numbers",
    "object": "an object",
    "mount_table": '{"/mount": {"rdma_dev_addr_list": ["192.0.2.1"]}}',
}


def type_fault(key: Key, value: Any) -> str | None:
    """Why libcufile refuses (or dies of) a value for its type; None where the type fits. Null always does."""
    if value is None or (value == "" and key.empty):
        return None
    fault = f"{_shown(value)} is not {_EXAMPLES[key.type]}"
    plain_int = isinstance(value, int) and not isinstance(value, bool)
    if key.type == "bool":
        fits = isinstance(value, bool)
    elif key.type == "uint":
        fits = isinstance(value, (bool, int)) and value >= 0
        fits = fits or (isinstance(value, float) and 0 <= value <= _UINT32)
    elif key.type == "int":
        fits = plain_int and -(2**31) <= value < 2**31
    elif key.type == "string":
        fits = isinstance(value, str)
    elif key.type == "hex":
        match = _HEX.fullmatch(value) if isinstance(value, str) else None
        fits = match is not None and int(match[1][:64], 16) <= _UINT32
    elif key.type == "string_list":
        fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
    elif key.type == "uint_list":
        fits = isinstance(value, list) and all(
            isinstance(item, int) and not isinstance(item, bool) and -(2**31) <= item <= _UINT32 for item in value
        )
    elif key.type == "object":
        fits = isinstance(value, dict)
    else:
        fits = isinstance(value, dict) and all(
            isinstance(entry, dict)
            and (
                entry.get(_ADDRESSES) is None
                or (isinstance(entry[_ADDRESSES], list) and all(isinstance(ip, str) for ip in entry[_ADDRESSES]))
            )
            for entry in value.values()
        )
    return None if fits else fault


def _word_problems(layer: Layer, key: Key, value: Any) -> Iterator[Problem]:
    fatal = key.unknown_value == "refused"
    allowed = {word.lower() for word in key.values} if key.any_case else set(key.values)
    for at, word in enumerate(value if isinstance(value, list) else [value]):
        if (word.lower() if key.any_case else word) in allowed or (word == "" and key.empty):
            continue
        yield _at(
            layer,
            f"{key.pointer}/{at}" if isinstance(value, list) else key.pointer,
            id="cufile.range",
            severity="critical" if fatal else "warning",
            message=f"{key.key}: {_shown(word)} is not one of {', '.join(key.values)}"
            + ("" if fatal else "; it is taken without complaint, but does not do what it says"),
            remedy=f"Write one of {', '.join(key.values)}, in this spelling.",
            fatal=fatal,
        )


def _number_problems(layer: Layer, key: Key, number: int, release: str, pointer: str) -> Iterator[Problem]:
    bounds = key.range_in(release)
    wraps = key.bits == 32 and number > _UINT32
    if wraps or (bounds and _outside(number, bounds.min, bounds.max) and number not in key.also):
        low = bounds.min if bounds and bounds.min is not None else 0
        high = bounds.max if bounds and bounds.max is not None else _UINT32 if key.bits == 32 else None
        allowed = f"{low} to {high}" if high is not None else f"at least {low}"
        also = "".join(f" or {number}" for number in key.also)
        fatal = wraps or key.out_of_range == "refused"
        outcome = {"clamped": "; the nearest bound is taken", "fallback": "; the slab configuration is dropped"}
        yield _at(
            layer,
            pointer,
            id="cufile.range",
            severity="critical" if fatal else "warning",
            message=f"{key.key}: {number} is outside {allowed}{also}"
            + ("; libcufile aborts the process" if wraps else outcome.get(key.out_of_range or "", "")),
            remedy=f"Write {allowed}{also}.",
            fatal=fatal,
        )
    elif bounds and bounds.multiple_of and number % bounds.multiple_of and number not in key.also:
        fatal = key.out_of_range == "refused"
        yield _at(
            layer,
            pointer,
            id="cufile.alignment",
            severity="critical" if fatal else "warning",
            message=f"{key.key}: {number} is not a multiple of {bounds.multiple_of}"
            + ("" if fatal else "; the slab configuration is dropped"),
            remedy=f"Write {max(number // bounds.multiple_of, 1) * bounds.multiple_of}.",
            fatal=fatal,
        )


def _outside(number: int, low: int | None, high: int | None) -> bool:
    return (low is not None and number < low) or (high is not None and number > high)


# --- what counts only together ------------------------------------------------------------------------------------


def _emptied(layer: Layer, before: Mapping[str, Any], release: str) -> Iterator[Problem]:
    for key in cufile_keys.known(release):
        if key.type in ("string_list", "uint_list") and get(layer.root, key.key) == [] and get(before, key.key):
            yield _at(
                layer,
                key.pointer,
                id="cufile.range",
                severity="warning",
                message=f"{key.key}: an empty list does not clear what an earlier file says",
                remedy="Change the earlier file.",
            )


def _slabs_hold(values: Mapping[str, Any]) -> bool:
    sizes, counts = get(values, f"{_SLABS}.slab_size_kb"), get(values, f"{_SLABS}.slab_count")
    return (
        isinstance(sizes, list)
        and isinstance(counts, list)
        and len(sizes) == len(counts) > 0
        and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in [*sizes, *counts])
        and all(size % 4 == 0 for size in sizes)
        and all(low < high for low, high in itertools.pairwise(sizes))
    )


def _together(layer: Layer, values: Mapping[str, Any], release: str) -> Iterator[Problem]:
    """Checks that libcufile makes after each file, on what it has by then."""
    direct, buffer = _effective(values, _DIRECT, release), _effective(values, _BUFFER, release)
    named = [key for key in (_DIRECT, _BUFFER) if get(layer.root, key) is not None]
    if _reads("1.13", release) and named and _numbers(direct, buffer) and direct < buffer and not _slabs_hold(values):
        yield _at(
            layer,
            cufile_keys.pointer(named[0]),
            id="cufile.range",
            severity="critical",
            message=f"{_DIRECT} ({direct}) is below {_BUFFER} ({buffer})"
            + ("" if len(named) == 2 else "; one of them is not in this file"),
            remedy=f"Set both, with {_DIRECT} not below {_BUFFER}.",
            fatal=True,
        )
    counts, sizes = get(layer.root, _COUNTS), _effective(values, _SIZES, release)
    if isinstance(counts, list) and counts and isinstance(sizes, (list, tuple)) and len(counts) != len(sizes):
        yield _unequal(layer, _COUNTS, len(sizes), len(counts))
    if _reads("1.20", release) and isinstance(get(layer.root, _SLABS), dict) and get(layer.root, _SLABS):
        yield from _slab_config(layer)


def _unequal(layer: Layer, key: str, sizes: int, counts: int) -> Problem:
    return _at(
        layer,
        cufile_keys.pointer(key),
        id="cufile.slab-lengths",
        severity="critical",
        message=f"{_SIZES} has {sizes} entries and {_COUNTS} has {counts}"
        + ("" if key == _COUNTS else ": libcufile aborts the process"),
        remedy="Write both lists, equally long.",
        fatal=True,
    )


def _slab_config(layer: Layer) -> Iterator[Problem]:
    sizes, counts = get(layer.root, f"{_SLABS}.slab_size_kb"), get(layer.root, f"{_SLABS}.slab_count")
    here = cufile_keys.pointer(_SLABS)
    if (sizes is None and counts is None) or any(not isinstance(x, (list, type(None))) for x in (sizes, counts)):
        return
    if len(sizes or ()) != len(counts or ()):
        yield _at(
            layer,
            here,
            id="cufile.slab-lengths",
            severity="warning",
            message=f"{_SLABS}: slab_size_kb and slab_count are not equally long; the slab configuration is dropped",
            remedy="Write both lists, equally long.",
        )
    elif (
        sizes
        and all(isinstance(size, int) for size in sizes)
        and any(low >= high for low, high in itertools.pairwise(sizes))
    ):
        yield _at(
            layer,
            f"{here}/slab_size_kb",
            id="cufile.range",
            severity="warning",
            message=f"{_SLABS}.slab_size_kb is not ascending; the slab configuration is dropped",
            remedy="Sort the sizes, and the counts with them.",
        )


def _effective(values: Mapping[str, Any], dotted: str, release: str) -> Any:
    value, key = get(values, dotted), cufile_keys.key(dotted)
    return key.default_in(release) if value is None and key is not None else value


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int) for value in values)


def _in_the_end(
    layers: Sequence[Layer], values: Mapping[str, Any], release: str, env: Mapping[str, str], node: Node | None
) -> Iterator[Problem]:
    sizes, counts = _effective(values, _SIZES, release), _effective(values, _COUNTS, release)
    sized = [layer for layer in layers if get(layer.root, _SIZES)]
    counted = [layer for layer in layers if get(layer.root, _COUNTS)]
    after_last_count = not counted or (sized and layers.index(sized[-1]) > layers.index(counted[-1]))
    both = isinstance(sizes, (list, tuple)) and isinstance(counts, (list, tuple))
    if sized and after_last_count and both and len(sizes) != len(counts):
        yield _unequal(sized[-1], _SIZES, len(sizes), len(counts))
    p2pdma, routing = get(values, _P2PDMA), get(values, "properties.rdma_dynamic_routing")
    compat = _effective(values, "properties.allow_compat_mode", release)
    by_env = {row.key: acting(row, env.get(row.name), release) for row in cufile_keys.environment() if row.key}
    if by_env.get("properties.allow_compat_mode") is not None:
        compat = by_env["properties.allow_compat_mode"]
    told = by_env.get(_P2PDMA)
    switched_on = (p2pdma if told is None else told) is True
    forced = list(_forced(layers, values, by_env, switched_on=switched_on))
    yield from forced
    if p2pdma is True and compat is True and not forced:
        layer = next(layer for layer in reversed(layers) if get(layer.root, "properties.use_pci_p2pdma") is not None)
        yield _at(
            layer,
            "/properties/use_pci_p2pdma",
            id="cufile.compat-hides-failure",
            severity="info",
            message="P2PDMA is asked for and compatible mode allowed: where P2PDMA does not work, I/O goes through host"
            " memory without an error",
            remedy="Set properties.allow_compat_mode to false while proving the path.",
        )
    yield from _p2pdma_keys(layers, values, release, switched_on=switched_on)
    yield from _named_twice(layers, values, node)
    named = [layer for layer in layers if get(layer.root, "logging.dir")]
    if named and not env.get("CUFILE_LOGFILE_PATH"):
        yield _at(
            named[-1],
            "/logging/dir",
            id="cufile.log-name",
            severity="info",
            message="with logging.dir the log is cufile_PID_DATE.TIME.log, one a process, not cufile.log",
            remedy="Look for files of that name; they are not rotated or removed.",
        )
    addresses = get(values, f"properties.{_ADDRESSES}")
    sections = [value for value in (get(values, "fs") or {}).values() if isinstance(value, dict)]
    if any(section.get(_ADDRESSES) or section.get("mount_table") for section in sections):
        addresses = True
    if routing is True and not addresses:
        layer = next(
            layer for layer in reversed(layers) if get(layer.root, "properties.rdma_dynamic_routing") is not None
        )
        yield _at(
            layer,
            "/properties/rdma_dynamic_routing",
            id="rdma.dev-addr-list-empty",
            severity="warning",
            message="dynamic routing is on, but no RDMA address is named, so that no route can be chosen",
            remedy=f"Name this node's RDMA addresses in properties.{_ADDRESSES}.",
        )
    elif node is not None and not addresses:
        kinds = {mount.backing.kind for mount in node.mounts} & {"wekafs", "gpfs"}
        for kind in sorted(kinds):
            yield Problem(
                id="rdma.dev-addr-list-empty",
                severity="warning",
                path=layers[-1].path if layers else "/etc/cufile.json",
                message=f"a {kind} file system is mounted, but no RDMA address is named: its I/O does not go direct",
                remedy=f"Name this node's RDMA addresses in properties.{_ADDRESSES}.",
            )


def _forced(
    layers: Sequence[Layer], values: Mapping[str, Any], by_env: Mapping[str, Any], *, switched_on: bool
) -> Iterator[Problem]:
    """Host memory for every file; an error where the same configuration asks for a direct path."""
    asked = [key.key for key in all_keys() if key.key.endswith(".use_pci_p2pdma") and get(values, key.key) is True]
    if switched_on:
        asked.insert(0, _P2PDMA)
    against = [f"{key} is true" for key in dict.fromkeys(asked)]
    if get(values, "properties.allow_compat_mode") is False:
        against.append("properties.allow_compat_mode is false")
    fault: dict[str, Any] = {
        "id": "cufile.compat-forced",
        "severity": "error" if against else "info",
        "remedy": "Keep one of the two: take it out where a path is meant to be direct."
        if against
        else "Take it out where a path is meant to be direct.",
    }
    for name in FORCING:
        told = by_env.get(name)
        if (get(values, name) if told is None else told) is not True:
            continue
        fault["message"] = f"{name} is true: all I/O goes through host memory" + (
            f", although {' and '.join(against)}" if against else ""
        )
        if told is None:
            layer = next(layer for layer in reversed(layers) if get(layer.root, name) is not None)
            yield _at(layer, cufile_keys.pointer(name), **fault)
        else:
            yield _variable(next(row.name for row in cufile_keys.environment() if row.key == name), **fault)


def _p2pdma_keys(
    layers: Sequence[Layer], values: Mapping[str, Any], release: str, *, switched_on: bool
) -> Iterator[Problem]:
    """From 1.16 on P2PDMA takes two keys, for the process and for the kind of storage; either alone does nothing."""
    if not _reads("1.16", release):
        return
    rows = (*filesystems.tables().filesystem, *filesystems.tables().target)
    acted_on = dict.fromkeys(
        name
        for row in rows
        for pointer in row.p2pdma_keys
        if (name := pointer.strip("/").replace("/", ".")) != _P2PDMA and row.p2pdma
    )
    named = {
        key.key: next(layer for layer in reversed(layers) if get(layer.root, key.key) is not None)
        for key in cufile_keys.known(release)
        if key.key.endswith(".use_pci_p2pdma") and get(values, key.key) is True and key.key != _P2PDMA
    }
    for name, layer in named.items():
        if name not in acted_on:
            yield _at(
                layer,
                cufile_keys.pointer(name),
                id="p2pdma.filesystem-unsupported",
                severity="warning",
                message=f"{name} is read, but there is no P2PDMA route for this kind of storage",
                remedy="Remove it: nvidia-fs or user-space RDMA carry such storage.",
            )
        elif not switched_on:
            yield _at(
                layer,
                cufile_keys.pointer(name),
                id="p2pdma.half-configured",
                severity="warning",
                message=f"{name} has no effect while {_P2PDMA} is not true",
                remedy=f"Set {_P2PDMA} to true, or remove it.",
            )
    if switched_on and acted_on.keys().isdisjoint(named):
        fault = {
            "id": "p2pdma.half-configured",
            "severity": "warning",
            "message": f"{_P2PDMA} is true, but no key names storage to use it for, so nothing goes over P2PDMA",
            "remedy": f"Set the key of your storage to true: {', '.join(acted_on)}.",
        }
        at = next((layer for layer in reversed(layers) if get(layer.root, _P2PDMA) is True), None)
        yield _at(at, "/properties/use_pci_p2pdma", **fault) if at else _variable("CUFILE_USE_PCIP2PDMA", **fault)


def _static_files(
    layers: Sequence[Layer], values: Mapping[str, Any], kind_of: Callable[[str], PathKind | None] | None
) -> Iterator[Problem]:
    """Files that take the place of a look at the machine; without them the library looks, after an ERROR line."""
    for name, written in (
        ("routing", "gdsctl plan --emit static-routing (what gdscheck -e sysfs writes wants its -1 filled in)"),
        ("config", "gdscheck -e config -o FILE"),
    ):
        if get(values, f"miscellaneous.enable_static_{name}") is not True:
            continue
        path = get(values, f"miscellaneous.static_{name}_filepath") or "none"
        there = kind_of(path) if kind_of and path != "none" else None
        if path != "none" and there in (None, "other", "there"):
            continue
        key = f"enable_static_{name}"
        layer = next(la for la in reversed(layers) if get(la.root, f"miscellaneous.{key}") is not None)
        yield _at(
            layer,
            f"/miscellaneous/{key}",
            id="cufile.missing-path",
            severity="warning",
            message=f"miscellaneous.{key} is on, but "
            + ("no file is named" if path == "none" else f"{path!r} is no file")
            + "; libcufile looks at the machine instead",
            remedy=f"Write it on this node, {written}, and name it in miscellaneous.static_{name}_filepath.",
        )


def _static_routing(values: Mapping[str, Any], node: Node | None) -> Iterator[Problem]:
    path = static_routing.asked_for(values)
    text = node.gds.cufile_config.static_routing if node else None
    if path is not None and text is not None:
        yield from static_routing.lint(path, text, node=node)


def _named_twice(layers: Sequence[Layer], values: Mapping[str, Any], node: Node | None) -> Iterator[Problem]:
    """Addresses of one file system by two ways, and mounts that are one to the library, which goes by device number."""
    numbers = {mount.target: mount.major_minor for mount in node.mounts} if node else {}
    for section, inner in (get(values, "fs") or {}).items():
        table = inner.get("mount_table") if isinstance(inner, dict) else None
        layer = next((layer for layer in reversed(layers) if get(layer.root, f"fs.{section}.mount_table")), None)
        if not isinstance(table, dict) or layer is None:
            continue
        if inner.get(_ADDRESSES):
            yield _at(
                layer,
                f"/fs/{section}/mount_table",
                id="cufile.address-lists",
                severity="warning",
                message=f"fs.{section} has {_ADDRESSES} and mount_table; NVIDIA allows one of them, and a mount's own"
                " addresses come first",
                remedy="Keep mount_table where mounts differ, the list where they do not.",
            )
        by_number: dict[str, list[str]] = {}
        for mount in table:
            if number := numbers.get(mount.rstrip("/") or "/"):
                by_number.setdefault(number, []).append(mount)
        for mounts in by_number.values():
            if len(mounts) > 1:
                yield _at(
                    layer,
                    f"/fs/{section}/mount_table/{escape(mounts[1])}",
                    id="cufile.address-lists",
                    severity="warning",
                    message=f"{' and '.join(mounts)} are one file system: libcufile joins their addresses",
                    remedy="Name one of them.",
                )


# --- what the node tells ------------------------------------------------------------------------------------------


def unseen(
    layers: Sequence[tuple[str, str]],
    *,
    version: str | None,
    node: Node | None = None,
    kind_of: Callable[[str], PathKind | None] | None = None,
) -> tuple[str, ...]:
    """Paths that libcufile looks at when it reads the files, and of which it is not known whether they are there."""
    kind, release = _kinds(node, kind_of), version or cufile_keys.releases()[-1].gds
    parsed = [layer for path, text in layers if isinstance(layer := read(path, text), Layer)]
    paths = dict.fromkeys(path for layer in parsed for _, _, path, _ in _named_paths(layer, release))
    return tuple(path for path in paths if path and kind(path) is None)


def _kinds(node: Node | None, kind_of: Callable[[str], PathKind | None] | None) -> Callable[[str], PathKind | None]:
    """What a path is, by who looked and by the node's mounts and disks."""
    targets = _folders(node)
    disks = {block.name for block in node.block} if node else set()

    def kind(path: str) -> PathKind | None:
        if path in (".", "..") or (path.startswith("/") and posixpath.normpath(path) in targets):
            return "directory"
        told = kind_of(path) if kind_of else None
        disk = _DISK.fullmatch(path)
        if told is None and disk and disks and node is not None and node.gap("block", "name") is None:
            return "other" if disk[1] in disks else "absent"
        return told

    return kind


def _folders(node: Node | None) -> set[str]:
    """Mount targets and the folders above them, which are there whatever else is known."""
    targets = [mount.target for mount in node.mounts] if node else []
    return {*targets, *(str(folder) for target in targets for folder in PurePosixPath(target).parents)}


def _paths(
    layer: Layer, release: str, node: Node | None, kind_of: Callable[[str], PathKind | None] | None, place: str
) -> Iterator[Problem]:
    targets = {mount.target.rstrip("/") or "/" for mount in node.mounts} if node else set()
    kind = _kinds(node, kind_of)
    for key, pointer, path, wants_folder in _named_paths(layer, release):
        found = kind(path)
        if path == "" or found == "absent" or (wants_folder and found == "other"):
            yield _at(
                layer,
                pointer,
                id="cufile.missing-path",
                severity="critical",
                message=f"{key}: {path!r} is not {'a folder' if wants_folder else 'there'}{place}; libcufile refuses the file",
                remedy="Mount or create it for every process that uses cuFile, or take it out.",
                fatal=True,
            )
        elif key.endswith(".mount_table") and targets and (path.rstrip("/") or "/") not in targets:
            yield _at(
                layer,
                pointer,
                id="cufile.missing-path",
                severity="error",
                message=f"{key}: nothing is mounted on {path}; without the folder libcufile refuses the file, with it"
                " the addresses count for the file system below",
                remedy="Mount it before cuFile processes start, or take it out.",
            )


def _named_paths(layer: Layer, release: str) -> Iterator[tuple[str, str, str, bool]]:
    """(key, pointer, path, must be a folder) of the paths that libcufile looks at when it reads the file."""
    for key in cufile_keys.known(release):
        value = get(layer.root, key.key)
        if type_fault(key, value):
            continue
        if key.key == "logging.dir" and isinstance(value, str):
            yield key.key, key.pointer, value, True
        elif key.type == "mount_table" and isinstance(value, dict):
            for mount, entry in value.items():
                if entry.get(_ADDRESSES):  # without addresses the entry is dropped unseen
                    yield key.key, f"{key.pointer}/{escape(mount)}", mount, True
        elif key.key in ("denylist.mounts", "denylist.devices") and isinstance(value, list):
            for at, path in enumerate(value):
                yield key.key, f"{key.pointer}/{at}", path, False


def _denied(layer: Layer, node: Node | None) -> Iterator[Problem]:
    """Names in a denylist that are nobody's, so that the entry shuts nothing out. libcufile checks none of them."""
    known = {"filesystems": {fstype for row in filesystems.tables().filesystem for fstype in row.fstypes}}
    if node is not None:
        known["filesystems"] |= {mount.fstype for mount in node.mounts}
        if node.modules and not any(gap.section == "modules" and gap.field == "loaded" for gap in node.gaps):
            known["drivers"] = {*node.modules, *module_table()}
    for kind, names in known.items():
        listed = get(layer.root, f"denylist.{kind}")
        for at, name in enumerate(listed if isinstance(listed, list) else ()):
            if not isinstance(name, str) or name in names or name.startswith("fuse."):
                continue
            close = next(iter(difflib.get_close_matches(name.replace("-", "_")[:_LONGEST_NAME], names, n=1)), None)
            yield _at(
                layer,
                f"/denylist/{kind}/{at}",
                id="cufile.denylist-name",
                severity="warning",
                message=f"denylist.{kind}: {name[:_LONGEST_NAME]!r} is "
                + ("no module of this node" if kind == "drivers" else "no file system type that gdsctl knows")
                + ", so the entry shuts nothing out",
                remedy=f"Is {close} meant?" if close else "Correct the name, or take it out.",
            )


def _shut_out(layer: Layer) -> Iterator[Problem]:
    """Whole kinds of storage that a denylist shuts out; a single mount or device in it was meant."""
    shut: dict[str, dict[str, tuple[str, ...]]] = {
        "drivers": {row.module: (*row.serves, *row.denied_with) for row in nvfs_hooks().values()},
        "filesystems": {fstype: (fstype,) for row in filesystems.tables().filesystem for fstype in row.fstypes},
    }
    for kind, names in shut.items():
        listed = get(layer.root, f"denylist.{kind}")
        for at, name in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(name, str) and name in names:
                yield _at(
                    layer,
                    f"/denylist/{kind}/{at}",
                    id="cufile.denylisted",
                    severity="warning",
                    message=f"denylist.{kind}: {name} shuts all such storage out of GDS: {', '.join(names[name])}",
                    remedy="Take the entry out where such storage is meant to go direct.",
                )


def _addresses(layer: Layer, release: str, node: Node | None) -> Iterator[Problem]:
    nics = node.nics if node else ()
    known = bool(nics) and node is not None and not any(gap.section == "nics" for gap in node.gaps)
    local = {ip.partition("/")[0] for nic in nics for ip in nic.ipv4}
    names = {name for nic in nics for name in (*nic.netdevs, nic.rdma_device, nic.bond) if name}
    owners = {ip.partition("/")[0]: nic for nic in nics for ip in nic.ipv4}
    used = {mount.target: mount.backing.nics for mount in node.mounts} if node else {}
    for pointer, address in _named_addresses(layer, release):
        if known and (owner := owners.get(address)) is not None:
            yield from _wrong_nic(layer, pointer, address, owner, used)
        if _is_ipv4(address):
            if known and address not in local:
                yield _at(
                    layer,
                    pointer,
                    id="rdma.dev-addr-not-local",
                    severity="error",
                    message=f"{address} is not an address of this node's NICs; these are {', '.join(sorted(local)) or 'none'}",
                    remedy="Name the client's own address on the NIC that reaches the storage, not the server's.",
                )
        elif _reads("1.16", release) and _INTERFACE.fullmatch(address):
            if known and address not in names:
                yield _at(
                    layer,
                    pointer,
                    id="rdma.dev-addr-not-local",
                    severity="error",
                    message=f"{address} is not an interface of this node; there are {', '.join(sorted(names)) or 'none'}",
                    remedy="Name an IPv4 address or an interface of this node.",
                )
        else:
            yield _at(
                layer,
                pointer,
                id="rdma.dev-addr-not-ipv4",
                severity="error",
                message=f"{address!r} is not an IPv4 address; libcufile accepts it and never finds a device for it",
                remedy="Write the plain IPv4 address of an RDMA interface of this node.",
            )


def _wrong_nic(
    layer: Layer, pointer: str, address: str, owner: Nic, used: Mapping[str, tuple[str, ...]]
) -> Iterator[Problem]:
    """An address that is local and yet of no use: on a NIC without RDMA, or beside the mount's way."""
    own = {name for name in (*owner.netdevs, owner.rdma_device, owner.bond, owner.address) if name}
    parts = pointer.split("/")
    mount = parts[4].replace("~1", "/").replace("~0", "~") if len(parts) > 4 and parts[3] == "mount_table" else ""
    nics = used.get(mount.rstrip("/") or "/", ()) if mount else ()
    if owner.rdma_device is None and owner.netdevs:
        said = f"{address} is on {owner.netdevs[0]}, which is no RDMA device"
        remedy = "Name the address of an RDMA interface."
    elif nics and not own & set(nics):
        said = f"{address} is on {owner.rdma_device}, but {mount} goes over {', '.join(nics)}"
        remedy = f"Name the addresses of {', '.join(nics)}."
    else:
        return
    yield _at(layer, pointer, id="rdma.dev-addr-wrong-nic", severity="warning", message=said, remedy=remedy)


def _named_addresses(layer: Layer, release: str) -> Iterator[tuple[str, str]]:
    for key in cufile_keys.known(release):
        value = get(layer.root, key.key)
        if value is None or type_fault(key, value):
            continue
        if key.key.endswith(f".{_ADDRESSES}"):
            yield from ((f"{key.pointer}/{at}", address) for at, address in enumerate(value))
        elif key.type == "mount_table":
            for mount, entry in value.items():
                for at, address in enumerate(entry.get(_ADDRESSES) or ()):
                    yield f"{key.pointer}/{escape(mount)}/{_ADDRESSES}/{at}", address


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


# --- environment --------------------------------------------------------------------------------------------------


def _environment(
    env: Mapping[str, str],
    release: str,
    node: Node | None,
    read_paths: Sequence[str],
    kind_of: Callable[[str], PathKind | None] | None,
) -> Iterator[Problem]:
    rows = {row.name: row for row in cufile_keys.environment()}
    for name, text in sorted(env.items()):
        row = rows.get(name)
        if row is None:
            if name.startswith("CUFILE_"):
                close = next(iter(difflib.get_close_matches(name[:_LONGEST_NAME], rows, n=1)), None)
                yield _variable(
                    name,
                    id="cufile.unknown-key",
                    severity="info",
                    message=f"libcufile does not read {name[:_LONGEST_NAME]}",
                    remedy=f"Is {close} meant?" if close else "Remove it.",
                )
        elif not row.known_in(release):
            gone = row.until is not None and cufile_keys.release(row.until) <= cufile_keys.release(release)
            yield _variable(
                name,
                id="cufile.dead-key" if gone else "cufile.key-newer-than-library",
                severity="warning",
                message=f"{name} has no effect " + (f"from {row.until} on" if gone else f"before {row.since}"),
                remedy=f"Set {row.key} in cufile.json." if row.key and gone else "Remove it.",
            )
        elif row.acts == "true_false" and text.lower() not in ("true", "false"):
            yield _variable(
                name,
                id="cufile.env-boolean",
                severity="warning",
                message=f"{name}={text[:60]!r} has no effect: only the words true and false act",
                remedy=f"Write {name}=true or {name}=false.",
            )
        elif name == "CUFILE_ENV_PATH_JSON" and text and text not in read_paths:
            known = node is not None and node.gds.cufile_config.files is not None
            if node is not None and any(g.section == "gds" and g.field in _CONFIGURATION for g in node.gaps):
                known = False
            told = kind_of(text) if kind_of else None
            if told == "absent" or (told is None and known):
                yield _variable(
                    name,
                    id="cufile.env-missing",
                    severity="error",
                    message=f"{name} names {text}, which is not there; libcufile ignores that in silence",
                    remedy="Create the file, or correct the path.",
                )
        elif row.key and row.acts in ("number", "word") and acting(row, text, release) is None:
            yield _variable(
                name,
                id="cufile.range",
                severity="warning",
                message=f"{name}={text[:60]!r} is not a value that libcufile acts on",
                remedy=row.effect,
            )


def _variable(name: str, **more: Any) -> Problem:
    return Problem(path=ENVIRONMENT, pointer=name, **more)
