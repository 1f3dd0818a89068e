"""Names on a shell line: what a shell makes of them, not what they look like."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.model.shell import quoted

SHELLS = [shell for shell in ("bash", "dash", "sh") if shutil.which(shell)]
WORDS = st.text(st.sampled_from("a1 '\"\\$`;#|&\x01\n\r\u202e\u00e9"), max_size=12)


@given(WORDS)
@settings(max_examples=40, deadline=None)
def test_bash_reads_the_word_back(word: str) -> None:
    line = quoted(word)
    assert line.isprintable()
    ran = subprocess.run(["bash", "-c", f"printf %s {line}"], capture_output=True, check=True)
    assert ran.stdout == word.encode()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "name", ["/mnt/\x01'; touch made #", "/mnt/\u202e';touch made;'", "/mnt/\n\\'; touch made #", "';touch made;'"]
)
def test_no_shell_runs_a_name(shell: str, name: str, tmp_path: Path) -> None:
    """Dash has no $'...' and ends the quotes at a backslash and a quote."""
    subprocess.run([shell, "-c", f": {quoted(name)}"], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.iterdir()) == []
