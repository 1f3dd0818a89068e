"""Which libcufile the tests ask: the installed wheel, and those that fetch.py put into $GDSCTL_CUFILE_WHEELS."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gdsctl.data import cufile_keys
from gdsctl.record import Record
from tests.oracle import oracle


class Libcufile(Record, frozen=True, kw_only=True):
    """A library to ask. `version`: of its wheel; `installed`: the one every run has."""

    version: str
    path: str
    installed: bool

    def ask(self, config: Any, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = oracle.ask(config, lib=self.path, **{"unknown": False, "timeout": 300, **more})
        return answer

    def probe(self, documents: list[str]) -> list[dict[str, Any]]:
        """What the library makes of each document alone: {"code": int or None where it died, "said": [..]}."""
        answers = self.ask("{}", probes={str(at): text for at, text in enumerate(documents)})["probes"]
        return [answers[str(at)] for at in range(len(documents))]

    def refuses(self, documents: list[str]) -> list[bool]:
        """Does it refuse each document, or die of it? (What it says about GPU slabs does not stop it.)"""
        return [
            answer["code"] is None
            or any(oracle.CONFIG_FAILURE.search(line) for line in answer["said"] if "slab_config" not in line)
            for answer in self.probe(documents)
        ]


def _find(release: str) -> Libcufile:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise oracle.Unavailable("libcufile is asked on Linux x86-64 only")
    oracle.build_stub()
    try:
        installed = importlib.metadata.version("nvidia-cufile")
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    if installed.startswith(f"{release}."):
        return Libcufile(version=installed, path=str(oracle.find_library()), installed=True)
    folder = os.environ.get("GDSCTL_CUFILE_WHEELS", "")
    wheels = sorted(Path(folder).glob(f"nvidia_cufile*-{release}.*.whl")) if folder else []
    if not wheels:
        raise oracle.Unavailable(f"no libcufile {release} here; tests/oracle/fetch.py downloads it")
    return Libcufile(version=wheels[-1].name.split("-")[1], path=str(wheels[-1]), installed=False)


def _all_at_hand() -> dict[str, Libcufile]:
    found = {}
    for row in cufile_keys.releases():
        with contextlib.suppress(oracle.Unavailable):
            found[row.gds] = _find(row.gds)
    return found


AT_HAND = _all_at_hand()


@pytest.fixture(scope="session", params=list(AT_HAND) or [""])
def libcufile(request: pytest.FixtureRequest) -> Libcufile:
    """Each release of libcufile that is at hand, in turn."""
    if not request.param:
        pytest.skip("no libcufile can be asked here: Linux x86-64, a C compiler and the nvidia-cufile wheel are needed")
    return AT_HAND[request.param]


@pytest.fixture(scope="session")
def installed() -> Libcufile:
    """The libcufile of the installed wheel."""
    for found in AT_HAND.values():
        if found.installed:
            return found
    pytest.skip("the nvidia-cufile wheel is not installed, or cannot be asked here")


@pytest.fixture(scope="session")
def at_hand() -> list[str]:
    """The GDS releases that can be asked here."""
    return list(AT_HAND)
