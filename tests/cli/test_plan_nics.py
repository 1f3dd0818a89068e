"""NICs that an intent names and the node does not have: told, and the plan does not pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdsctl.cli import run


def test_a_nic_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    intent = tmp_path / "i.yaml"
    intent.write_text(
        "schema: gdsctl/intent/v1\nmounts:\n  - target: /weka\n    type: wekafs\n    source: w/fs\n    nics: [mlx5_2, mlx5_99]\n"
    )
    code = run(["plan", "-S", "example:hgx-h100-vast", "--intent", str(intent)])
    said = capsys.readouterr().err
    assert code == 1
    assert "nic:mlx5_99: the node has no NIC mlx5_99, which the intent names for /weka" in said
    assert "mlx5_2:" not in said
