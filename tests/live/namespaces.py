"""The program as another user, and in a root of its own; in mount namespaces, so nothing of this machine changes.

Both need root and unshare(1); `usable` says why a test that lacks them skips.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

NOBODY = 65534
_PACKAGE = Path(__file__).resolve().parents[2]
_MODULE = [sys.executable, "-m", "gdsctl"]

# Folders above the interpreter that only their owner may pass (a home) are laid open to all, with folders of the same
# contents in a tmpfs over them; then the rights go.
_AS_NOBODY = """
set -e
mount --make-rprivate /
for hidden in $HIDDEN; do
    kept=$(mktemp -d)
    mount --rbind "$hidden" "$kept"
    mount -t tmpfs -o mode=755 none "$hidden"
    for entry in "$kept"/* "$kept"/.[!.]*; do
        [ -d "$entry" ] && [ ! -L "$entry" ] || continue
        mkdir "$hidden/${entry##*/}"
        mount --rbind "$entry" "$hidden/${entry##*/}"
    done
done
cd /
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"""

# What a container's image and manager give: libraries, the program, a procfs, a few devices; neither /sys nor /run/udev.
_IN_ROOT = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 none "$NEW"
for folder in $FOLDERS; do
    [ -d "$folder" ] || continue
    if [ -L "$folder" ]; then ln -s "$(readlink "$folder")" "$NEW$folder"; continue; fi
    mkdir -p "$NEW$folder"
    mount --rbind "$folder" "$NEW$folder"
done
mkdir -p "$NEW/proc" "$NEW/dev" "$NEW/tmp" "$NEW/etc"
mount -t proc proc "$NEW/proc"
for device in null zero urandom; do : > "$NEW/dev/$device"; mount --bind "/dev/$device" "$NEW/dev/$device"; done
: > "$NEW/.dockerenv"
exec chroot "$NEW" "$@"
"""


@functools.cache
def usable() -> str:
    """Empty, or why namespaces cannot be made here."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("unshare", "setpriv", "chroot", "mount") if not shutil.which(tool)]
    if missing:
        return f"no {missing[0]}"
    done = subprocess.run(["unshare", "-mpf", "--mount-proc", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "may not make namespaces"


def _ancestors() -> list[Path]:
    """Of the interpreter, of what it is a link to, and of the package."""
    places = {Path(sys.executable), Path(os.path.realpath(sys.executable)), Path(sys.base_prefix), _PACKAGE / "gdsctl"}
    return sorted({parent for place in places for parent in place.parents})


def as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program with the rights of nobody."""
    hidden = [str(place) for place in _ancestors() if not place.stat().st_mode & stat.S_IXOTH]
    return _run(["unshare", "-m", "sh", "-c", _AS_NOBODY, "sh"], arguments, HIDDEN=" ".join(hidden), HOME="/")


def as_ourselves(*arguments: str) -> subprocess.CompletedProcess[str]:
    return _run([], arguments)


def in_container(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program in a root that holds little; `root`: an empty folder."""
    folders = ["/usr", "/bin", "/lib", "/lib64", str(_PACKAGE), sys.prefix, sys.base_prefix]
    wanted = [one for one in dict.fromkeys(folders) if not any(one.startswith(other + "/") for other in folders)]
    command = ["unshare", "-mpf", "sh", "-c", _IN_ROOT, "sh"]
    return _run(command, arguments, NEW=str(root), FOLDERS=" ".join(wanted), HOME="/")


def _run(before: list[str], arguments: tuple[str, ...], **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_PACKAGE), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run(
        [*before, *_MODULE, *arguments], env=own, capture_output=True, text=True, check=False, timeout=120, cwd="/"
    )
