from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gdsctl.cli import run

HGX = "example:hgx-h100-vast"
VM = "example:vm-flattened"


def test_quiet_says_nothing_and_output_still_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "tree" / "sys").mkdir(parents=True)
    for source, code in ((HGX, 0), (VM, 1), (str(tmp_path / "tree"), 3)):
        assert run(["verify", "-S", source, "--quiet"]) == code
        said = capsys.readouterr()
        assert (said.out, said.err) == ("", "")
    metrics = tmp_path / "gdsctl.prom"
    assert run(["verify", "-S", HGX, "--quiet", "-f", "prometheus", "-o", str(metrics)]) == 0
    assert 'gdsctl_verify_verdict{verdict="pass"} 1' in metrics.read_text()
    assert capsys.readouterr().out == ""
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["gdsctl.prom"]


def test_nagios_exit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--format", "nagios", "--nagios-exit"]
    assert run(["verify", "-S", HGX, *options]) == 0
    assert capsys.readouterr().out.startswith("GDS OK - 17 of 17 requirements hold | ")
    assert run(["verify", "-S", VM, *options]) == 2
    assert capsys.readouterr().out.startswith("GDS CRITICAL - 8 of 9 fail: route:/mnt/resource_nvme ")
    (tmp_path / "sys").mkdir()
    assert run(["verify", "-S", str(tmp_path), *options]) == 3
    assert capsys.readouterr().out.startswith("GDS UNKNOWN - ")
    assert run(["verify", "-S", "/no/such", *options]) == 3
    assert capsys.readouterr().out == "GDS UNKNOWN - /no/such: no such file or directory\n"
    assert run(["verify", "-S", "/no/such", "--format", "nagios"]) == 4


def test_machine_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "-S", VM, "-f", "junit"]) == 1
    assert ET.fromstring(capsys.readouterr().out.encode())[0].get("failures") == "8"  # noqa: S314 -- our own document
    assert run(["verify", "-S", VM, "-f", "sarif"]) == 1
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"
    assert run(["verify", "-S", VM, "-f", "xml"]) == 2


@pytest.mark.parametrize("format_", ["table", "json", "yaml", "junit", "sarif", "prometheus", "nagios"])
def test_two_runs_are_the_same_bytes(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["verify", "-S", VM, "-f", format_])
    first = capsys.readouterr().out
    run(["verify", "-S", VM, "-f", format_])
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--require", "direct:/mnt/nvme"], 1),
        (["--require", "direct-or-routed:@nfs", "--require", "driver.kind=open"], 0),
        (["--profile", "vast"], 0),
        (["--profile", "local-nvme"], 0),
        (["--profile", "lustre"], 1),
        (["--require", "compat.allowed=false"], 1),
    ],
)
def test_requirements_of_the_command_line(arguments: list[str], code: int) -> None:
    assert run(["verify", "-S", HGX, *arguments]) == code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--require", "driver.knd=open"], "did you mean 'driver.kind'?"),
        (["--profile", "vats"], "did you mean 'vast'?"),
    ],
)
def test_wrong_names_are_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "-S", HGX, *arguments]) == 2
    assert words in capsys.readouterr().err
