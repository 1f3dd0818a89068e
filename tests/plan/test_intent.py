from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.plan.intent import Intent, MountIntent, NvmeOf, Workload, read

CONTRACT = """\
schema: gdsctl/intent/v1
gds_version: auto            # or 1.14 ...: which keys may be written
mode: auto                   # nvidia-fs | p2pdma | compat
compat: forbid               # allow | forbid
gpus: all                    # or [0, 1] / PCI addresses
mounts:
  - target: /mnt/nvme
    expect: direct
  - target: /vast/kv
    type: nfs
    source: 172.16.1.10:/kv
    client: vast
    transport: rdma
    vips: 172.16.1.10-172.16.1.25
    nics: auto
    options: {nconnect: 16}
routing: auto
tuning: {max_io_threads: 8}
workload: {kind: kv-cache, chunk_bytes: 48MiB}
"""


def test_every_key() -> None:
    found = read(CONTRACT, "i.yaml")
    assert found.path == "i.yaml"
    assert found.lines == {"execution.max_io_threads": 18}
    assert found.intent == Intent(
        compat="forbid",
        mounts=(
            MountIntent(target="/mnt/nvme", expect="direct"),
            MountIntent(
                target="/vast/kv",
                type="nfs",
                source="172.16.1.10:/kv",
                client="vast",
                transport="rdma",
                vips="172.16.1.10-172.16.1.25",
                options={"nconnect": 16},
            ),
        ),
        tuning={"execution.max_io_threads": 8},
        workload=Workload(chunk_bytes=48 * 1024 * 1024),
    )


def test_a_subsystem_to_connect() -> None:
    text = (
        "mounts: [{target: /a, nvme_of: {nqn: 'nqn.2024-01.a:b', traddr: %s, ctrl_loss_tmo_s: 600, nr_io_queues: 8}}]"
    )
    for traddr, expected in (
        ("192.0.2.1", ("192.0.2.1",)),
        ("[192.0.2.1, '2001:DB8::1', 192.0.2.1]", ("192.0.2.1", "2001:db8::1")),
    ):
        (mount,) = read(text % traddr, "i").intent.mounts or ()
        assert mount.nvme_of == NvmeOf(nqn="nqn.2024-01.a:b", traddr=expected, ctrl_loss_tmo_s=600, nr_io_queues=8)


def test_words_that_yaml_would_retype() -> None:
    """YAML 1.1 takes off for false, 1.20 for 1.2 and 0x1f for 31."""
    found = read(
        "routing: off\ngds_version: 1.20\ntuning: {rdma_access_mask: 0x1f}\ngpus: [0, '0000:3B:00.0']", "i"
    ).intent
    assert (found.routing, found.gds_version) == ("off", "1.20")
    assert found.tuning == {"properties.rdma_access_mask": "0x1f"}
    assert found.gpus == (0, "0000:3b:00.0")


def test_mount_options_stay_as_they_are_written() -> None:
    """YAML 1.1 would make 493, 90, 31, 1000 and 1.1 of these; yes, no, on and off, unquoted, say whether it is set."""
    text = """\
mounts:
- target: /a
  options: {mode: 0755, t: 1:30, x: 0x1f, u: 1_000, vers: 1.10, size: 16, d: 2026-01-01, i: .inf, z: 00, n: 0, m: -5,
            hard: yes, soft: no, ac: on, acl: off, bare: ~, quoted: "yes"}
"""
    (mount,) = read(text, "i").intent.mounts or ()
    assert mount.options == {
        "mode": "0755",
        "t": "1:30",
        "x": "0x1f",
        "u": "1_000",
        "vers": "1.10",
        "size": 16,
        "d": "2026-01-01",
        "i": ".inf",
        "z": "00",
        "n": 0,
        "m": "-5",
        "hard": True,
        "soft": False,
        "ac": True,
        "acl": False,
        "bare": True,
        "quoted": "yes",
    }


def test_nested_and_dotted_tuning() -> None:
    text = "tuning:\n  execution: {max_io_queue_depth: 64}\n  properties.posix_pool_slab_count: [1, 2, 3]\n"
    found = read(text, "i")
    assert found.intent.tuning == {"execution.max_io_queue_depth": 64, "properties.posix_pool_slab_count": [1, 2, 3]}
    assert found.lines == {"execution.max_io_queue_depth": 2, "properties.posix_pool_slab_count": 3}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("mode: auto\nmoutns: []", 2, "did you mean 'mounts'"),
        ("mounts:\n- target: /a\n  expct: direct", 3, "did you mean 'expect'"),
        ("mounts:\n- target: /a\n  expect: dirct", 3, "did you mean 'direct'"),
        ("mounts:\n- expect: direct", 2, "target is missing"),
        ("mounts:\n- target: mnt", 2, "not an absolute path"),
        ("mounts:\n- target: /a/../etc", 2, "plain path"),
        ("mounts:\n- target: /a\n- target: /a/", 3, "named twice"),
        ("mounts: []", 1, "empty list"),
        ("mounts: {target: /a}", 1, "a list is wanted"),
        ("mode: p2p", 1, "not one of auto, nvidia-fs, p2pdma, compat"),
        ("mode: auto\nmode: compat", 2, "given twice"),
        ("gds_version: 1.9", 1, "known for 1.11 to 1.20"),
        ("mode: auto\ngds_version: 9.9", 2, "known for 1.11 to 1.20"),
        ("tuning:\n  properties.max_direct_io_size_kb: .inf", 2, "finite"),
        ("tuning:\n  properties.max_direct_io_size_kb: -.INF", 2, "finite"),
        ("tuning: {max_io_threads: !!bool maybe}", 1, "its form or tag"),
        ('tuning: {max_io_threads: !!int ""}', 1, "its form or tag"),
        ("tuning: {max_io_threads: !!timestamp x}", 1, "its form or tag"),
        ("tuning: {max_io_threads: !!python/object:os.system x}", 1, "its form or tag"),
        (f"tuning: {{max_io_threads: {'9' * 5001}}}", 1, "its form or tag"),
        ("tuning:\n  properties.max_direct_io_size_kb: 1.0e+999", 2, "finite"),
        ("tuning:\n  properties.posix_pool_slab_size_kb: [4, .nan]", 2, "finite"),
        ("tuning:\n  properties.max_direct_io_size_kb: {a: {.inf: 1}}", 2, "finite"),
        ("tuning:\n  max_io_threads: 010", 2, "'010' is not a plain decimal number"),
        ("tuning:\n  max_io_threads: 1:30", 2, "'1:30' is not a plain decimal number"),
        ("tuning:\n  max_io_threads: 0x10", 2, "'0x10' is not a plain decimal number"),
        ("tuning:\n  max_io_threads: 1_0", 2, "'1_0' is not a plain decimal number"),
        ("tuning:\n  max_io_threads: 0b10", 2, "'0b10' is not a plain decimal number"),
        ("tuning:\n  properties.posix_pool_slab_size_kb: [4, -010]", 2, "'-010' is not a plain decimal number"),
        ("gpus: [010]", 1, "neither an index"),
        ("gds_version: newest", 1, "not a GDS release"),
        ("gpus: [first]", 1, "neither an index nor a PCI address"),
        ("gpus: some", 1, "not one of all"),
        ("routing: [SYS_MEM, GPU]", 1, "did you mean"),
        ("routing: []", 1, "empty list"),
        ("schema: gdsctl/intent/v2", 1, "the only schema"),
        ("tuning:\n  max_io_thread: 3", 2, "did you mean"),
        ("tuning:\n  use_compat_mode: true", 2, "the key is properties.allow_compat_mode"),
        ("tuning:\n  rdma_dev_addr_list: [1.2.3.4]", 2, "could be any of"),
        ("tuning:\n  max_io_threads:", 2, "no value"),
        ("workload:\n  chunk_bytes: lots", 2, "not a size"),
        ("mounts:\n- target: /a\n  vips: 1.2.3.9-1.2.3.4", 3, "not a range"),
        ("mounts:\n- target: /a\n  options: {nconnect: '4,exec'}", 3, "value of a mount option"),
        ("mounts:\n- target: /a\n  nvme_of: {traddr: 192.0.2.1}", 3, "nqn is missing"),
        ("mounts:\n- target: /a\n  nvme_of: {nqn: kv, traddr: 192.0.2.1}", 3, "not an NVMe qualified name"),
        (
            "mounts:\n- target: /a\n  nvme_of: {nqn: 'nqn.2024-01.a:b,c', traddr: 192.0.2.1}",
            3,
            "not an NVMe qualified name",
        ),
        ("mounts:\n- target: /a\n  nvme_of: {nqn: 'nqn.2024-01.a:b', traddr: []}", 3, "an empty list"),
        ("mounts:\n- target: /a\n  nvme_of: {nqn: 'nqn.2024-01.a:b', traddr: target1}", 3, "not an IP address"),
        ("mounts:\n- target: /a\n  nvme_of: {nqn: 'nqn.2024-01.a:b', traddr: 'fe80::1%a b'}", 3, "not an IP address"),
        ("mounts:\n- target: /a\n  nvme_of: {nqn: 'nqn.2024-01.a:b', traddr: '::1', trsvcid: 0}", 3, "from 1 to 65535"),
        (
            "mounts:\n- target: /a\n  nvme_of: {nqn: 'nqn.2024-01.a:b', traddr: '::1', ctrl_loss_tmo_s: -2}",
            3,
            "from -1",
        ),
        (
            "mounts:\n- target: /a\n  transport: tcp\n  nvme_of: {nqn: 'nqn.2024-01.a:b', traddr: '::1'}",
            4,
            "over RDMA alone",
        ),
        ('mounts:\n- target: "/a\\0b"', 2, "not an absolute path"),
        ('mounts:\n- target: "/a\\ud800"', 2, "character"),
        ("a: &x 1\nb: *x", 1, "anchors and aliases"),
        ("mounts:\n  - [", 3, "not valid YAML"),
        ("- 1", 1, "a mapping"),
        ("mode: !!python/object:os.system x", 1, "not one of"),
    ],
)
def test_errors_name_file_line_and_cure(text: str, line: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "my intent.yaml")
    assert str(caught.value).startswith(f"my intent.yaml:{line}: ")
    assert words in str(caught.value)


# From the intent of docs/plan.md and the contract's example, by hand.
_LEVELS = [
    ("moutns: []", "mounts", ("schema", "gds_version", "mode", "gpus", "mounts", "tuning", "workload")),
    ("mounts:\n- {target: /a, tranport: rdma}", "transport", ("target", "expect", "vips", "nics", "nvme_of")),
    (
        "mounts:\n- target: /a\n  nvme_of: {nqn: 'nqn.2024-01.a:b', tradr: '::1'}",
        "traddr",
        ("nqn", "traddr", "trsvcid", "hostnqn", "ctrl_loss_tmo_s", "nr_io_queues"),
    ),
    ("workload: {chunk_byte: 1MiB}", "chunk_bytes", ("kind", "chunk_bytes", "gpus_by")),
    ("tuning:\n  max_io_thread: 3", "max_io_threads", ("execution", "properties", "logging", "denylist")),
    ("tuning:\n  execution: {max_io_thread: 3}", "max_io_threads", ("parallel_io", "max_io_queue_depth")),
]


@pytest.mark.parametrize(("text", "near", "known"), _LEVELS)
def test_an_unknown_key_is_told_with_those_that_there_are(text: str, near: str, known: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "i.yaml")
    said, _, listed = str(caught.value).partition("; known")
    assert near in said.partition("did you mean")[2]
    assert set(known) <= set(re.findall(r"[a-z_]+", listed))


@pytest.mark.parametrize(("written", "meant"), [("lustr", "lustre"), ("weka", "wekafs"), ("xfss", "xfs")])
def test_a_filesystem_that_is_misspelt(written: str, meant: str) -> None:
    text = f"schema: gdsctl/intent/v1\nmounts:\n  - target: /x\n    type: {written}\n"
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        read(text, "i.yaml")


@pytest.mark.parametrize("written", ["ext3", "ceph", "zfs", "fuse.juicefs", "pvfs2"])
def test_a_filesystem_that_no_row_has_is_taken_as_it_is(written: str) -> None:
    found = read(f"schema: gdsctl/intent/v1\nmounts:\n  - target: /x\n    type: {written}\n", "i.yaml")
    assert found.intent.mounts is not None
    assert found.intent.mounts[0].type == written


def test_bombs_are_refused_quickly() -> None:
    bomb = "a: &a [x]\n" + "\n".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]" for n in range(20)
    )
    for text in (bomb, "[" * 10_000, "x: " + "y" * 2_000_000, "- a\n" * 200_000):
        with pytest.raises(InputError):
            read(text, "i")


def test_empty_files_have_every_default() -> None:
    for text in ("", "# nothing\n", "---\n", "mode:\n"):
        assert read(text, "i").intent == Intent()


def answered(text: str) -> bool:
    """An intent, or an error that names the file; anything else is raised."""
    try:
        return isinstance(read(text, "i").intent, Intent)
    except InputError as error:
        return str(error).startswith("i")


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=12)
        | st.sampled_from(["all", "auto", "/a", "direct"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["mode", "mounts", "target", "tuning", "gpus", "routing", "options", "max_io_threads", "é"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_yaml_is_an_intent_or_an_input_error(value: object) -> None:
    import yaml

    assert answered(yaml.safe_dump(value))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_an_intent_or_an_input_error(text: str) -> None:
    assert answered(text)
