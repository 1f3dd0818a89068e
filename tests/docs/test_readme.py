"""Every line of the README's tour runs from a checkout, ends as it says, and leaves no traceback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOUR = re.compile(r"<!-- tour -->\n```sh\n(.*?)```", re.DOTALL)


def test_the_tour(tmp_path: Path) -> None:
    found = TOUR.search((ROOT / "README.md").read_text("utf-8"))
    assert found
    commands = [line for line in found[1].splitlines() if line and not line.startswith(("#", ". "))]
    assert len(commands) >= 15
    shutil.copytree(ROOT / "docs" / "samples", tmp_path / "docs" / "samples")
    (tmp_path / "bin").mkdir()
    for name in ("gdsctl", "less"):
        tool = tmp_path / "bin" / name
        tool.write_text(
            f'#!/bin/sh\nexec {sys.executable} -m gdsctl "$@"\n' if name == "gdsctl" else "#!/bin/sh\nexec cat\n"
        )
        tool.chmod(0o755)
    script = "\n".join(["set -e", *commands]).replace("/var/tmp --size 256M", f"{tmp_path} --size 4M")
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    environment = {name: value for name, value in environment.items() if not name.startswith("CUFILE_")}
    ran = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "direct\n" in ran.stdout  # verify of the node that is right
    assert (
        ran.stdout.count("exit code 1") == 5
    )  # plan; verify of a node that is not; the flawed file, the staged cache, the drift
    assert (tmp_path / "gds-plan" / "cufile.json").is_file()
    assert (tmp_path / "node.tar.gz").is_file()
