"""Recording and replaying: every reading of a capture is the reading that was captured."""

# mypy: disable-error-code="union-attr,no-untyped-call,index,arg-type"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import json
import os
import tarfile

import pytest

from gdsctl.errors import InputError, RefusedError
from gdsctl.model.node import SourceInfo
from gdsctl.source.base import Missing, Output
from gdsctl.source.opening import open_source
from gdsctl.source.record import Recorder
from gdsctl.source.writing import write_snapshot

SUFFIXES = ["", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"]


class Machine:
    """A source of fixed answers with one PCI function, its class link, and every way of not answering."""

    info = SourceInfo(kind="live", host="node1", captured_at="2025-03-01T10:00:00Z", euid=1000)
    place = "/sys/devices/pci0000:00/0000:00:01.0"
    links = {"/sys/class/nvme/nvme0": place + "/nvme/nvme0", "/proc/mounts": "/proc/self/mounts"}
    files = {
        place + "/nvme/nvme0/model": b"Drive \xff 1\n",
        "/proc/self/mounts": b"none / ext4 rw 0 0\n",
        "/etc/empty": b"",
    }
    folders = {"/sys/class/nvme": ("nvme0",), "/etc/modprobe.d": ()}
    refused = {
        "/sys/kernel/iommu_groups": "error",
        "/root/x": "denied",
        "/mnt/dead": "timeout",
        "/proc/kallsyms": "denied",
    }

    def canonical(self, path):
        for link, target in self.links.items():
            if path == link or path.startswith(link + "/"):
                return target + path[len(link) :]
        return path

    def missing(self, path):
        return Missing(status=self.refused.get(path, "absent"), detail="as the system said")

    def stands(self, path):
        known = {*self.files, *self.folders, *self.links, *self.links.values()}
        return any(each == path or each.startswith(path + "/") for each in known)

    def read(self, path):
        return self.files.get(self.canonical(path), self.missing(path))

    def names(self, path):
        return self.folders.get(self.canonical(path), self.missing(path))

    def real(self, path):
        stands = self.stands(path) or self.stands(self.canonical(path))
        return self.canonical(path) if stands else self.missing(path)

    def exists(self, path):
        if self.stands(path) or self.stands(self.canonical(path)):
            return True
        return self.missing(path) if path in self.refused else False

    def run(self, name):
        outputs = {"lspci": Output(stdout="00:01.0 x\n", stderr="pcilib: no\n", exit_code=1)}
        return outputs.get(name, Missing(status="no_tool", detail=f"{name} is not installed"))

    def ask(self, name):
        answers = {"nvml": {"gpus": [{"index": 0, "c2c": None}]}, "host": {"euid": 1000}}
        return answers.get(name, Missing(status="no_tool", detail="no"))


QUESTIONS = [
    *((verb, path) for verb in ("read", "names", "real", "exists") for path in ("/etc/none", "/mnt/dead", "/root/x")),
    ("read", "/sys/class/nvme/nvme0/model"),
    ("read", Machine.place + "/nvme/nvme0/model"),
    ("read", "/proc/mounts"),
    ("read", "/proc/self/mounts"),
    ("read", "/etc/empty"),
    ("read", "/proc/kallsyms"),
    ("read", "/sys/class/nvme/nvme0/cmbsz"),
    ("names", "/sys/class/nvme"),
    ("names", "/etc/modprobe.d"),
    ("names", "/sys/kernel/iommu_groups"),
    ("real", "/sys/class/nvme/nvme0"),
    ("real", "/proc/mounts"),
    ("exists", "/sys/class/nvme/nvme0"),
    ("exists", "/etc/modprobe.d"),
    ("exists", "/sys/kernel/iommu_groups"),
    ("run", "lspci"),
    ("run", "gdscheck"),
    ("ask", "nvml"),
    ("ask", "host"),
    ("ask", "udev"),
]


@pytest.fixture
def recorder():
    recorder = Recorder(Machine())
    for verb, what in QUESTIONS:
        getattr(recorder, verb)(what)
    return recorder


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_replay_equals_the_machine(tmp_path, recorder, suffix):
    out = tmp_path / f"node1{suffix}"
    write_snapshot(recorder, str(out))
    source = open_source(str(out))
    assert source.info == SourceInfo(
        kind="snapshot", path=str(out), host="node1", captured_at="2025-03-01T10:00:00Z", euid=1000
    )
    for verb, what in QUESTIONS:
        assert getattr(source, verb)(what) == getattr(Machine(), verb)(what), (verb, what)


def test_what_nobody_asked_is_not_captured(tmp_path, recorder):
    write_snapshot(recorder, str(tmp_path / "n"))
    source = open_source(str(tmp_path / "n"))
    for path in ("/etc/other", "/sys/class/nvme/nvme0/serial", "/boot"):
        assert source.read(path).status == "not_captured"
        assert source.exists(path).status == "not_captured"
    assert source.read("/sys/class/nvme/nvme1/model").status == "absent"  # the folder's listing lacks it
    assert source.read("/etc/modprobe.d/x.conf").status == "absent"
    assert source.read("/etc/none/below").status == "absent"
    assert source.run("dmesg").status == "not_captured"
    assert source.ask("other").status == "not_captured"


def test_layout_of_the_contract(tmp_path, recorder):
    out = tmp_path / "n"
    write_snapshot(recorder, str(out))
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["schema_version"] == "1"
    assert (manifest["host"], manifest["euid"]) == ("node1", 1000)
    assert manifest["tool"]["name"] == "gdsctl"
    assert manifest["paths"]["/proc/kallsyms"] == "denied"
    assert manifest["paths"]["/etc/none"] == "absent"
    assert manifest["paths"]["/mnt/dead"] == "timeout"
    assert manifest["commands"]["lspci"]["exit_code"] == 1
    assert (out / "commands/lspci.stdout").read_text() == "00:01.0 x\n"
    assert (out / "commands/lspci.stderr").read_text() == "pcilib: no\n"
    assert json.loads((out / "commands/lspci.json").read_text())["status"] == "ok"
    assert json.loads((out / "commands/gdscheck.json").read_text())["status"] == "no_tool"
    assert json.loads((out / "nvml.json").read_text())["gpus"][0]["index"] == 0
    link = out / "root/sys/class/nvme/nvme0"
    assert os.readlink(link) == "../../devices/pci0000:00/0000:00:01.0/nvme/nvme0"
    assert (link / "model").read_bytes() == b"Drive \xff 1\n"
    assert os.path.realpath(link / "model") == str(out.resolve()) + "/root" + Machine.place + "/nvme/nvme0/model"


def test_a_capture_of_a_capture_is_the_same(tmp_path, recorder):
    write_snapshot(recorder, str(tmp_path / "first"))
    again = Recorder(open_source(str(tmp_path / "first")))
    for verb, what in QUESTIONS:
        getattr(again, verb)(what)
    write_snapshot(again, str(tmp_path / "second"))
    for name in ("manifest.json", "nvml.json", "commands/lspci.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_archives_are_deterministic(tmp_path, recorder, suffix):
    write_snapshot(recorder, str(tmp_path / f"a{suffix}"))
    backwards = Recorder(Machine())
    for verb, what in reversed(QUESTIONS):
        getattr(backwards, verb)(what)
    write_snapshot(backwards, str(tmp_path / f"b{suffix}"))
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_members_carry_no_trace_of_the_writer(tmp_path, recorder):
    write_snapshot(recorder, str(tmp_path / "n.tar"))
    with tarfile.open(tmp_path / "n.tar") as tar:
        members = tar.getmembers()
    assert members[0].name == "manifest.json"
    assert [member.name for member in members[1:]] == sorted(member.name for member in members[1:])
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {
        (0, 0, "", "", 1740823200)
    }  # 2025-03-01 10:00


@pytest.mark.parametrize("name", ["out.tar.gz", "out"])
def test_what_stands_there_stays(tmp_path, recorder, name):
    out = tmp_path / name
    if name == "out":
        out.mkdir()
        (out / "precious").write_text("keep")
    else:
        out.write_text("keep")
    with pytest.raises(RefusedError, match="exists already") as caught:
        write_snapshot(recorder, str(out))
    assert caught.value.exit_code == 5
    kept = out / "precious" if out.is_dir() else out
    assert kept.read_text() == "keep"
    assert os.listdir(tmp_path) == [name]


def test_an_empty_folder_is_filled(tmp_path, recorder):
    (tmp_path / "out").mkdir()
    write_snapshot(recorder, str(tmp_path / "out") + "/")
    assert open_source(str(tmp_path / "out")).info.host == "node1"


def test_refusals_of_the_system(tmp_path, recorder):
    (tmp_path / "file").write_text("")
    for out in ("none/out", "file/out.tar", "file/out"):
        with pytest.raises(RefusedError):
            write_snapshot(recorder, str(tmp_path / out))


@pytest.mark.parametrize("name", ["out", "out.tar.xz"])
def test_an_interrupt_leaves_nothing(tmp_path, recorder, name, monkeypatch):
    from gdsctl.source import writing

    members = writing._members

    def interrupted(capture):
        for number, member in enumerate(members(capture)):
            if number == 3:
                raise KeyboardInterrupt
            yield member

    monkeypatch.setattr(writing, "_members", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_snapshot(recorder, str(tmp_path / name))
    assert os.listdir(tmp_path) == []


def snapshot_with(tmp_path, manifest: bytes):
    folder = tmp_path / "snap"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(manifest)
    return str(folder)


GOOD = {"schema_version": "1", "tool": {"name": "gdsctl", "version": "0"}}


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"", "manifest.json"),
        (b"{", "manifest.json"),
        (json.dumps(GOOD).encode()[:-5], "manifest.json"),
        (b"[]", "manifest.json"),
        (b"\xff\xfe", "manifest.json"),
        (b"[" * 100_000, "manifest.json"),
        (b'{"schema_version": "1"}', "tool"),
        (json.dumps(GOOD | {"schema_version": "2"}).encode(), "schema version '2'"),
        (json.dumps(GOOD | {"schema_version": 1}).encode(), "schema_version"),
        (json.dumps(GOOD | {"surprise": 1}).encode(), "surprise"),
        (json.dumps(GOOD | {"paths": {"/x": "maybe"}}).encode(), "maybe"),
    ],
)
def test_bad_manifests(tmp_path, manifest, words):
    with pytest.raises(InputError, match=words) as caught:
        open_source(snapshot_with(tmp_path, manifest))
    assert caught.value.exit_code == 4
    assert str(caught.value).startswith(str(tmp_path / "snap"))


def test_a_manifest_that_is_too_long(tmp_path):
    path = snapshot_with(tmp_path, b"")
    os.truncate(path + "/manifest.json", 200 << 20)
    with pytest.raises(InputError, match="cannot be read"):
        open_source(path)


def test_files_in_root_are_believed(tmp_path):
    path = snapshot_with(tmp_path, json.dumps(GOOD | {"paths": {"/etc/x": "absent", "/etc/y": "ok"}}).encode())
    os.makedirs(path + "/root/etc")
    with open(path + "/root/etc/x", "w") as file:
        file.write("here")
    source = open_source(path)
    assert source.read("/etc/x") == b"here"
    assert source.exists("/etc/y") is True
    assert source.read("/etc/y").status == "not_captured"


def test_an_answer_that_is_no_json(tmp_path):
    path = snapshot_with(tmp_path, json.dumps(GOOD).encode())
    with open(path + "/nvml.json", "w") as file:
        file.write("{")
    with pytest.raises(InputError, match=r"nvml\.json"):
        open_source(path).ask("nvml")


@pytest.mark.shared
def test_a_real_capture_survives_recording(shared, tmp_path):
    """A few hundred paths of a machine that booted: PCI functions with their links, NVMe, RDMA, mounts."""
    tree = open_source(str(shared / "field/vm/rdma-on/root.tar.gz"))
    recorder = Recorder(tree)
    questions = []

    def ask(verb, path):
        questions.append((verb, path))
        return getattr(recorder, verb)(path)

    for address in ask("names", "/sys/bus/pci/devices"):
        folder = f"/sys/bus/pci/devices/{address}"
        ask("real", folder)
        for name in ("vendor", "device", "class", "numa_node", "config", "resource", "none", "driver/none"):
            ask("read", f"{folder}/{name}")
        for name in ("driver", "iommu_group", "physfn"):
            ask("real", f"{folder}/{name}")
            ask("exists", f"{folder}/{name}")
    for kind in ("nvme", "nvme-subsystem", "net", "block", "infiniband"):
        for device in ask("names", f"/sys/class/{kind}") or ():
            folder = f"/sys/class/{kind}/{device}"
            ask("names", folder)
            for name in ("model", "serial", "address", "transport", "size", "device/numa_node", "node_guid"):
                ask("read", f"{folder}/{name}")
            ask("real", folder)
            ask("real", f"{folder}/device")
    for path in ("/proc/mounts", "/proc/self/mountinfo", "/proc/modules", "/etc/os-release", "/run/udev", "/etc/none"):
        ask("read", path)
        ask("exists", path)
    assert len(questions) > 600
    for suffix in ("", ".tar.gz"):
        out = str(tmp_path / f"snap{suffix}")
        write_snapshot(recorder, out)
        replay = open_source(out)
        for verb, path in questions:
            was, now = getattr(tree, verb)(path), getattr(replay, verb)(path)
            if isinstance(was, Missing):
                assert now.status == was.status, (verb, path)
            else:
                assert now == was, (verb, path)


@pytest.mark.parametrize("part", ["root", "commands", "manifest.json", "nvml.json"])
def test_no_part_of_a_snapshot_leads_out_of_it(tmp_path, recorder, part):
    write_snapshot(recorder, str(tmp_path / "s"))
    place = tmp_path / "s" / part
    if place.exists():
        place.rename(tmp_path / "outside")
    place.symlink_to("../outside")
    with pytest.raises(InputError, match=f"{part} is a link"):
        open_source(str(tmp_path / "s"))
