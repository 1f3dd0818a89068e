"""Download the libcufile wheels that the oracle tests compare, into the folder given (or $GDSCTL_CUFILE_WHEELS).

    python tests/oracle/fetch.py wheels && GDSCTL_CUFILE_WHEELS=wheels pytest -m oracle

They are NVIDIA's, under NVIDIA's licence: downloaded and run, never committed. Linux x86-64 only; about 12 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys

WANTED = [
    *(f"nvidia-cufile-cu12=={release}.*" for release in ("1.11", "1.13", "1.14")),
    *(f"nvidia-cufile=={release}.*" for release in ("1.15", "1.16", "1.17", "1.18", "1.19", "1.20")),
]


def main() -> int:
    folder = sys.argv[1] if len(sys.argv) == 2 else os.environ.get("GDSCTL_CUFILE_WHEELS")
    if not folder:
        print(__doc__, file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", folder]
    failed = [wanted for wanted in WANTED if subprocess.run([*command, wanted], check=False).returncode]
    for wanted in failed:
        print(f"not available here: {wanted}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
