from __future__ import annotations

import json

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


def test_intents_meet_their_schema() -> None:
    jsonschema.validate(yaml.safe_load(INTENT), schema("intent"), jsonschema.Draft202012Validator)
    wrongs: tuple[dict[str, object], ...] = ({"mode": "fast"}, {"moutns": []}, {"mounts": [{"expect": "direct"}]})
    for wrong in wrongs:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema("intent"), jsonschema.Draft202012Validator)
