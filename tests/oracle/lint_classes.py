"""What lint tells apart, one or two files for each class, and libcufile's own verdict on them.

python tests/oracle/lint_classes.py docs/lint-classes.md      asks every libcufile at hand and writes the table
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdsctl.assess.cufile_lint import PathKind, lint
from gdsctl.data import cufile_keys
from gdsctl.record import Record

if TYPE_CHECKING:
    from tests.oracle.conftest import Libcufile

NAMES_ONLY = (
    "cufile.unknown-key",
    "cufile.label-not-key",
    "cufile.wrong-section",
    "cufile.dead-key",
    "cufile.key-newer-than-library",
)
"""Classes of names that the library passes over."""


INTRODUCTION = """\
Each row is a cufile.json with one fault, what `gdsctl lint` says of it and what libcufile itself did with it, asked for
{asked_for}.

*refused*: the driver open fails. *aborts*: the process dies. *ignored*: the name has no effect, without a word.
*changed*: another value is in force, without a word. *falls back*: a message, and the legacy buffers. *taken*: read as it
stands; what is wrong shows later or not at all. Where releases differ, each answer is followed by those that gave it.
"""


class Sample(Record, frozen=True, kw_only=True):
    """A file with one fault. `text` is what a cufile.json would hold."""

    id: str
    text: str


def _sample(id_: str, document: Any) -> Sample:
    return Sample(id=id_, text=document if isinstance(document, str) else json.dumps(document))


def _props(**keys: Any) -> dict[str, Any]:
    return {"properties": keys}


SLABS = "gpu_bounce_buffer_slab_config"
SAMPLES = (
    _sample("cufile.syntax", '{"properties": {"use_pci_p2pdma": true} "block": {}}'),
    _sample("cufile.syntax", '{"properties": {"use_poll_mode": true,}}'),
    _sample("cufile.syntax", '{"properties": # mine\n{"io_batchsize": 64}}'),
    _sample("cufile.syntax", "\ufeff{}"),
    _sample("cufile.syntax", '{"properties": {"use_poll_mode": True}}'),
    _sample("cufile.syntax", '"a text"'),
    _sample("cufile.syntax", '{"properties": {"io_batchsize": 64, "io_batchsize": 32}}'),
    _sample("cufile.type", "[]"),
    _sample("cufile.type", "null"),
    _sample("cufile.type", {"properties": []}),
    _sample("cufile.type", _props(allow_compat_mode="true")),
    _sample("cufile.type", _props(allow_compat_mode=1)),
    _sample("cufile.type", _props(io_batchsize="64")),
    _sample("cufile.type", _props(io_batchsize=-1)),
    _sample("cufile.type", _props(rdma_dev_addr_list="192.0.2.1")),
    _sample("cufile.type", {"fs": {"nfs": {"mount_table": {"/tmp": ["192.0.2.1"]}}}}),
    _sample("cufile.range", _props(io_batchsize=257)),
    _sample("cufile.range", {"execution": {"max_io_threads": 64}}),
    _sample("cufile.range", {"execution": {"min_io_threshold_size_kb": 2**32}}),
    _sample("cufile.range", _props(max_direct_io_size_kb=512)),
    _sample("cufile.range", _props(rdma_peer_type="peer_mem")),
    _sample("cufile.range", _props(rdma_dynamic_routing_order=["P2P", "gpu_mem"])),
    _sample("cufile.range", {"logging": {"level": "info"}}),
    _sample("cufile.range", _props(rdma_load_balancing_policy="roundrobin")),
    _sample("cufile.range", _props(rdma_io_retry_count=11)),
    _sample("cufile.alignment", _props(max_direct_io_size_kb=1100)),
    _sample("cufile.alignment", _props(**{SLABS: {"slab_size_kb": [5], "slab_count": [1]}})),
    _sample("cufile.slab-lengths", _props(posix_pool_slab_size_kb=[4])),
    _sample("cufile.slab-lengths", _props(posix_pool_slab_count=[4])),
    _sample("cufile.slab-lengths", _props(**{SLABS: {"slab_size_kb": [64], "slab_count": [1, 2]}})),
    _sample("cufile.missing-path", {"logging": {"dir": "/no/such/folder"}}),
    _sample("cufile.missing-path", {"denylist": {"devices": ["/dev/nvme99n1"]}}),
    _sample("cufile.missing-path", {"fs": {"nfs": {"mount_table": {"/no/such": {"rdma_dev_addr_list": ["192.0.2.1"]}}}}}),
    _sample("cufile.unknown-key", _props(nonsense=1)),
    _sample("cufile.unknown-key", _props(IO_BatchSize=64)),
    _sample("cufile.label-not-key", _props(use_compat_mode=False)),
    _sample("cufile.label-not-key", _props(max_batch_io_size=64)),
    _sample("cufile.wrong-section", {"fs": {"block": {"nvme": {"use_pci_p2pdma": True}}}}),
    _sample("cufile.wrong-section", {"execution": {"io_batchsize": 64}}),
    _sample("cufile.dead-key", {"blacklist": {"drivers": ["nvme"]}}),
    _sample("cufile.dead-key", {"profile": {"nvtx": True}}),
    _sample("cufile.key-newer-than-library", _props(use_pci_p2pdma=False)),
    _sample("cufile.key-newer-than-library", _props(gds_fallback_io=True)),
    _sample("cufile.address-lists", {"fs": {"nfs": {"mount_table": {"/tmp": {"rdma_dev_addr_list": ["192.0.2.1"]}}, "rdma_dev_addr_list": ["192.0.2.1"]}}}),
    _sample("cufile.compat-forced", _props(force_compat_mode=True, allow_compat_mode=False)),
    _sample("cufile.compat-forced", {**_props(force_compat_mode=True, use_pci_p2pdma=True), "block": {"nvme": {"use_pci_p2pdma": True}}}),
    _sample("cufile.denylisted", {"denylist": {"drivers": ["nvme"]}}),
    _sample("cufile.log-name", {"logging": {"dir": "/tmp"}}),
    _sample("cufile.compat-hides-failure", {**_props(use_pci_p2pdma=True), "block": {"nvme": {"use_pci_p2pdma": True}}}),
    _sample("p2pdma.half-configured", _props(use_pci_p2pdma=True, allow_compat_mode=False)),
    _sample("p2pdma.half-configured", {"block": {"nvme": {"use_pci_p2pdma": True}}}),
    _sample("p2pdma.filesystem-unsupported", {"fs": {"nfs": {"use_pci_p2pdma": True}}}),
    _sample("rdma.dev-addr-not-ipv4", _props(rdma_dev_addr_list=["192.0.2.1/24"])),
    _sample("rdma.dev-addr-list-empty", _props(rdma_dynamic_routing=True)),
)  # fmt: skip


def kind_of(path: str) -> PathKind | None:
    return "directory" if os.path.isdir(path) else "other" if os.path.exists(path) else "absent"


def said(sample: Sample, version: str) -> str | None:
    """Lint's word on the fault, for one release: fatal or a severity; None where it has nothing to say."""
    for problem in lint([("f", sample.text)], version=version, env={}, kind_of=kind_of):
        if problem.id == sample.id:
            return "fatal" if problem.fatal else problem.severity
    return None


def verdict(libcufile: Libcufile, sample: Sample) -> str:
    """What the library does: refused | aborts | ignored | changed | falls back | taken."""
    answer = libcufile.ask(sample.text, unknown=True, env={}, assume_paths=False)
    if answer.get("broken"):
        return "aborts"
    if not answer["accepted"]:
        return "refused"
    if answer["unknown"]:
        return "ignored"
    if any("falling back" in line for line in answer["complaints"]):
        return "falls back"
    return "changed" if answer["changed"] else "taken"


def table(libraries: list[Libcufile]) -> str:
    """The page, from every library given."""
    asked_for = ", ".join(library.version for library in libraries)
    rows = [
        "# What lint tells apart, and what libcufile does\n",
        "<!-- Written by tests/oracle/lint_classes.py; edit what it reads instead. -->\n",
        f"{INTRODUCTION.format(asked_for=asked_for)}\n",
        "| class | cufile.json | lint | libcufile |\n|---|---|---|---|",
    ]
    for sample in SAMPLES:
        asked = [(_short(library), said(sample, library.version), verdict(library, sample)) for library in libraries]
        lint_says = _spans([(release, word or "nothing") for release, word, _ in asked])
        library_does = _spans([(release, done) for release, _, done in asked])
        text = sample.text.replace("\ufeff", "(BOM)").replace("\n", " ").replace("|", r"\|")
        rows.append(f"| {sample.id} | `{text}` | {lint_says} | {library_does} |")
    return "\n".join(rows) + "\n"


def _short(library: Libcufile) -> str:
    return ".".join(library.version.split(".")[:2])


def _spans(answers: list[tuple[str, str]]) -> str:
    words = list(dict.fromkeys(word for _, word in answers))
    if len(words) == 1:
        return words[0]
    spans: list[list[str]] = []
    for release, word in answers:
        if spans and spans[-1][0] == word:
            spans[-1][2] = release
        else:
            spans.append([word, release, release])
    return "; ".join(
        f"{word} ({first})" if first == last else f"{word} ({first} to {last})" for word, first, last in spans
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.oracle.conftest import AT_HAND

    missing = [row.gds for row in cufile_keys.releases() if row.gds not in AT_HAND]
    if missing:
        sys.exit(f"no libcufile {', '.join(missing)} here; tests/oracle/fetch.py downloads them")
    Path(sys.argv[1]).write_text(table(list(AT_HAND.values())), "utf-8")
