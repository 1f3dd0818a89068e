"""Several compose files of one project: docs.docker.com/reference/compose-file/merge, and which files compose takes itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from gdsctl.cli import run
from gdsctl.kvcache.app import judge
from gdsctl.kvcache.beside import Beside
from gdsctl.kvcache.launch import Found
from gdsctl.kvcache.read import read
from gdsctl.model.node import Tool

BASE = """\
services:
  cache:
    image: lmcache/standalone:v0.5.6
    command: lmcache server --eviction-policy LRU --l1-size-gb 64
    environment:
      NVIDIA_GDS: enabled
      DYN_KVBM_CPU_CACHE_GB: "1"
    devices: [/dev/nvidia0]
    cap_add: [IPC_LOCK]
    volumes:
      - /srv/a:/data
      - /run/udev:/run/udev:ro
"""
OVER = """\
services:
  cache:
    image: lmcache/standalone:v0.4.7
    command: [lmcache, server, --l1-size-gb, "32"]
    environment:
      - DYN_KVBM_CPU_CACHE_GB=2
      - NVIDIA_VISIBLE_DEVICES=all
    devices: [/dev/nvidia1]
    volumes:
      - type: bind
        source: /vast/kv
        target: /data
  engine:
    image: vllm/vllm-openai:v0.23.0
    command: vllm serve m --load-format fastsafetensors
"""
TOOL = Tool(name="gdsctl", version="0")


def found_in(files: Mapping[str, str]) -> Found:
    beside = Beside(dict(files))
    return sum((read(text, path, beside) for path, text in files.items()), Found())


@pytest.mark.parametrize("order", [("compose.yaml", "compose.prod.yaml"), ("compose.override.yaml", "compose.yaml")])
def test_a_later_file_goes_over_an_earlier_one(order: tuple[str, str]) -> None:
    """By the rules: command replaced; environment and volumes by their keys; devices and cap_add joined."""
    texts = {"compose.yaml": BASE, "compose.prod.yaml": OVER, "compose.override.yaml": OVER}
    launches = {
        launch.container.name: launch for launch in found_in({p: texts[p] for p in order}).launches if launch.container
    }
    assert sorted(launches) == ["cache", "engine"]
    cache = launches["cache"]
    assert [word.text for word in cache.words] == ["lmcache", "server", "--l1-size-gb", "32"]
    assert {name: word.text for name, word in cache.env.items()} == {
        "NVIDIA_GDS": "enabled",
        "DYN_KVBM_CPU_CACHE_GB": "2",
        "NVIDIA_VISIBLE_DEVICES": "all",
    }
    box = cache.container
    assert box is not None
    assert box.image == "lmcache/standalone:v0.4.7"
    assert {volume.path: volume.host_path for volume in box.volumes} == {"/data": "/vast/kv", "/run/udev": "/run/udev"}
    assert box.devices == ("/dev/nvidia0", "/dev/nvidia1")
    assert box.capabilities == ("IPC_LOCK",)
    assert cache.place.file == "compose.yaml"


def test_three_files_count_in_their_order() -> None:
    size = "services: {{cache: {{command: lmcache server --l1-size-gb {}}}}}\n"
    files = {"a.yml": BASE, "b.yml": size.format(8), "c.yml": size.format(16)}
    (launch,) = found_in(files).launches
    assert launch.words[-1].text == "16"
    (launch,) = found_in({"a.yml": BASE, "c.yml": size.format(16), "b.yml": size.format(8)}).launches
    assert launch.words[-1].text == "8"


def test_reset_and_override() -> None:
    over = """\
services:
  cache:
    command: !reset null
    devices: !override [/dev/nvidia2]
    cap_add: !reset []
    environment:
      NVIDIA_GDS: !reset null
"""
    (launch,) = found_in({"compose.yaml": BASE, "more.yaml": over}).launches
    assert launch.words == ()
    assert list(launch.env) == ["DYN_KVBM_CPU_CACHE_GB"]
    assert launch.container is not None
    assert (launch.container.devices, launch.container.capabilities) == (("/dev/nvidia2",), ())


def test_files_of_two_folders_and_files_that_are_extended_stay_by_themselves() -> None:
    apart = found_in({"a/compose.yaml": BASE, "b/compose.yaml": BASE}).launches
    assert [launch.place.file for launch in apart] == ["a/compose.yaml", "b/compose.yaml"]
    extends = "services: {own: {extends: {file: common.yaml, service: cache}}}\n"
    names = [
        box.name
        for launch in found_in({"compose.yaml": extends, "common.yaml": BASE}).launches
        if (box := launch.container)
    ]
    assert sorted(names) == ["cache", "own"]


def test_what_compose_takes_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """compose.override.yaml beside compose.yaml; COMPOSE_FILE in .env instead of it; neither for a file of another name."""
    (tmp_path / "compose.yaml").write_text(BASE)
    (tmp_path / "own.yaml").write_text(BASE)
    (tmp_path / "compose.override.yaml").write_text("services: {cache: {command: lmcache server --l1-size-gb 8}}\n")
    (tmp_path / "prod.yaml").write_text("services: {cache: {command: lmcache server --l1-size-gb 9}}\n")

    def size(name: str) -> tuple[float, list[str], list[str]]:
        assert run(["app", str(tmp_path / name), "--format", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        followed = [line.rpartition(", named in ")[0].rpartition("/")[2] for line in told["followed"]]
        return told["stacks"][0]["tiers"][0]["size_gib"], followed, [line.rpartition("/")[2] for line in told["unread"]]

    assert size("compose.yaml") == (8, ["compose.override.yaml"], [])
    assert size("own.yaml") == (64, [], [])
    (tmp_path / ".env").write_text("COMPOSE_FILE=compose.yaml:prod.yaml:gone.yaml\n")
    assert size("compose.yaml") == (9, [".env", "prod.yaml"], ["compose.yaml:1: gone.yaml"])


def test_a_broken_override_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "compose.yaml").write_text(BASE)
    (tmp_path / "compose.override.yaml").write_text("services:\n  cache: [\n")
    for files in (["compose.yaml"], ["compose.yaml", "compose.override.yaml"]):
        assert run(["app", *(str(tmp_path / name) for name in files)]) == 4
        assert "compose.override.yaml:" in capsys.readouterr().err


def test_each_program_once_in_the_report() -> None:
    report = judge([("compose.yaml", BASE), ("prod.yaml", OVER)], tool=TOOL)
    assert [stack.software for stack in report.stacks] == ["LMCache server", "Dynamo KVBM", "fastsafetensors"]
    assert report.idle == ()
