"""Which port an NFS mount belongs to."""

from __future__ import annotations

from gdsctl.model.judgement import Severity

RDMA_PORT = 20049
"""IANA's nfsrdma; NFS over TCP has 2049."""


def misplaced(proto: str | None, port: int | None) -> tuple[str, Severity] | None:
    """What is wrong with a mount's port, and how grave it is; 0 lets the client ask rpcbind."""
    if port == 2009:
        return "port 2009, a slip for 20049 (RDMA) or 2049 (TCP)", "error"
    if proto == "rdma" and port not in (None, 0, RDMA_PORT):
        return f"port {port}; NFS over RDMA is at 20049", "warning"
    return None
