"""What a route can carry at most."""

from __future__ import annotations

from gdsctl.assess.view import Storage, View
from gdsctl.model.devices import Gpu


def ceiling(view: View, gpu: Gpu, storage: Storage) -> float | None:
    """GB/s (10^9 byte/s) in one direction: the narrowest of the GPU's own link and all the peers' paths together.

    None where a link on the way is not known. Peers that share an uplink are not told apart here; the figure is an
    upper bound.
    """
    pairs = view.pairs_of(gpu, storage.mount)
    if not pairs or len(pairs) < len(view.peers(storage.mount)):
        return None
    paths = [pair.bottleneck_gbs for pair in pairs]
    if any(path is None for path in paths):
        return None
    together = sum(path for path in paths if path is not None)
    own = view.topology.gbs(gpu.address) if gpu.address else None
    return round(min(together, own) if own is not None else together, 2)
