"""What a route can carry at most, and what keeps it from carrying more.

All peers of a mount send to one GPU, so their ways form a tree with the GPU at its root: a link carries no more than
its own rate, nor more than what the links beyond it bring. A link that several peers share therefore counts once, and
one that a pair does not cross (a switch's uplink, for a drive on the GPU's own switch) not at all. Rates are those of the
line code; packet headers take 5 to 15 % of them, root complexes and the link between sockets take what nobody
publishes. The figure is an upper bound.
"""

from __future__ import annotations

from typing import NamedTuple

from gdsctl.assess.view import Storage, View
from gdsctl.model.devices import Gpu

_Key = tuple[str, str]


class Limit(NamedTuple):
    """`gbs`: GB/s (10^9 byte/s) in one direction; `at`: the functions whose links, together, let no more through.

    One function is a link that all bytes pass; several are parallel ones, such as those of an array's drives. A NIC
    stands for its ports too, where these are slower than its slot.
    """

    gbs: float
    at: tuple[str, ...]


class _Branch:
    """A link and those beyond it, seen from the GPU."""

    def __init__(self, address: str, gbs: float) -> None:
        self.address = address
        self.gbs = gbs
        self.beyond: dict[_Key, _Branch] = {}

    def limit(self) -> Limit:
        own = Limit(self.gbs, (self.address,))
        return min(own, _together(self.beyond), key=lambda found: found.gbs) if self.beyond else own


def ceiling(view: View, gpu: Gpu, storage: Storage) -> float | None:
    """GB/s, rounded to hundredths; None where the peers or a link on the way are not known."""
    found = limit(view, gpu, storage)
    return round(found.gbs, 2) if found else None


def uplinks(view: View, gpu: Gpu, storage: Storage) -> tuple[str, ...]:
    """Of what limits a route the switches alone, by their upper ends: links that GPUs or peers share with others."""
    found = limit(view, gpu, storage)
    own = {gpu.address, *view.peers(storage.mount)}
    return tuple(address for address in found.at if address not in own) if found else ()


def limit(view: View, gpu: Gpu, storage: Storage) -> Limit | None:
    """What a GPU and a mount can exchange at most; None where the peers or a link on the way are not known."""
    pairs = view.pairs_of(gpu, storage.mount)
    if not pairs or len(pairs) < len(view.peers(storage.mount)):
        return None
    rates = _rates(view, storage)
    branches: dict[_Key, _Branch] = {}
    for pair in pairs:
        beyond = branches
        for address in _way(view, gpu, pair.peer):
            gbs = view.topology.gbs(address)
            if gbs is None:
                return None
            key = ("link", view.topology.slot(address))
            if key not in beyond:
                beyond[key] = _Branch(address, gbs)
            beyond = beyond[key].beyond
        if pair.peer in rates:
            beyond["rate", pair.peer] = _Branch(pair.peer, rates[pair.peer])
    return _together(branches)


def _way(view: View, gpu: Gpu, peer: str) -> tuple[str, ...]:
    """The functions below each link between, from the GPU on. Behind NVLink-C2C a GPU's own PCIe link is no limit."""
    path = view.topology.path(gpu.address or "", peer)
    near = () if gpu.c2c else view.topology.links(gpu.address or "", path.up)
    return near + view.topology.links(peer, path.down[::-1])[::-1]


def _rates(view: View, storage: Storage) -> dict[str, float]:
    """GB/s of the network beyond each NIC function, all its ports together; without those of unknown rate."""
    rates: dict[str, float] = {}
    for nic in view.nics(storage.mount):
        if nic.address and nic.rate_gbps:
            rates[nic.address] = rates.get(nic.address, 0.0) + nic.rate_gbps / 8
    return rates


def _together(branches: dict[_Key, _Branch]) -> Limit:
    found = [branch.limit() for branch in branches.values()]
    return Limit(sum(limit.gbs for limit in found), tuple(dict.fromkeys(at for limit in found for at in limit.at)))
