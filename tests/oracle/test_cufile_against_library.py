"""The tables, the reader, the merge and the lint held against libcufile itself."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdsctl.assess.cufile_lint import PathKind, lint
from gdsctl.assess.cufile_merge import get, merge
from gdsctl.data import cufile_keys
from gdsctl.parse.cufile_json import parse
from tests.oracle import oracle

if TYPE_CHECKING:
    from tests.oracle.conftest import Libcufile

pytestmark = pytest.mark.oracle
KEYS = cufile_keys.keys()


def nested(dotted: str, value: Any) -> Any:
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return value


def kind_of(path: str) -> PathKind | None:
    return "directory" if os.path.isdir(path) else "other" if os.path.exists(path) else "absent"


def effective(answer: dict[str, Any], key: cufile_keys.Key) -> Any:
    """The value the library shows for a key, or ... where it shows none."""
    shown = answer["effective"].get(key.label or key.key, answer.get("parameters", {}).get(key.key, ...))
    return tuple(shown) if isinstance(shown, list) else shown


def test_defaults(libcufile: Libcufile) -> None:
    answer = libcufile.ask("{}")
    assert answer["library"]["version"] == libcufile.version
    compared = 0
    for key in cufile_keys.known(libcufile.version):
        shown = effective(answer, key)
        default = key.default_in(libcufile.version)
        if shown is ... or key.key == "logging.level" or default is None:  # the oracle sets the level itself
            continue
        compared += 1
        assert shown == default, key.key
    assert compared >= 25


def test_known_keys(libcufile: Libcufile) -> None:
    names = [key.key for key in KEYS if key.type != "object"]
    names += [row.label for row in cufile_keys.labels()]
    names += [row.key for row in cufile_keys.dead_keys() if not row.key.endswith(".*")] + ["blacklist.drivers"]
    answers = libcufile.probe([oracle._wrong_type(name) for name in names])
    for name, answer in zip(names, answers, strict=True):
        key = cufile_keys.key(name)
        assert oracle._knows(name, answer) == (key is not None and key.known_in(libcufile.version)), name


# Bounds that hold only beside another key.
BESIDE: dict[str, dict[str, Any]] = {
    "properties.max_direct_io_size_kb": {"per_buffer_cache_size_kb": 64},
    "properties.per_buffer_cache_size_kb": {"max_direct_io_size_kb": 16384},
}


def with_value(key: cufile_keys.Key, number: int) -> str:
    value = [number] * 3 if key.type == "uint_list" else number
    document = nested(key.key, value)
    if key.key in BESIDE:
        document["properties"].update(BESIDE[key.key])
    return json.dumps(document)


def test_bounds(libcufile: Libcufile) -> None:
    asked: list[tuple[str, str, bool]] = []
    for key in cufile_keys.known(libcufile.version):
        bounds = key.range_in(libcufile.version)
        if bounds is None or key.out_of_range != "refused":
            continue
        step = bounds.multiple_of or 1
        numbers = [(number, True) for number in key.also]
        # the size of a whole address space cannot be allocated; its upper bound is the library's word
        if bounds.max is not None and key.key != "properties.max_device_cache_size_kb":
            numbers += [(bounds.max, True), (bounds.max + step, False)]
        if bounds.min is not None:
            numbers.append((bounds.min, True))
            below = bounds.min - step
            if below >= 0 and below not in key.also:
                numbers.append((below, False))
        if step > 1:
            base = bounds.min if bounds.min is not None else step
            numbers += [(base + step + 1, False), (base + step, True)]
        for number, fits in numbers:
            if key.type == "uint_list" and fits and number > 2**20:  # would be allocated
                continue
            asked.append((key.key, with_value(key, number), fits))
    refused = libcufile.refuses([text for _, text, _ in asked])
    assert len(asked) > 40
    for (name, text, fits), no in zip(asked, refused, strict=True):
        assert no is not fits, (name, text)


def test_clamped(libcufile: Libcufile) -> None:
    keys = [key for key in cufile_keys.known(libcufile.version) if key.out_of_range == "clamped"]
    document: dict[str, Any] = {"properties": {}}
    for key in keys:
        bounds = key.range_in(libcufile.version)
        assert bounds is not None
        assert bounds.max is not None
        document["properties"][key.key.split(".")[1]] = bounds.max + 1
    answer = libcufile.ask(document)
    assert answer["accepted"]
    for key in keys:
        bounds = key.range_in(libcufile.version)
        assert bounds is not None
        assert effective(answer, key) == bounds.max, key.key


SECTION_VALUES: list[Any] = ["x", [], 1, None, {}]
VALUES: list[Any] = [
    None, True, 0, 1, -1, 1.5, 3, 64, 100, 2**32, -(2**63), "x", "", "64", [], {}, [1], ["x"], [True, None], [4, 8],
    [4, 8, 16], {"a": 1}, {"/tmp": {"rdma_dev_addr_list": ["a"]}}, {"/tmp": {"rdma_dev_addr_list": "a"}},
    {"/no/such": {"rdma_dev_addr_list": ["a"]}},
]  # fmt: skip


def test_fatal_is_refused_and_nothing_else(libcufile: Libcufile) -> None:
    documents = [json.dumps(nested(key.key, value)) for key in KEYS for value in VALUES]
    documents += [json.dumps(nested(name, value)) for name in cufile_keys.sections() for value in SECTION_VALUES]
    # 1.11 looks at the low 32 bits of this one
    documents = [text for text in documents if not ("per_buffer" in text and str(2**32) in text)]
    documents = random.Random(libcufile.version).sample(documents, 300)  # noqa: S311 - a sample of questions
    refused = libcufile.refuses(documents)
    assert 50 < sum(refused) < 250
    for text, no in zip(documents, refused, strict=True):
        fatal = [p for p in lint([("f", text)], version=libcufile.version, env={}, kind_of=kind_of) if p.fatal]
        assert bool(fatal) == no, (text, fatal)


TOGETHER = [
    {"properties": {"max_direct_io_size_kb": 512}},
    {"properties": {"per_buffer_cache_size_kb": 2048}},
    {"properties": {"max_direct_io_size_kb": 512, "per_buffer_cache_size_kb": 512}},
    {"properties": {"posix_pool_slab_size_kb": [4]}},
    {"properties": {"posix_pool_slab_count": [4]}},
    {"properties": {"posix_pool_slab_size_kb": [4, 8], "posix_pool_slab_count": [4]}},
    {"properties": {"posix_pool_slab_size_kb": [4, 8], "posix_pool_slab_count": [4, 2]}},
    {"properties": {"posix_pool_slab_size_kb": [4, 8], "posix_pool_slab_count": []}},
    {"properties": {"max_direct_io_size_kb": 512, "gpu_bounce_buffer_slab_config": {"slab_size_kb": [64], "slab_count": [1]}}},
    {"properties": {"max_direct_io_size_kb": 512, "gpu_bounce_buffer_slab_config": {"slab_size_kb": [5], "slab_count": [1]}}},
    {"logging": {"dir": "/no/such/folder"}},
    {"logging": {"dir": "/tmp"}},
    {"denylist": {"devices": ["/dev/nvme99n1"]}},
    {"denylist": {"mounts": ["/no/such"]}},
    {"denylist": {"mounts": ["/tmp"]}},
    {"properties": {"rdma_peer_type": "peer_mem"}},
    {"properties": {"rdma_peer_type": "dmabuf"}},
    {"properties": {"rdma_transport_type": "auto"}},
    {"properties": {"rdma_dynamic_routing_order": ["P2P", "BOGUS"]}},
    {"blacklist": {"mounts": ["/no/such"]}},
    {"fs": {"block": {"nvme": {"use_pci_p2pdma": "x"}}}},
]  # fmt: skip


def test_keys_together(libcufile: Libcufile) -> None:
    documents = [json.dumps(document) for document in TOGETHER]
    for text, no in zip(documents, libcufile.refuses(documents), strict=True):
        fatal = [p for p in lint([("f", text)], version=libcufile.version, env={}, kind_of=kind_of) if p.fatal]
        assert bool(fatal) == no, (text, fatal)


def shut_out(libcufile: Libcufile, driver: str) -> set[str]:
    """The rows of gdscheck's DRIVER CONFIGURATION that a name in denylist.drivers disables, all modules being there."""
    answer = libcufile.ask({"denylist": {"drivers": [driver]}}, nvidia_fs=True)
    rows = (re.search(r"cufio-drv:\d+ +(\w+) *: Unsupported \(Disabled\)", line) for line in answer["log"])
    return {row[1] for row in rows if row}


def test_denying_nvme_disables_nvme_of_as_well(libcufile: Libcufile) -> None:
    assert shut_out(libcufile, "nvme") == {"NVMe", "NVMeOF"}
    assert shut_out(libcufile, "sd_mod") == set()


PIECES = st.sampled_from([
    "{", "}", "[", "]", ",", ":", '"a"', '"b"', '""', "1", "-", "01", "1.", "1e5", "true", "null", "/*c*/", "//c\n", " ", "\n",
    "$", "t", "\0", "\udcff", "é", '"\\u12"', '"\\ud800\\u0041"', "/x", "\r", "\\", "#", "'", "True",
])  # fmt: skip
MUTANTS = st.tuples(
    st.sampled_from(['{"a":1', '{"a":[1,2],"b":{"c":null}', '{"a":1/**/,"b":2', '{"":1', "", '{"a":/*x*/{"b":[{}]}']),
    st.lists(PIECES, max_size=5).map("".join),
    st.sampled_from(["}", '"b":2}', ',"b":2}', "", "} x"]),
).map("".join)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(MUTANTS, min_size=60, max_size=60))
def test_syntax(installed: Libcufile, documents: list[str]) -> None:
    """A hypothesis example is a batch: one question to the library costs more than sixty probes in it."""
    for text, answer in zip(documents, installed.probe(documents), strict=True):
        assert parse(text).valid == (answer["code"] == 0), text


# One byte, several bytes, characters on either side of the surrogates, bytes that are not UTF-8, tokens of other kinds.
IN_PLACE_OF_A_COMMA = [
    "$", "\x7f", "/x", "/é", "é", "\ue000", "\uffff", "\U0001f600", "\udc80", "\udcc3\udca9", "]", '"k"', "1", "null", ":",
]  # fmt: skip


def test_what_passes_for_a_comma_after_a_comment(installed: Libcufile) -> None:
    documents = [f'{{"a":1/*c*/{token} "b":2}}' for token in IN_PLACE_OF_A_COMMA]
    for text, answer in zip(documents, installed.probe(documents), strict=True):
        assert parse(text).valid == (answer["code"] == 0), text


def test_syntax_of_every_release(libcufile: Libcufile) -> None:
    pieces = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"a"',
        "1",
        "-.5",
        "null",
        "/*c*/",
        "//c\n",
        "\udcff",
        "\0",
        "#",
        '"\\ud800x"',
    ]
    rnd = random.Random(20)  # noqa: S311 - a sample of questions
    documents = ['{"a":1' + "".join(rnd.choices(pieces, k=rnd.randint(1, 4))) + '"b":2}' for _ in range(100)]
    documents += ["{}x", "{} \udcff", "[]", "null", "[1]", '"x"', "", "\ufeff{}", '{"x":' * 999 + "1" + "}" * 999]
    documents += ['{"x":' * 1000 + "1" + "}" * 1000, '{"a":1,}', '{"a":[1,]}', '{"a":1e400}', "{'a':1}", '{"a":True}']
    for text, answer in zip(documents, libcufile.probe(documents), strict=True):
        assert parse(text).valid == (answer["code"] == 0), text


PAIRS: list[tuple[Any, Any]] = [
    ({"properties": {"io_batchsize": 64, "poll_mode_max_size_kb": 8}}, {"properties": {"poll_mode_max_size_kb": 16}}),
    ({"properties": {"io_batchsize": 64}}, {"properties": None}),
    ({"fs": {"nfs": {"rdma_dev_addr_list": ["192.0.2.1"]}}}, {"fs": {"nfs": {"rdma_dev_addr_list": []}}}),
    (
        {"properties": {"posix_pool_slab_size_kb": [4, 8], "posix_pool_slab_count": [5, 6]}},
        {"properties": {"posix_pool_slab_count": [7, 8], "io_batchsize": 64.5}},
    ),
    (
        {"fs": {"nfs": {"mount_table": {"/tmp": {"rdma_dev_addr_list": ["192.0.2.1"]}}}}},
        {"fs": {"nfs": {"mount_table": {"/tmp": {"rdma_dev_addr_list": ["192.0.2.2"]}, "/proc": {"rdma_dev_addr_list": ["a"]}}}}},
    ),
]  # fmt: skip
VARIABLES = [
    {},
    {"CUFILE_FORCE_COMPAT_MODE": "tRuE"},
    {"CUFILE_FORCE_COMPAT_MODE": "1"},
    {"CUFILE_ALLOW_COMPAT_MODE": "false", "CUFILE_STATS_LEVEL": "2"},
    {"CUFILE_MAX_DEVICE_CACHE_SIZE": "65536", "CUFILE_USE_PCIP2PDMA": "false", "CUFILE_STATS_LEVEL": "4"},
]


@pytest.mark.parametrize("at", range(len(PAIRS)))
def test_merge(libcufile: Libcufile, at: int, tmp_path: Path) -> None:
    first, second = PAIRS[at]
    env = VARIABLES[at]
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/cufile.json").write_text(json.dumps(first))
    answer = libcufile.ask(second, root=tmp_path, gpus=["0000:17:00.0"], nvidia_fs=True, env=env)
    assert answer["opened"], answer
    merged = merge([("a", json.dumps(first)), ("b", json.dumps(second))], env, libcufile.version)
    compared = 0
    for key in cufile_keys.known(libcufile.version):
        shown = effective(answer, key)
        ours = get(merged.values, key.key)
        if shown is ... or key.key == "logging.level":
            continue
        if ours is None:
            ours = key.default_in(libcufile.version)
        if ours is None:
            continue
        compared += 1
        if key.type == "mount_table":
            ours = {mount: entry["rdma_dev_addr_list"] for mount, entry in ours.items()}
        elif isinstance(ours, (list, tuple)):
            ours, shown = (
                [str(item) for item in ours],
                str(shown).split() if isinstance(shown, str) else [str(i) for i in shown],
            )
        assert shown == ours, key.key
    assert compared >= 25


def test_every_release_is_at_hand(at_hand: list[str]) -> None:
    missing = [row.gds for row in cufile_keys.releases() if row.gds not in at_hand]
    if missing:
        pytest.skip(f"no libcufile {', '.join(missing)} here; tests/oracle/fetch.py downloads them")
    assert len(at_hand) == len(cufile_keys.releases())
