"""What each storage stack's facts call a cluster, a filesystem, an export or a client is replaced, and still read the same."""

from __future__ import annotations

import msgspec
import pytest

from gdsctl.model.node import Tool
from gdsctl.parse import mounts
from gdsctl.source.base import Output
from gdsctl.source.capture import Capture
from gdsctl.source.redact import redacted
from gdsctl.source.snapshot import Manifest

# stack, files, outputs, secrets: the form of each fact is the one that the stack's own documentation shows
STACKS = {
    "nfs": (
        {
            "/proc/self/mounts": "10.1.2.3:/acme-corp/models7 /data nfs4 rw,vers=4.2,proto=rdma,addr=10.1.2.3 0 0\n",
            "/proc/self/mountinfo": "30 1 0:50 /team9sub /data rw - nfs4 10.1.2.3:/acme-corp/models7 rw,proto=rdma\n",
            "/proc/self/mountstats": "device 10.1.2.3:/acme-corp/models7 mounted on /data with fstype nfs4 statvers=1.1\n",
            "/etc/fstab": "filer77:/q9 /data nfs defaults 0 0\n",
        },
        {"mount": "10.1.2.3:/acme-corp/models7 on /data type nfs4 (rw,proto=rdma)\n"},
        ("acme-corp", "models7", "team9sub", "filer77", "/q9"),
    ),
    "lustre": (
        {"/proc/self/mounts": "10.0.0.1@o2ib,10.0.0.2@o2ib:/zeusfs/sub77 /l lustre rw 0 0\n"},
        {},
        ("zeusfs", "sub77"),
    ),
    "wekafs": (
        {
            "/proc/self/mounts": "wekabe1,wekabe2/hadesfs /w wekafs rw,container_name=hadescli 0 0\n",
            "/etc/fstab": "wekabe1/hadesfs /w wekafs net=ib0,auth_token_path=/root/.weka/hadestoken.json 0 0\n",
        },
        {
            "weka-local-resources": '{"cluster_name": "hadescluster", "join_secret": "s3cr3t", "failure_domain": "rack77x"}'
        },
        ("wekabe1", "wekabe2", "hadesfs", "hadescli", "hadestoken", "hadescluster", "s3cr3t", "rack77x"),
    ),
    "gpfs": (
        {
            "/proc/self/mounts": "aresfs /g gpfs rw,dev=aresfs 0 0\n",
            "/var/mmfs/gen/mmfs.cfg": "clusterName ares.cluster77\n[aresnode1,aresnode2]\nverbsPorts mlx5_0/1\n",
        },
        {},
        ("aresfs", "ares.cluster77", "aresnode1", "aresnode2"),
    ),
    "beegfs": (
        {
            "/proc/self/mounts": "beegfs_nodev /b beegfs rw,cfgFile=/etc/beegfs/herafs.conf 0 0\n",
            "/proc/fs/beegfs/6A1F-65B1C3D8-heranode/storage_nodes": "herastore [ID: 1]\n   Connections: RDMA: 1 (10.0.0.5:8003);\n",
        },
        {},
        ("herafs", "6A1F-65B1C3D8", "heranode", "herastore"),
    ),
    "other network": (
        {
            "/proc/self/mounts": "admin@b0e0.cephmain=/team77 /c ceph rw,mds_namespace=cephmain 0 0\n"
            "//smbhost/hrdept77 /s cifs rw,username=alice77 0 0\npanfs://panrealm/panvol /p panfs rw 0 0\n"
            "tank77/acmedata /z zfs rw 0 0\nacmetag77 /v virtiofs rw 0 0\n"
        },
        {},
        (
            "cephmain",
            "team77",
            "smbhost",
            "hrdept77",
            "alice77",
            "panrealm",
            "panvol",
            "tank77",
            "acmedata",
            "acmetag77",
        ),
    ),
    "local volumes": (
        {
            "/proc/self/mounts": "/dev/mapper/acmevg-lv77 /a xfs rw 0 0\n/dev/md/acmenode:raid7 /m ext4 rw 0 0\n",
            "/etc/fstab": "LABEL=acmelabel /a xfs defaults 0 0\n/dev/acmegrp/lv78 /d xfs defaults 0 0\n",
            "/sys/block/dm-0/dm/name": "acmevg-lv77\n",
            "/run/udev/data/b253:0": "S:disk/by-label/acmelabel\nE:ID_FS_LABEL=acmelabel\nE:DM_VG_NAME=acmevg\nE:ID_FS_TYPE=xfs\n",
        },
        {},
        ("acmevg", "lv77", "acmenode", "raid7", "acmelabel", "acmegrp", "lv78"),
    ),
}


def capture(files: dict[str, str], outputs: dict[str, str]) -> Capture:
    folder = "/proc/fs/beegfs"
    names = {path.split("/")[4] for path in files if path.startswith(folder)}
    manifest = Manifest(
        schema_version="1",
        tool=Tool(name="gdsctl", version="0"),
        paths=dict.fromkeys(files, "ok"),
        listings={folder: tuple(names)} if names else {},
    )
    return Capture(
        manifest=manifest,
        files={path: text.encode() for path, text in files.items()},
        outputs={name: Output(stdout=text) for name, text in outputs.items()},
    )


@pytest.mark.parametrize("stack", STACKS)
def test_no_name_of_a_stack_stays(stack: str) -> None:
    files, outputs, secrets = STACKS[stack]
    after = redacted(capture(files, outputs), b"a fixed key")
    told = b"\n".join(
        (
            msgspec.json.encode(after.manifest),
            *(path.encode() + b"\n" + content for path, content in after.files.items()),
            *(output.stdout.encode() for output in after.outputs.values()),
        )
    ).decode()
    assert [secret for secret in secrets if secret in told] == []


@pytest.mark.parametrize("stack", STACKS)
def test_what_parsers_go_by_stays(stack: str) -> None:
    files = STACKS[stack][0]
    after = redacted(capture(*STACKS[stack][:2]), b"a fixed key")
    before, found = (
        mounts.parse(text) for text in (files["/proc/self/mounts"], after.files["/proc/self/mounts"].decode())
    )
    assert [(e.target, e.fstype) for e in found.mounts] == [(e.target, e.fstype) for e in before.mounts]
    for one, other in zip(before.mounts, found.mounts, strict=True):
        assert (
            one.source.startswith("/dev/md/")
            or one.fstype == "ceph"
            or [c for c in one.source if c in "@:/,="] == [c for c in other.source if c in "@:/,="]
        )
        assert [o.partition("=")[0] for o in one.options] == [o.partition("=")[0] for o in other.options]


def test_one_name_has_one_pseudonym_everywhere() -> None:
    """A client's folder in its own listing, in its path and in the manifest; a volume in its file and in the mount table."""
    after = redacted(capture(*STACKS["beegfs"][:2]), b"k")
    (listed,) = after.manifest.listings["/proc/fs/beegfs"]
    assert f"/proc/fs/beegfs/{listed}/storage_nodes" in after.files
    assert f"/proc/fs/beegfs/{listed}/storage_nodes" in after.manifest.paths
    after = redacted(capture(*STACKS["local volumes"][:2]), b"k")
    volume = after.files["/sys/block/dm-0/dm/name"].decode().strip()
    assert after.files["/proc/self/mounts"].decode().startswith(f"/dev/mapper/{volume} /a xfs")
    assert b"ID_FS_TYPE=xfs" in after.files["/run/udev/data/b253:0"]


def test_words_of_a_program_stay() -> None:
    files = {
        "/proc/self/mounts": "10.0.0.1@o2ib:/lustre /lustre lustre rw 0 0\ntmpfs /run tmpfs rw 0 0\nproc /proc proc rw 0 0\n",
        "/proc/modules": "lustre 1 0 - Live 0x0\n",
    }
    after = redacted(capture(files, {}), b"k")
    assert after.files["/proc/modules"] == files["/proc/modules"].encode()
    first, *others = after.files["/proc/self/mounts"].decode().splitlines()
    assert first.endswith("@o2ib:/export-1 /lustre lustre rw 0 0")
    assert others == files["/proc/self/mounts"].splitlines()[1:]
