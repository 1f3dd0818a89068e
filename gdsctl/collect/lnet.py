"""LNet's own interfaces, and the networks that its peers are on."""

from __future__ import annotations

from gdsctl.collect import modprobe
from gdsctl.collect.reader import Reader
from gdsctl.model.devices import LnetNi, LnetOption
from gdsctl.parse import lnet, modprobe_d
from gdsctl.source.base import Missing, got

_TABLES = ("/sys/kernel/debug/lnet/nis", "/proc/sys/lnet/nis")


def collect(reader: Reader) -> tuple[LnetNi, ...] | None:
    """From `lnetctl net show` if it was given, which names the netdevs, else from the kernel's table; None: not read.

    The table is for root only; `lnetctl` as well.
    """
    printed = reader.printed("lnetctl-net-show", lnet.parse_net_show)
    if got(printed):
        return printed
    for path in _TABLES:
        found = reader.parsed(path, lnet.parse_nis)
        if got(found):
            return found
    return None


def options(reader: Reader) -> tuple[LnetOption, ...] | None:
    """What modprobe would give the module at its next load; None where a file that may decide was not read."""
    texts, unread = modprobe.texts(reader)
    if unread is not None:
        return None
    settings = modprobe_d.merge_options(texts).options.get("lnet", {})
    return tuple(
        LnetOption(name=name, value=setting.value, place=f"{setting.path}:{setting.line}")
        for name, setting in settings.items()
    )


def networks(reader: Reader, source: str) -> tuple[str, ...]:
    """Those that a mount's source names, and those where `lnetctl peer show` knows the same servers by other NIDs."""
    nets = dict.fromkeys(lnet.nets(source))
    peers = reader.printed("lnetctl-peer-show", lnet.parse_peer_show)
    named = set(lnet.nids(source))
    for peer in () if isinstance(peers, Missing) else peers:
        if named.intersection(peer):
            nets.update(dict.fromkeys(net for nid in peer if (net := lnet.net_of(nid))))
    return tuple(nets)
