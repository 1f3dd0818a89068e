from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """Only where the container is judged by its file: from inside the interfaces and their addresses are seen themselves."""
    container = view.node.container
    mounts = view.user_rdma_targets
    if not view.in_container or view.gpuless or not mounts:
        return
    scope = Scope(mounts=frozenset(mounts))
    gap = view.gap("container", "host_network")
    if container.host_network is False:
        yield Fail(
            subject="network",
            message="the container has a network of its own, without the addresses of the node's RDMA interfaces: "
            + ", ".join(mounts),
            evidence=seen("network", "its own", next(iter(container.evidence), "the container's file")),
            scope=scope,
        )
    elif container.host_network is None and gap is not None:
        yield Cannot(
            subject="network",
            fact="whether the container has the addresses of the node's RDMA interfaces is not known",
            settle_with=gap.settle_with or "ip -4 addr",
            scope=scope,
        )


RULE = Rule(
    id="container.own-network",
    severity="error",
    problem="the container's network lacks the RDMA interfaces' addresses",
    why="rdma_dev_addr_list names IPv4 addresses, and libcufile finds its RDMA devices by the interfaces that have them. In a "
    "network namespace of its own a container has neither, unless a CNI plugin puts a virtual function with an address there.",
    look_at=("ip -4 addr   # in the container", "jq .properties.rdma_dev_addr_list /etc/cufile.json"),
    remedy=Remedy(
        text="Run it in the host's network (docker run --network host, hostNetwork: true), or give it a virtual function with "
        "an IPv4 address (Multus and the SR-IOV device plugin) and name that one in rdma_dev_addr_list.",
        risk="the container is started anew, and in the host's network its ports are the host's",
    ),
    not_to_conclude="NFS over RDMA and Lustre do not hang on it: there the host's kernel does the RDMA.",
    source="GDS Configuration Guide, rdma_dev_addr_list; rdma_cm(7): devices are found by their addresses in the caller's "
    "network namespace",
    blocks=("rdma",),
    check=check,
)
