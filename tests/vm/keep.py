"""Make a small fixture of a capture: python -m tests.vm.keep CAPTURE... fixtures/machines/NAME.tar.gz

Several states of one machine go into one archive, each as STATE/root/ (the snapshot) and STATE/oracle/. Left out: what no
comparison asks for and what fills 9 of 10 bytes, that is lines of kallsyms and of the kernel's configuration and log that
say nothing of PCI, NVMe, RDMA or GPUs.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import tarfile
from pathlib import Path

from tests.vm.machines import ROOT

_KALLSYMS = re.compile(rb"nvfs|p2pdma|dma_scsi_ops|nvidia")
_CONFIG = re.compile(rb"PCI|IOMMU|NVME|HMM|DMABUF|MODVERSIONS|MODULE_SIG")
_LOG = re.compile(rb"pci|iommu|DMAR|nvme|nvidia|P2P|p2p|rdma|rxe|Command line|Linux version", re.IGNORECASE)
_KEPT = (
    (re.compile(r"/proc/kallsyms$"), _KALLSYMS),
    (re.compile(r"/boot/config-"), _CONFIG),
    (re.compile(r"dmesg\.(stdout|txt)$"), _LOG),
)
# Where the checkout and its Python lay on the machine that made the capture.
_OWN = {sys.prefix: "/opt/venv", os.path.realpath(sys.base_prefix): "/opt/python", str(ROOT): "/opt/gdsctl"}


def _thin(name: str, data: bytes) -> bytes:
    for path, instead in _OWN.items():  # the venv may lie in the checkout, so it comes first
        data = data.replace(path.encode(), instead.encode())
    wanted = next((lines for files, lines in _KEPT if files.search(name)), None)
    return b"".join(line for line in data.splitlines(keepends=True) if wanted.search(line)) if wanted else data


def keep(captures: list[Path], out: Path) -> None:
    """Deterministic: same captures, same bytes."""
    with (
        out.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):

        def add(name: str, data: bytes) -> None:
            thinned = _thin(name, data)
            info = tarfile.TarInfo(name)
            info.size = len(thinned)
            archive.addfile(info, io.BytesIO(thinned))

        for capture in captures:
            with tarfile.open(capture / "root.tar.gz") as snapshot:
                for member in snapshot:
                    name = f"{capture.name}/root/{member.name.removeprefix('./')}"
                    stream = snapshot.extractfile(member) if member.isfile() else None
                    if stream is not None:
                        add(name, stream.read())
                    else:
                        member.name, member.mtime = name, 0
                        archive.addfile(member)
            for file in sorted((capture / "oracle").iterdir()):
                add(f"{capture.name}/oracle/{file.name}", file.read_bytes())
            for file in sorted(capture.glob("p2pdma.json")):
                add(f"{capture.name}/{file.name}", file.read_bytes())


if __name__ == "__main__":
    keep([Path(argument) for argument in sys.argv[1:-1]], Path(sys.argv[-1]))
