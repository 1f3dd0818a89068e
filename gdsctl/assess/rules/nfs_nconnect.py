from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.parse import nfs_options


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        mount = storage.mount
        if mount.backing.kind != "nfs" or mount.backing.transport != "rdma":
            continue
        options = nfs_options.parse(",".join(mount.options))
        remote = len(options.remoteports or ())
        message = None
        if remote > 1 and options.nconnect and options.nconnect % remote:
            message = f"nconnect={options.nconnect} is no multiple of the {remote} remoteports: they are used unevenly"
        elif remote > 1 and not options.nconnect:
            message = f"{remote} remoteports but no nconnect: only one of them is used"
        if message:
            yield Fail(
                subject=mount.target,
                message=f"{mount.target}: {message}",
                evidence=seen("options", ",".join(mount.options), "/proc/self/mountinfo"),
                scope=Scope(mounts=frozenset({mount.target})),
            )


RULE = Rule(
    id="nfs.nconnect",
    severity="warning",
    problem="nconnect does not fit the number of remote addresses",
    why="Connections are dealt out over the remote addresses in turn; a number that is no multiple loads some twice.",
    look_at=("grep nfs /proc/mounts",),
    remedy=Remedy(
        text="Choose nconnect as a multiple of the number of remoteports: about 2 for each 100 Gb/s with RDMA, at least 8."
    ),
    source="VAST knowledge base, GPUDirect Storage; VAST NFS client documentation, nconnect",
    check=check,
)
