"""What a route can carry at most, and what keeps it from carrying more.

All peers of a mount send to one GPU, so their ways form a tree with the GPU at its root: a link carries no more than
its own rate, nor more than what the links beyond it bring. A link that several peers share therefore counts once, and
one that a pair does not cross (a switch's uplink, for a drive on the GPU's own switch) not at all. Rates are those of the
line code; packet headers take 5 to 15 % of them, root complexes and the link between sockets take what nobody
publishes. The figure is an upper bound.

Bytes that rest on the way, in host memory or in another GPU, pass two such trees one after the other. A link that lies
on both ways, a switch's uplink say, carries them up in the first and down in the second, and links are full duplex.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from gdsctl.assess.routing import Policy, linked, staging_gpus
from gdsctl.assess.view import Storage, View
from gdsctl.model.devices import Gpu

_Key = tuple[str, str]
Stage = Literal["host"] | Gpu | None
"""Where bytes rest between storage and GPU: host memory, another GPU, or nowhere."""


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


def stages(view: View, gpu: Gpu, storage: Storage, policy: Policy | None) -> tuple[Stage, ...]:
    """Where dynamic routing may let the bytes rest; libcufile chooses among several."""
    if policy in ("GPU_MEM_NVLINKS", "GPU_MEM"):
        helpers = staging_gpus(view, gpu, view.nics(storage.mount))
        return tuple(helper for helper in helpers if policy == "GPU_MEM" or linked(gpu, helper))
    return ("host",) if policy == "SYS_MEM" else (None,)


def limit(view: View, gpu: Gpu, storage: Storage, through: Iterable[Stage] = (None,)) -> Limit | None:
    """What a GPU and a mount can exchange at most, by the best of the stages.

    None where the peers or a link on the way are not known.
    """
    best: Limit | None = None
    for stage in through:
        found = _staged(view, gpu, storage, stage)
        if found is None:
            return None
        best = max(found, best, key=_gbs) if best else found
    return best


def figure(found: Limit | None) -> float | None:
    """GB/s, rounded to hundredths."""
    return round(found.gbs, 2) if found else None


def uplinks(view: View, gpu: Gpu, storage: Storage, found: Limit | None) -> tuple[str, ...]:
    """Of what limits a route the switches alone, by their upper ends: links that GPUs or peers share with others."""
    own = {gpu.address, *view.peers(storage.mount)}
    return tuple(address for address in found.at if address not in own) if found else ()


def _staged(view: View, gpu: Gpu, storage: Storage, stage: Stage) -> Limit | None:
    peers = view.peers(storage.mount)
    if not peers or gpu.address is None:
        return None
    if stage is None:
        return _tree(view, storage, [(peer, _way(view, gpu, peer)) for peer in peers])
    if stage == "host":
        return _less(
            _tree(view, storage, [(peer, _climb(view, peer)[::-1]) for peer in peers]),
            _chain(view, () if gpu.c2c else _climb(view, gpu.address)),
        )
    first = _staged(view, stage, storage, None)
    # No NVLink is as slow as a NIC: 20 GB/s each way was the first one's least, and GPUs have two of them or more.
    return first if linked(gpu, stage) else _less(first, _chain(view, _way(view, gpu, stage.address or "")))


def _less(first: Limit | None, second: Limit | None) -> Limit | None:
    return min(first, second, key=_gbs) if first and second else None


def _gbs(found: Limit) -> float:
    return found.gbs


def _chain(view: View, way: tuple[str, ...]) -> Limit | None:
    """The narrowest link of a way that no other bytes share; endless where there is none."""
    narrowest = Limit(float("inf"), ())
    for address in way:
        gbs = view.topology.gbs(address)
        if gbs is None:
            return None
        narrowest = min(narrowest, Limit(gbs, (address,)), key=_gbs)
    return narrowest


def _tree(view: View, storage: Storage, ways: Iterable[tuple[str, tuple[str, ...]]]) -> Limit | None:
    """What all peers together get to the root of their ways; each way starts at the root."""
    rates = _rates(view, storage)
    branches: dict[_Key, _Branch] = {}
    for peer, way in ways:
        beyond = branches
        for address in way:
            gbs = view.topology.gbs(address)
            if gbs is None:
                return None
            key = ("link", view.topology.slot(address))
            if key not in beyond:
                beyond[key] = _Branch(address, gbs)
            beyond = beyond[key].beyond
        if peer in rates:
            beyond["rate", peer] = _Branch(peer, rates[peer])
    return _together(branches)


def _climb(view: View, address: str) -> tuple[str, ...]:
    """The functions below each link from one up to its root port."""
    return view.topology.links(address, view.topology.chain(address))


def _way(view: View, gpu: Gpu, peer: str) -> tuple[str, ...]:
    """The functions below each link between, from the GPU on. Behind NVLink-C2C a GPU's own PCIe link is no limit.

    Where ACS redirects, the bytes go up to the host bridge and come down again.
    """
    here = gpu.address or ""
    pair = view.pair(here, peer)
    if pair is not None and pair.acs_redirect_at:
        return (() if gpu.c2c else _climb(view, here)) + _climb(view, peer)[::-1]
    path = view.topology.path(here, peer)
    near = () if gpu.c2c else view.topology.links(here, path.up)
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
