"""Which engine, and why."""

from __future__ import annotations

from typing import NamedTuple

from gdsctl.errors import UndecidedError, UsageError
from gdsctl.model.node import Report
from gdsctl.probe.engine import Engine
from gdsctl.probe.posix import PosixEngine

ENGINES = ("auto", "posix", "cufile", "bounce")


class Chosen(NamedTuple):
    """`gpus`: by the CUDA driver's index, none for an engine of host memory."""

    engine: Engine
    because: str
    gpus: tuple[int, ...]


def engine(name: str, node: Report, *, iodepth: int, gpus: tuple[int, ...] | None, strict: bool) -> Chosen:
    """`gpus` None: all; `strict`: cuFile without compat mode.

    Raises UndecidedError where the engine asked for cannot run here; `auto` then takes the next best.
    """
    if name == "posix":
        return Chosen(PosixEngine(iodepth), "asked for", ())
    if name in ("cufile", "bounce"):
        return _on_gpu(name, node, gpus, "asked for", strict=strict)
    if name != "auto":
        raise UsageError(f"--engine must be one of {', '.join(ENGINES)}")
    try:
        return _on_gpu("cufile", node, gpus, "auto: a GPU and libcufile are here", strict=strict)
    except UndecidedError as error:
        if strict:  # a GPU's route is demanded, and no other engine can take one
            raise
        no_cufile = str(error).partition(";")[0]
    try:
        return _on_gpu("bounce", node, gpus, f"auto: {no_cufile}", strict=strict)
    except UndecidedError as error:
        no_gpu = str(error).partition(";")[0]
    return Chosen(PosixEngine(iodepth), f"auto: {no_gpu}", ())


def _on_gpu(name: str, node: Report, gpus: tuple[int, ...] | None, because: str, *, strict: bool) -> Chosen:
    from gdsctl.probe.cuda import Cuda, gpus_wanted

    cuda = Cuda()
    wanted = tuple(range(cuda.count)) if gpus is None else gpus_wanted(cuda, gpus)
    if name == "bounce":
        from gdsctl.probe.bounce import BounceEngine

        return Chosen(BounceEngine(cuda), because, wanted)
    from gdsctl.probe.cufile import CufileEngine

    configuration = node.gds.cufile_config.merged or {}
    made = CufileEngine(cuda, wanted[0], configuration, node.gds.libcufile, strict=strict)
    return Chosen(made, because, wanted)
