"""Which engine, and why."""

from __future__ import annotations

from typing import NamedTuple

from gdsctl.errors import UndecidedError, UsageError
from gdsctl.model.node import Report
from gdsctl.probe.engine import Engine
from gdsctl.probe.libcufile import Api
from gdsctl.probe.posix import PosixEngine
from gdsctl.record import Record

ENGINES = ("auto", "posix", "cufile", "bounce", "compat")


class Chosen(NamedTuple):
    """`gpus`: by the CUDA driver's index, none for an engine of host memory; `addresses`: their PCI functions."""

    engine: Engine
    because: str
    gpus: tuple[int, ...]
    addresses: tuple[str, ...] = ()


class _Wish(Record, frozen=True, kw_only=True):
    gpus: tuple[int, ...] | None
    strict: bool
    api: Api
    registered: bool

    @property
    def only_gpu(self) -> bool:
        """Was a GPU named?"""
        return self.gpus != ()

    @property
    def only_cufile(self) -> bool:
        """Is something asked of cuFile that no other engine has?"""
        return self.api != "sync" or not self.registered


def engine(
    name: str,
    node: Report,
    *,
    iodepth: int,
    shared: bool = False,
    gpus: tuple[int, ...] | None,
    strict: bool,
    api: Api = "sync",
    registered: bool = True,
) -> Chosen:
    """`shared`: do threads share a process on host memory, with nothing to do between two blocks? `gpus` None: all, empty: the
    first, or host memory; `strict`: cuFile without compat mode; `api`, `registered`: of cuFile, see CufileEngine.

    Raises UndecidedError where the engine asked for cannot run here; `auto` then takes the next best. Raises UsageError
    for what does not go together.
    """
    wish = _Wish(gpus=gpus, strict=strict, api=api, registered=registered)
    if name not in ENGINES:
        raise UsageError(f"--engine must be one of {', '.join(ENGINES)}")
    if name in ("posix", "bounce") and wish.only_cufile:
        raise UsageError(f"--cufile-api and --unregistered are of cuFile, which --engine {name} does not use")
    if name == "compat" and strict:
        raise UsageError("--engine compat is compat mode: it does not go with --require-path of a direct route")
    if name == "posix":
        return Chosen(PosixEngine(iodepth, shared=shared), "asked for", ())
    if name != "auto":
        return _on_gpu(name, node, wish, "asked for")
    try:
        return _on_gpu("cufile", node, wish, "auto: a GPU and libcufile are here")
    except UndecidedError as error:
        if strict or wish.only_cufile:  # no other engine can do what is demanded
            raise
        no_cufile = str(error).partition(";")[0]
    try:
        return _on_gpu("bounce", node, wish, f"auto: {no_cufile}")
    except UndecidedError as error:
        if wish.only_gpu:
            raise
        no_gpu = str(error).partition(";")[0]
    return Chosen(PosixEngine(iodepth, shared=shared), f"auto: {no_gpu}", ())


def _on_gpu(name: str, node: Report, wish: _Wish, because: str) -> Chosen:
    from gdsctl.probe.cuda import Cuda, gpus_wanted

    cuda = Cuda()
    wanted = tuple(range(cuda.count)) if wish.gpus is None else gpus_wanted(cuda, wish.gpus)
    addresses = tuple(map(cuda.address, wanted))
    if name == "bounce":
        from gdsctl.probe.bounce import BounceEngine

        return Chosen(BounceEngine(cuda), because, wanted, addresses)
    from gdsctl.probe.cufile import CufileEngine

    made = CufileEngine(
        cuda,
        wanted[0],
        node.gds.cufile_config.merged or {},
        node.gds.libcufile,
        strict=wish.strict,
        api=wish.api,
        registered=wish.registered,
        compat=name == "compat",
    )
    return Chosen(made, because, wanted, addresses)
