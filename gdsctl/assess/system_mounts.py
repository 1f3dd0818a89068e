"""Mounts of the operating system, where nobody expects GPUs to read from."""

from __future__ import annotations

# Mounts that hold the system or the containers' layers, not an application's data (Filesystem Hierarchy Standard 3.0).
_SYSTEM = (
    "/",
    "/boot",
    "/efi",
    "/etc",
    "/home",
    "/opt",
    "/ostree",
    "/nix",
    "/root",
    "/run",
    "/snap",
    "/sysroot",
    "/tmp",  # noqa: S108 -- a name to compare with, nothing is written there
    "/usr",
    "/var",
)
_BELOW = ("/boot", "/efi", "/etc", "/nix", "/ostree", "/run", "/snap", "/sysroot", "/usr", "/var")


def is_system(target: str) -> bool:
    """Does a mount hold the operating system or a container runtime's layers?"""
    return target in _SYSTEM or target.startswith(tuple(f"{folder}/" for folder in _BELOW))
