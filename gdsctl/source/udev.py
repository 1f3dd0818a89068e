"""What udev's library knows of block devices and PCI names: the only module that imports pyudev."""

from __future__ import annotations

import os
from typing import Any

from gdsctl.source.base import Missing
from gdsctl.source.deadline import within

_PATIENCE_S = 10.0
_BLOCK = ("ID_FS_TYPE", "ID_FS_USAGE", "MD_", "DM_", "ID_PART_")
_PCI = ("ID_MODEL_FROM_DATABASE", "ID_VENDOR_FROM_DATABASE", "ID_PCI_CLASS_FROM_DATABASE")


def ask() -> dict[str, Any] | Missing:
    """The answer of udev; no_tool without pyudev or libudev.

    {devices {block {name: {property: value}}, pci {address: {property: value}}}, initialized, udev_version}. Of block
    devices only what says how they are used, of PCI devices the hardware database's names. Where no udevd runs,
    `initialized` is false and the properties of its rules are lacking.
    """
    return within(_PATIENCE_S, "udev", _asked)


def _asked() -> dict[str, Any] | Missing:
    try:
        import pyudev  # noqa: TID251 - here and nowhere else
    except ImportError as error:
        return Missing(status="no_tool", detail=f"pyudev: {error}")
    context = pyudev.Context()
    version = pyudev.udev_version() if os.path.exists("/run/udev") else None  # asks udevadm
    return {
        "devices": {
            "block": {
                device.sys_name.replace("!", "/"): _chosen(device, _BLOCK)
                for device in context.list_devices(subsystem="block")
            },
            "pci": {device.sys_name: _chosen(device, _PCI) for device in context.list_devices(subsystem="pci")},
        },
        "initialized": os.path.isdir("/run/udev/data"),
        "udev_version": version,
    }


def _chosen(device: Any, wanted: tuple[str, ...]) -> dict[str, str]:
    return {str(name): str(value) for name, value in device.properties.items() if name.startswith(wanted)}
