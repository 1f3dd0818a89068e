"""Which engine is taken; without a GPU here, but for the one that the test pretends."""

from __future__ import annotations

from typing import Any

import pytest

from gdsctl.errors import UndecidedError, UsageError
from gdsctl.probe import choose, cuda


class Driver:
    """Two GPUs in CUDA's order, which is not the bus's; or none."""

    def __init__(self) -> None:
        self.count = 2

    def address(self, gpu: int) -> str:
        return ("0000:c1:00.0", "0000:17:00.0")[gpu]


class NoDriver:
    def __init__(self) -> None:
        raise UndecidedError("no CUDA driver here (libcuda.so.1); settle with: nvidia-smi")


def chosen(name: str, **more: Any) -> choose.Chosen:
    asked: dict[str, Any] = {"iodepth": 1, "gpus": (0,), "strict": False, **more}
    node: Any = None  # no case here looks at it
    return choose.engine(name, node, **asked)


def test_addresses_are_in_the_order_of_the_gpus_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "Cuda", Driver)
    assert chosen("bounce", gpus=(1,)).addresses == ("0000:17:00.0",)
    every = chosen("bounce", gpus=None)
    assert (every.gpus, every.addresses) == ((0, 1), ("0000:c1:00.0", "0000:17:00.0"))


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("posix", {"api": "batch"}, "--engine posix does not use"),
        ("bounce", {"registered": False}, "--engine bounce does not use"),
        ("compat", {"strict": True}, "--engine compat is compat mode"),
        ("gds", {}, "auto, posix, cufile, bounce, compat"),
    ],
)
def test_what_does_not_go_together(name: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chosen(name, **more)


@pytest.mark.parametrize("more", [{"strict": True}, {"api": "stream"}, {"registered": False}])
def test_auto_takes_no_engine_that_cannot_do_what_is_demanded(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setattr(cuda, "Cuda", NoDriver)
    with pytest.raises(UndecidedError, match="no CUDA driver here"):
        chosen("auto", **more)


def test_auto_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "Cuda", NoDriver)
    found = chosen("auto", gpus=())
    assert (found.engine.name, found.gpus, found.addresses) == ("posix", (), ())
    assert found.because == "auto: no CUDA driver here (libcuda.so.1)"


@pytest.mark.parametrize("gpus", [(0,), (1, 0), None])
def test_a_gpu_that_was_named_is_not_replaced_by_host_memory(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[int, ...] | None
) -> None:
    monkeypatch.setattr(cuda, "Cuda", NoDriver)
    with pytest.raises(UndecidedError, match="no CUDA driver here"):
        chosen("auto", gpus=gpus)
