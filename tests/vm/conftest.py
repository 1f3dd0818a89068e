"""Booted machines, one boot each in a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm import machines


@pytest.fixture(scope="session")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a machine's results. GDSCTL_VM_RESULTS: kept results (python -m tests.vm.machines OUT), not booted again."""
    done: dict[str, Path] = {}
    kept = os.environ.get("GDSCTL_VM_RESULTS")

    def results(name: str) -> Path:
        if name not in done:
            there = Path(kept, name) if kept else None
            if there is None or not (there / "boot.log").exists():
                why = machines.missing()
                if why:
                    pytest.skip(f"no virtual machine: {why}")
                there = tmp_path_factory.mktemp(name)
                machines.boot(name, there)
            done[name] = there
        return done[name]

    return results
