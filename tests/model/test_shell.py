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
WORDS = st.text(st.sampled_from("a1 '\"\\$`;#|&%!-/\x01\n\r\u202e\u00e9"), max_size=12)


@pytest.mark.parametrize("shell", SHELLS)
@given(word=WORDS)
@settings(max_examples=40, deadline=None)
def test_a_shell_reads_the_word_back(shell: str, word: str) -> None:
    line = quoted(word)
    assert line.isprintable()
    ran = subprocess.run([shell, "-c", f"printf %s {line}"], capture_output=True, check=True)
    assert ran.stdout == word.encode()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("word", ["fs1\n", "\n", "a\n\n", "-\n", "/mnt/a\n"])
def test_a_newline_at_the_end_is_kept(shell: str, word: str) -> None:
    """`$(...)` takes newlines off its end (POSIX.1-2017, Shell Command Language 2.6.3)."""
    ran = subprocess.run([shell, "-uc", f"printf %s {quoted(word)}"], capture_output=True, check=True)
    assert ran.stdout == word.encode()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_whose_name_ends_in_a_newline_is_found(shell: str, tmp_path: Path) -> None:
    folder = tmp_path / "a\n\n"
    folder.mkdir()
    subprocess.run([shell, "-c", f"rmdir -- {quoted(str(folder))}"], check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "name", ["/mnt/\x01'; touch made #", "/mnt/\u202e';touch made;'", "/mnt/\n\\'; touch made #", "';touch made;'"]
)
def test_no_shell_runs_a_name(shell: str, name: str, tmp_path: Path) -> None:
    subprocess.run([shell, "-c", f": {quoted(name)}"], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.iterdir()) == []
