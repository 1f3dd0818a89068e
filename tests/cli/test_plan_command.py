"""The commands as a user runs them: what is on stdout, what on stderr, which exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

import gdsctl
from gdsctl.cli import run

HGX, UNPATCHED, VM = "example:hgx-h100-vast", "example:nvme-unpatched", "example:vm-flattened"


@pytest.fixture
def intent(tmp_path: Path) -> Path:
    path = tmp_path / "intent.yaml"
    path.write_text("mounts: [{target: /vast/kv}]\ntuning: {max_io_threads: 7}\n")
    return path


def test_a_held_step_is_shown_with_its_reason_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """P2PDMA carries md RAID 0 from Linux 7.1 on; the example runs 6.8 and its nvme module has no hooks."""
    path = tmp_path / "intent.yaml"
    path.write_text("mode: p2pdma\ncompat: forbid\nmounts: [{target: /mnt/raid, expect: direct}]\n")
    command = ["plan", "-S", "example:pcie-nvme-raid", "-i", str(path), "--no-color"]
    assert run(command) == 1
    shown = capsys.readouterr().out
    assert "(held back)" in shown
    assert "do not apply it: /mnt/raid would be left without any path" in shown
    assert "carried out, what is held back too" in shown
    assert "install -m 0644 cufile.json" not in shown
    assert run([*command, "--emit", "steps"]) == 1
    assert all(line.startswith("#") or not line for line in capsys.readouterr().out.splitlines())


def test_the_undo_is_told_of_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-S", UNPATCHED, "--no-color"]) == 0
    assert "how to undo each step: --verbose, or --emit steps" in capsys.readouterr().out
    for more in (["--verbose"], ["--emit", "steps"]):
        assert run(["plan", "-S", UNPATCHED, "--no-color", *more]) == 0
        assert "mv /etc/cufile.json.before-gdsctl /etc/cufile.json" in capsys.readouterr().out


def test_plan_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-S", HGX, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found["artifacts"])) == "cufile.json"
    assert set(found) >= {
        "schema_version",
        "mode",
        "intent",
        "artifacts",
        "steps",
        "routes_now",
        "routes_after",
        "unmet",
        "findings",
    }
    fields = {"order", "what", "commands", "needs_reboot", "risk", "undo", "check", "changes", "held"}
    assert set(found["steps"][0]) == fields
    assert set(found["artifacts"]["cufile.json"]) == {"path", "content", "reasons"}
    assert run(["plan", "-S", HGX, "--format", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == found
    assert run(["plan", "-S", HGX]) == 0
    assert "GPU_MEM_NVLINKS" in capsys.readouterr().out


def test_one_artifact_alone_on_stdout(capsys: pytest.CaptureFixture[str], intent: Path, tmp_path: Path) -> None:
    assert run(["plan", "-S", HGX, "--intent", str(intent), "--emit", "cufile.json"]) == 0
    assert json.loads(capsys.readouterr().out)["execution"]["max_io_threads"] == 7
    out = tmp_path / "c.json"
    assert run(["plan", "-S", HGX, "--emit", "cufile.json", "--output", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(out.read_text())["properties"]["rdma_dynamic_routing"] is True


def test_output_dir(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plan"
    command = ["plan", "-S", UNPATCHED, "--emit", "all", "--output-dir", str(folder), "--format", "json"]
    assert run(command) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["cufile.json", "modprobe.conf", "steps.txt"]
    assert set(json.loads(capsys.readouterr().out)["artifacts"]) == {"cufile.json", "modprobe", "steps"}
    assert run(command) == 0  # the same contents again
    (folder / "cufile.json").write_text("mine")
    assert run(command) == 2
    assert "--force" in capsys.readouterr().err
    assert (folder / "cufile.json").read_text() == "mine"
    assert run([*command, "--force"]) == 0
    assert json.loads((folder / "cufile.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--emit", "cufile.json", "--emit", "fstab"], 2, "--output-dir"),
        (["--emit", "all"], 2, "--output-dir"),
        (["--emit", "pods"], 2, "did you mean pod"),
        (["--emit", "cufile"], 2, "did you mean"),
        (["--mode", "fast"], 2, "not one of auto"),
        (["--style", "short"], 2, "not one of explicit, minimal"),
        (["--force"], 2, "--output-dir"),
        (["--intent", "/no/such/file"], 4, "/no/such/file: no such file"),
        (["--intent", "/"], 4, "is a directory"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-S", HGX, *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


def test_a_wrong_intent_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_text("mode: auto\nmonts: []\n")
    for command in ("plan", "verify"):
        assert run([command, "-S", HGX, "--intent", str(path)]) == 4
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"gdsctl: {path}:2: unknown key 'monts'; did you mean 'mounts'?; known here: schema, ")
    path.write_bytes(b"mode: \xff\n")
    assert run(["plan", "-S", HGX, "--intent", str(path)]) == 4


def test_unmet_is_exit_1_and_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-S", VM, "--emit", "cufile.json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)
    assert "route:/mnt/resource_nvme (8 GPUs)" in said.err


def test_verify_exit_codes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["verify", "-S", HGX, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "pass"
    assert set(found) >= {"schema_version", "verdict", "requirements", "routes", "drift", "findings"}
    assert {"id", "subject", "status", "evidence", "finding"} <= set(found["requirements"][0])
    assert run(["verify", "-S", VM, "--format", "yaml"]) == 1
    assert yaml.safe_load(capsys.readouterr().out)["verdict"] == "fail"
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc").mkdir()
    assert run(["verify", "-S", str(tmp_path)]) == 3
    assert "gdsctl: unknown: " in capsys.readouterr().err
    assert run(["verify", "-S", HGX, "--baseline", HGX]) == 0
    assert run(["verify", "-S", HGX, "--baseline", "/no/such"]) == 4
    assert run(["verify", "-S", HGX, "--format", "xml"]) == 2


def test_verify_after_the_plan_was_carried_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, intent: Path
) -> None:
    """The emitted file, put into a tree: its drift from the plan is none; one key changed is drift."""
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "proc" / "self").mkdir(parents=True)
    (tree / "sys").mkdir()
    installed = tree / "etc" / "cufile.json"
    assert run(["plan", "-S", str(tree), "--intent", str(intent), "--emit", "cufile.json", "-o", str(installed)]) == 3
    run(["verify", "-S", str(tree), "--intent", str(intent), "--format", "json"])
    capsys.readouterr()
    run(["verify", "-S", str(tree), "--intent", str(intent), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["drift"] == []
    installed.write_text(installed.read_text().replace('"max_io_threads": 7', '"max_io_threads": 6'))
    assert run(["verify", "-S", str(tree), "--intent", str(intent), "--format", "json"]) == 1
    (entry,) = json.loads(capsys.readouterr().out)["drift"]
    assert (entry["key"], entry["installed"], entry["planned"]) == ("execution.max_io_threads", 6, 7)


def test_waivers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("- {id: nvme.unpatched, reason: r, owner: o, expires: 2000-01-01}\n")
    assert run(["verify", "-S", HGX, "--waivers", str(path)]) == 1
    assert "expired" in capsys.readouterr().out
    path.write_text("- {id: nvme.unpached, reason: r, owner: o, expires: 2099-01-01}\n")
    assert run(["verify", "-S", HGX, "--waivers", str(path)]) == 4


# --- lint ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "code", "words"),
    [
        ('{"execution": {"max_io_threads": 4}}', [], 0, "nothing wrong"),
        ('{"execution": {\n  "max_io_threads": 64}}', ["--gds-version", "1.14"], 1, ":2:3: critical cufile.range"),
        ('{"execution": {"max_io_threads": 64}}', ["--gds-version", "1.20"], 0, "nothing wrong"),
        ('{"properties": {"use_compat_mode": false}}', [], 0, "cufile.label-not-key"),
        ('{"properties": {"use_compat_mode": false}}', ["--strict"], 1, "cufile.label-not-key"),
        ('{"a": 1,}', [], 1, "cufile.syntax"),
        ("", [], 1, "cufile.syntax"),
    ],
)
def test_lint(text: str, options: list[str], code: int, words: str, tmp_path: Path) -> None:
    path, out = tmp_path / "c.json", tmp_path / "out"
    path.write_text(text)
    assert run(["lint", str(path), "--output", str(out), *options]) == code
    assert words in " ".join(out.read_text().split())


def test_lint_json_and_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(b'{"logging": {"level": "\xff"}}')
    assert run(["lint", str(path), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [problem["id"] for problem in found["problems"]] == ["cufile.syntax"]
    assert found["files"] == [str(path)]


def test_lint_tells_a_static_routing_file_from_a_cufile_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")  # a long path stays in one line
    row = {"bdf": "0000:1b:00.0", "type": "NET", "socket": 0, "numa_node": 0, "pcie_group": 0}
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({"mlx5_0": row}))
    assert run(["lint", str(path), "--gds-version", "1.20"]) == 0
    path.write_text(json.dumps({"mlx5_0": {**row, "socket": -1}}))
    capsys.readouterr()
    assert run(["lint", str(path), "--gds-version", "1.20"]) == 1
    said = capsys.readouterr().out
    assert f"{path}:1:" in said
    assert "cufile.static-routing" in said


def test_lint_of_a_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["lint", "-S", HGX]) == 0
    assert "/etc/cufile.json" in capsys.readouterr().out
    (tmp_path / "sys").mkdir()
    assert run(["lint", "-S", str(tmp_path)]) == 3
    assert "settle with: cat /etc/cufile.json" in capsys.readouterr().err


def test_lint_fix_writes_beside_and_never_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, beside = tmp_path / "c.json", tmp_path / "c.fixed.json"
    text = '{"properties": {"use_compat_mode": "false"}, "odd": 1,}'
    path.write_text(text)
    assert run(["lint", str(path), "--fix", "--format", "json"]) == 1  # FILE itself is as wrong as before
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert path.read_text() == text
    assert json.loads(beside.read_text()) == {"properties": {"allow_compat_mode": False}, "odd": 1}
    assert found["corrected"]["path"] == str(beside)
    assert [p["id"] for p in found["corrected"]["left"]] == ["cufile.unknown-key"]
    assert "use_compat_mode -> properties.allow_compat_mode" in shown.err
    assert run(["lint", str(path), "--fix"]) == 1
    beside.write_text("{}")
    assert run(["lint", str(path), "--fix"]) == 2
    assert beside.read_text() == "{}"
    beside.unlink()
    path.write_text('{"execution": {"max_io_threads": 4}}')
    assert run(["lint", str(path), "--fix"]) == 0
    assert not beside.exists()


def test_lint_sarif_has_regions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c d.json"
    path.write_text('{"execution": {\n  "max_io_threads": 64}}')
    assert run(["lint", str(path), "--gds-version", "1.14", "--format", "sarif"]) == 1
    (log,) = json.loads(capsys.readouterr().out)["runs"]
    (result,) = log["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 2, "startColumn": 3}
    assert place["artifactLocation"]["uri"].endswith("/c%20d.json")
    assert (result["ruleId"], result["level"]) == ("cufile.range", "error")
    assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "cufile.range"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["/no/such/file"], 4),
        (["--gds-version", "new"], 2),
        (["--gds-version", "9.9"], 2),
        (["/no/such/file", "-S", HGX], 4),
        (["--fix"], 2),
        (["-", "--fix"], 2),
        (["-S", "example:none"], 2),
    ],
)
def test_lint_usage(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", *arguments]) == code
    assert capsys.readouterr().err.startswith("gdsctl: ")


def test_lint_of_a_node_looks_at_its_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log folder that is not there stops every cuFile process: seen only where the node itself can be asked."""
    for folder in ("etc", "sys", "proc", "var/log"):
        (tmp_path / folder).mkdir(parents=True)
    config = tmp_path / "etc" / "cufile.json"
    config.write_text('{"logging": {"dir": "/var/log/cufile"}}')
    assert run(["lint", "-S", str(tmp_path), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [(p["id"], p["fatal"]) for p in found if p["fatal"]] == [("cufile.missing-path", True)]
    (tmp_path / "var/log/cufile").mkdir()
    run(["lint", "-S", str(tmp_path), "--format", "json"])
    assert not any(p["fatal"] for p in json.loads(capsys.readouterr().out)["problems"])
    config.write_text('{"logging": {"dir": "/data/log"}}')  # /data was not captured: nothing is claimed
    run(["lint", "-S", str(tmp_path), "--format", "json"])
    assert not any(p["fatal"] for p in json.loads(capsys.readouterr().out)["problems"])
    assert run(["lint", "-S", str(tmp_path)]) == 3
    told = capsys.readouterr()
    assert "not known whether it is there: /data/log" in told.out
    assert "1 path not looked at" in told.out
    assert told.err.endswith("settle with: ls -d -- /data/log\n")
    mounts = "22 1 0:43 / /data rw - nfs4 server:/data rw\n23 22 0:44 / /data/log rw - nfs4 server:/log rw\n"
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/mountinfo").write_text(mounts)  # what is mounted on is there
    assert run(["lint", "-S", str(tmp_path)]) == 0


def test_lint_of_a_file_looks_at_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked of libcufile 1.14: a denied mount that is not there is refused, one that is there is taken."""
    config = tmp_path / "cufile.json"
    config.write_text(json.dumps({"denylist": {"mounts": [str(tmp_path), f"{tmp_path}/gone"]}}))
    assert run(["lint", str(config), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (found,) = document["problems"]
    assert (found["id"], found["pointer"], found["fatal"]) == ("cufile.missing-path", "/denylist/mounts/1", True)
    assert "not there on this machine" in found["message"]
    assert document["unseen"] == []
    assert run(["lint", str(config), "--format", "json", "--gds-version", "1.14"]) == 0  # meant for another machine
    document = json.loads(capsys.readouterr().out)
    assert (document["problems"], document["unseen"]) == ([], [str(tmp_path), f"{tmp_path}/gone"])


def test_lint_of_a_file_as_on_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example's library is 1.14.1, its VAST mount /vast/kv and its storage NICs have 172.16.1.41 and .42."""
    config = tmp_path / "cufile.json"
    tables = {
        mount: {"rdma_dev_addr_list": [address]}
        for mount, address in {"/vast/kv": "172.16.1.41", "/mnt/other": "172.16.1.99"}.items()
    }
    document = {"fs": {"nfs": {"mount_table": tables}}, "execution": {"max_io_threads": 64}}
    config.write_text(json.dumps(document))
    assert run(["lint", str(config), "-S", HGX, "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["gds_version"], told["files"], told["unseen"]) == ("1.14.1", [str(config)], ["/mnt/other"])
    other = "/fs/nfs/mount_table/~1mnt~1other"
    assert {(p["id"], p["pointer"]) for p in told["problems"]} == {
        ("cufile.missing-path", other),
        ("rdma.dev-addr-not-local", f"{other}/rdma_dev_addr_list/0"),
        ("cufile.range", "/execution/max_io_threads"),
    }
    assert not any("on this machine" in p["message"] for p in told["problems"])
    del tables["/mnt/other"]
    config.write_text(json.dumps(document))
    assert run(["lint", str(config), "-S", HGX, "--gds-version", "1.20"]) == 0  # 1.16 and newer take 64 threads
    config.write_text('{"logging": {"dir": "/not/captured"}}')
    assert run(["lint", str(config), "-S", HGX, "--gds-version", "1.20"]) == 3


def test_inspect_knows_what_lint_knows_of_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("etc", "sys", "proc", "mnt/here"):
        (tmp_path / folder).mkdir(parents=True)
    paths = ["/mnt/here", "/mnt/gone", "/data"]
    (tmp_path / "etc/cufile.json").write_text(json.dumps({"denylist": {"mounts": paths}}))
    assert run(["inspect", "-S", str(tmp_path), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gds"]["cufile_config"]["paths"] == {"/mnt/here": True, "/mnt/gone": False, "/data": None}
    refused = [finding for finding in document["findings"] if finding["id"] == "cufile.missing-path"]
    assert [(f["subject"], "compat" in f["blocks"]) for f in refused] == [("/denylist/mounts/1", True)]
    pointers = [unknown["pointer"] for unknown in document["unknowns"]]
    assert [p for p in pointers if "/paths/" in p] == ["/gds/cufile_config/paths/~1data"]
    run(["inspect", "-S", str(tmp_path)])
    told = capsys.readouterr().out
    assert "/gds/cufile_config/paths: /data: " in told
    assert "~1" not in told


def test_a_path_nobody_looked_at_leaves_the_gate_undecided(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The shipped node passes; with a denied mount that its snapshot tells nothing of, no route is known."""
    node = tmp_path / "node"
    shutil.unpack_archive(Path(gdsctl.__file__).parent / "examples/hgx-h100-vast.tar.gz", node)
    config = node / "root/etc/cufile.json"
    document = json.loads(config.read_text())
    config.write_text(json.dumps(document | {"denylist": {"mounts": ["/mnt/scratch", "/vast"]}}))
    assert run(["verify", "-S", str(node)]) == 3
    assert "ls -d -- /mnt/scratch" in capsys.readouterr().out
    run(["inspect", "-S", str(node), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert {r["route"] for r in document["routes"] if r["mount"] == "/vast/kv"} == {"unknown"}
    pointers = [unknown["pointer"] for unknown in document["unknowns"]]
    assert [p for p in pointers if "/paths/" in p] == ["/gds/cufile_config/paths/~1mnt~1scratch"]
