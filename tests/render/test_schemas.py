from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gdsctl.cli import run
from gdsctl.render.schemas import SCHEMAS, schema

EXAMPLES = ("hgx-h100-vast", "pcie-nvme-raid", "nvme-unpatched", "vm-flattened", "vm-lab-switches")
INTENT = """\
schema: gdsctl/intent/v1
gds_version: "1.14"
mode: auto
compat: forbid
gpus: [0, "0000:3b:00.0"]
mounts:
  - {target: /mnt/nvme, expect: direct}
  - {target: /vast/kv, type: nfs, source: "172.16.1.10:/kv", client: vast, transport: rdma, nics: auto, options: {nconnect: 16}}
routing: [GPU_MEM_NVLINKS, SYS_MEM]
tuning: {max_io_threads: 8}
workload: {kind: kv-cache, chunk_bytes: 48MiB}
"""


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_schemas_are_schemas(name: str) -> None:
    found = schema(name)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$schema"].endswith("2020-12/schema")
    assert found["$id"]
    assert found["title"] == f"gdsctl {name}"


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("command", ["inspect", "plan", "verify"])
def test_documents_meet_their_schema(command: str, example: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([command, "-S", f"example:{example}", "--format", "json"])
    jsonschema.validate(json.loads(capsys.readouterr().out), schema(command), jsonschema.Draft202012Validator)


def valid(name: str, text: str) -> None:
    jsonschema.validate(json.loads(text), schema(name), jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{,}",
        '{"properties": {"max_direct_io_size_kb": 100, "use_compat_mode": true}}',
        '{"denylist": {"mounts": ["/no"]}}',
    ],
)
def test_lint_meets_its_schema(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cufile.json"
    path.write_text(text)
    for more in ([], ["--gds-version", "1.14"], ["--fix"]):
        run(["lint", str(path), "--format", "json", *more])
        valid("lint", capsys.readouterr().out)


def test_lint_of_a_node_meets_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    for example in EXAMPLES:
        run(["lint", "-S", f"example:{example}", "--format", "json"])
        valid("lint", capsys.readouterr().out)
    with pytest.raises(jsonschema.ValidationError):
        valid("lint", '{"schema_version": "1"}')


@pytest.mark.parametrize("asked", [[], ["nvme.unpatched"], ["app.dram-staged"], ["5030"]])
def test_explain_meets_its_schema(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", *asked, "--format", "json"]) == 0
    valid("explain", capsys.readouterr().out)


def test_every_command_that_prints_a_document_has_a_schema() -> None:
    """By the commands' own options: whoever takes --format json."""
    import typer.main

    from gdsctl.cli.app import app

    group: Any = typer.main.get_command(app)
    printing = {
        name
        for name, command in group.commands.items()
        for option in command.params
        if option.name == "format" and "json" in {getattr(choice, "value", choice) for choice in option.type.choices}
    }
    assert {"inspect", "plan", "lint", "explain"} <= printing
    assert printing <= set(SCHEMAS)


def test_intents_meet_their_schema() -> None:
    jsonschema.validate(yaml.safe_load(INTENT), schema("intent"), jsonschema.Draft202012Validator)
    wrongs: tuple[dict[str, object], ...] = ({"mode": "fast"}, {"moutns": []}, {"mounts": [{"expect": "direct"}]})
    for wrong in wrongs:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema("intent"), jsonschema.Draft202012Validator)
