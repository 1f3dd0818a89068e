"""Structures as NVIDIA's header has them, the calls of each interface, and their errors over a library of our own."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from gdsctl.errors import UndecidedError
from gdsctl.probe import libcufile
from gdsctl.probe.libcufile import Descr, Error, IOEvents, IOParams, Level1, PerGpu, level3
from tests.oracle import oracle
from tests.oracle.cufile_io import BLOCK, BLOCKS, carry, pattern

HERE = Path(__file__).parent

# Ours, the header's, and our field with the header's name for it where they differ.
STRUCTURES: tuple[tuple[type[ctypes.Structure], str, dict[str, str]], ...] = (
    (Error, "CUfileError_t", {"err": "err", "cu_err": "cu_err"}),
    (Descr, "CUfileDescr_t", {"type": "type", "handle": "handle", "fs_ops": "fs_ops"}),
    (
        IOParams,
        "CUfileIOParams_t",
        {
            "mode": "mode",
            "devPtr_base": "u.batch.devPtr_base",
            "file_offset": "u.batch.file_offset",
            "devPtr_offset": "u.batch.devPtr_offset",
            "size": "u.batch.size",
            "fh": "fh",
            "opcode": "opcode",
            "cookie": "cookie",
        },
    ),
    (IOEvents, "CUfileIOEvents_t", {"cookie": "cookie", "status": "status", "ret": "ret"}),
)
COUNTED: tuple[tuple[type[ctypes.Structure], str, dict[str, str]], ...] = (
    (
        Level1,
        "CUfileStatsLevel1_t",
        {f"batch_{name}_submit": f"batch_{name}_submit_ops" for name in ("nvfs", "p2p", "aio", "iouring", "total")},
    ),
    (
        PerGpu,
        "CUfilePerGpuStats_t",
        {
            **{f"reads_{name}": f"n_{name}_reads" for name in ("total", "p2p", "nvfs", "posix")},
            **{f"writes_{name}": f"n_{name}_writes" for name in ("total", "p2p", "nvfs", "posix")},
            "reg_bytes": "reg_bytes",
        },
    ),
)
CONSTANTS = {
    "CUFILE_READ": libcufile.READ,
    "CUFILE_WRITE": libcufile.WRITE,
    "CUFILE_BATCH": libcufile.BATCH,
    "CUFILE_WAITING | CUFILE_PENDING": libcufile.PENDING,
    "CUFILE_COMPLETE": libcufile.COMPLETE,
    "CU_FILE_HANDLE_TYPE_OPAQUE_FD": libcufile.OPAQUE_FD,
    "CU_FILE_STREAM_FIXED_BUF_OFFSET | CU_FILE_STREAM_FIXED_FILE_OFFSET | CU_FILE_STREAM_FIXED_FILE_SIZE": libcufile.FIXED,
    "CU_FILE_STREAM_PAGE_ALIGNED_INPUTS": libcufile.PAGE_ALIGNED,
    **{name: status for status, name in libcufile.UNFINISHED.items()},
}


def headers() -> dict[str, bytes]:
    """cufile.h of the installed wheel and of those in $GDSCTL_CUFILE_WHEELS, by version."""
    found = {}
    try:
        for file in importlib.metadata.files("nvidia-cufile") or ():
            if file.name == "cufile.h":
                found[importlib.metadata.version("nvidia-cufile")] = Path(str(file.locate())).read_bytes()
    except (importlib.metadata.PackageNotFoundError, OSError):
        pass
    for wheel in sorted(Path(os.environ.get("GDSCTL_CUFILE_WHEELS", "/nonexistent")).glob("nvidia_cufile*.whl")):
        with ZipFile(wheel) as archive:
            name = next((name for name in archive.namelist() if name.endswith("/cufile.h")), None)
            if name is not None:
                found[wheel.name.split("-")[1]] = archive.read(name)
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("version", list(headers()) or [""])
def test_structures_are_laid_out_as_in_cufile_h(version: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not version or compiler is None:
        pytest.skip("cufile.h is in the nvidia-cufile wheel; a C compiler is needed, too")
    told = tuple(map(int, version.split(".")[:2])) >= (1, 15)
    # The header includes CUDA's for two types only.
    (tmp_path / "cuda.h").write_text("typedef int CUresult; typedef struct CUstream_st *CUstream;\n")
    (tmp_path / "cufile.h").write_bytes(headers()[version])
    wanted = [*STRUCTURES, *(COUNTED if told else ())]
    lines = [
        f'printf("{theirs}.{member} %zu\\n", offsetof({theirs}, {member}));'
        for _, theirs, members in wanted
        for member in members.values()
    ]
    lines += [f'printf("{theirs} %zu\\n", sizeof({theirs}));' for _, theirs, _ in wanted]
    lines += [f'printf("{name} %zu\\n", (size_t)({name}));' for name in CONSTANTS]
    if told:
        lines.append('printf("CUfileStatsLevel3_t %zu\\n", sizeof(CUfileStatsLevel3_t));')
    (tmp_path / "told.c").write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include <stdbool.h>\n#include "cufile.h"\n'
        f"int main(void) {{ {' '.join(lines)} return 0; }}\n"
    )
    subprocess.run([compiler, "-w", "-I", tmp_path, "-o", tmp_path / "told", tmp_path / "told.c"], check=True)
    said = subprocess.run([tmp_path / "told"], capture_output=True, text=True, check=True).stdout
    theirs_said = {name: int(value) for name, _, value in (line.rpartition(" ") for line in said.splitlines())}
    ours: dict[str, int] = dict(CONSTANTS)
    vectored = tuple(map(int, version.split(".")[:2])) >= (1, 19)
    for structure, theirs, members in wanted:
        ours[theirs] = ctypes.sizeof(structure) + (14 * 8 if structure is Level1 and vectored else 0)
        ours |= {f"{theirs}.{their}": getattr(structure, our).offset for our, their in members.items()}
    if told:
        ours["CUfileStatsLevel3_t"] = ctypes.sizeof(level3(vectored=vectored))
    assert theirs_said == ours


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Compiles fakecufile.c with the flags given."""
    try:
        oracle.build_stub()
    except oracle.Unavailable as error:
        pytest.skip(str(error))
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None  # it has just built the other

    def build(*flags: str) -> str:
        path = tmp_path_factory.mktemp("fakecufile") / "libcufile.so.0"
        source = str(HERE / "fakecufile.c")
        subprocess.run([compiler, "-O1", "-w", "-shared", "-fPIC", *flags, "-o", str(path), source], check=True)
        return str(path)

    return build


@pytest.fixture(scope="module")
def library(built: Callable[..., str]) -> str:
    return built()


ASKED = [
    ("sync", {}),
    ("batch", {"iodepth": 1}),
    ("batch", {"iodepth": 6}),
    ("stream", {"iodepth": 1}),
    ("stream", {"iodepth": 6, "registered": False}),
]


@pytest.mark.parametrize(("api", "more"), ASKED)
def test_each_interface_moves_every_block(library: str, tmp_path: Path, api: str, more: dict[str, Any]) -> None:
    found, contents = carry(library, tmp_path, api=api, runs=["write", "read", 40], **more)
    assert [(run["blocks"], run["mismatch"]) for run in found["runs"]] == [(BLOCKS, None)] * 3
    assert contents == pattern()


@pytest.mark.parametrize(("api", "more"), ASKED)
def test_each_interface_tells_which_block_failed(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, more: dict[str, Any]
) -> None:
    monkeypatch.setenv("FAKECUFILE_FAIL_AT", str(7 * BLOCK))
    found, _ = carry(library, tmp_path, api=api, threads=1, runs=["write"], **more)
    (run,) = found["runs"]
    failed = "CUFILE_FAILED: " if api == "batch" else ""
    assert run["error"] == f"write of 64 KiB at offset {7 * BLOCK}: {failed}Input/output error (EIO)"


@pytest.mark.parametrize(("api", "more"), ASKED)
def test_each_interface_tells_of_a_block_moved_in_part(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, more: dict[str, Any]
) -> None:
    monkeypatch.setenv("FAKECUFILE_SHORT_AT", str(2 * BLOCK))
    found, _ = carry(library, tmp_path, api=api, threads=1, runs=["write"], **more)
    (run,) = found["runs"]
    assert run["error"] == f"write of 64 KiB at offset {2 * BLOCK}: only 512 bytes of it were moved"


@pytest.mark.parametrize(
    ("api", "said"),
    [
        ("batch", "the batch calls of libcufile need 1.6 (CUDA 12.1), this is 1.5"),
        ("stream", "the stream calls of libcufile need 1.7 (CUDA 12.2), this is 1.5"),
    ],
)
def test_a_library_without_the_calls(built: Callable[..., str], api: libcufile.Api, said: str) -> None:
    with pytest.raises(UndecidedError, match=re.escape(said)) as caught:
        libcufile.load(built("-DOLD"), api)
    assert str(caught.value).endswith("settle with: ldconfig -p | grep libcufile")


def test_what_a_result_below_zero_means() -> None:
    assert str(libcufile.failed(-5)) == "[Errno 5] Input/output error"
    assert str(libcufile.failed(-5035)) == "[Errno 5035] cuFile error 5035, BATCH_SUBMIT_FAILED"
    assert str(libcufile.failed(-5999)) == "[Errno 5999] cuFile error 5999"
    ctypes.set_errno(28)
    assert str(libcufile.failed(-1)) == "[Errno 28] No space left on device"
    ctypes.set_errno(5019)  # libcufile 1.20 writing to a file that is open for reading only
    assert str(libcufile.failed(-1)) == "[Errno 5019] cuFile error 5019, INVALID_FILE_OPEN_FLAG"
