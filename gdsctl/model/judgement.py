"""Verdicts: pairs, routes and findings, with the evidence each rests on."""

from __future__ import annotations

from typing import Literal

from gdsctl.record import Record

PairClass = Literal["PIX", "PXB", "PHB", "NODE", "SYS", "unknown"]
P2p = Literal["bus_address", "through_host_bridge", "blocked", "unknown"]
RouteName = Literal["nvidia-fs", "p2pdma", "c2c", "rdma", "compat", "none", "unknown"]
Severity = Literal["critical", "error", "warning", "info"]


class Pair(Record, frozen=True, kw_only=True, rename={"class_": "class"}):
    """One GPU and one peer. `hops`: bridges from the GPU up to the meeting point and down to the peer."""

    gpu: str
    peer: str
    peer_kind: Literal["nvme", "nic"]
    class_: PairClass = "unknown"
    hops: tuple[str, ...] = ()
    meet: Literal["switch", "root_port", "host_bridge", "numa", "socket"] | None = None
    acs_redirect_at: tuple[str, ...] | None = None
    p2p: P2p = "unknown"
    p2p_reason: str = ""
    bottleneck_gbs: float | None = None
    bottleneck_at: str | None = None


class Evidence(Record, frozen=True, kw_only=True):
    """`fact`: what was looked at; `value`: what it said; `source`: file or command."""

    fact: str
    value: str
    source: str


class Remedy(Record, frozen=True, kw_only=True):
    """`commands` may be pasted into a root shell; names from the node are quoted in them."""

    text: str
    commands: tuple[str, ...] = ()
    needs_reboot: bool = False
    persistent: bool = True
    risk: str | None = None


class Finding(Record, frozen=True, kw_only=True):
    """`blocks`: routes that it makes impossible; `source`: document that says so.

    `certain` false: a fact behind it is unknown, and `settle_with` names the command that would tell.
    """

    id: str
    severity: Severity
    subject: str
    message: str
    why: str
    evidence: tuple[Evidence, ...] = ()
    remedy: Remedy
    blocks: tuple[RouteName, ...] = ()
    source: str = ""


class Route(Record, frozen=True, kw_only=True):
    """How the bytes of one GPU and one mount travel today."""

    gpu: str
    mount: str
    route: RouteName = "unknown"
    dynamic_routing: Literal["GPU_MEM_NVLINKS", "GPU_MEM", "SYS_MEM", "P2P"] | None = None
    via: tuple[str, ...] = ()
    ceiling_gbs: float | None = None
    blockers: tuple[str, ...] = ()
    confidence: Literal["certain", "likely", "unknown"] = "unknown"
    because: str = ""
    settle_with: str | None = None
