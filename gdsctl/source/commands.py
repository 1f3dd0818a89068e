"""The external tools that gdsctl may run: all optional, all read-only, none given a shell."""

from __future__ import annotations

from gdsctl.record import Record


class Command(Record, frozen=True, kw_only=True):
    """`argvs`: tried in order, the first whose program exists is run; `timeout_s`: then it is ended."""

    argvs: tuple[tuple[str, ...], ...]
    timeout_s: float = 10.0


def _one(*argv: str, timeout_s: float = 10.0) -> Command:
    return Command(argvs=(argv,), timeout_s=timeout_s)


_GDSCHECK = (
    "/usr/local/cuda/gds/tools/gdscheck",
    "/usr/local/cuda/gds/tools/gdscheck.py",
    "gdscheck",
    "gdscheck.py",
)

COMMANDS: dict[str, Command] = {
    "gdscheck": Command(argvs=tuple((tool, "-p") for tool in _GDSCHECK), timeout_s=30.0),
    "nvidia-smi-topo": _one("nvidia-smi", "topo", "-m", timeout_s=20.0),
    "nvidia-smi-query": _one(
        "nvidia-smi",
        "--query-gpu=index,pci.bus_id,name,uuid,memory.total,driver_version,compute_cap",
        "--format=csv,noheader",
        timeout_s=20.0,
    ),
    "nvidia-smi-nvlink": _one("nvidia-smi", "nvlink", "-s", timeout_s=20.0),
    "modinfo-nvidia": _one("modinfo", "nvidia"),
    "modinfo-nvidia-fs": _one("modinfo", "nvidia_fs"),
    "modinfo-nvme": _one("modinfo", "nvme"),
    "modinfo-rpcrdma": _one("modinfo", "rpcrdma"),
    "ibdev2netdev": _one("ibdev2netdev"),
    "lspci": _one("lspci", "-D", "-vvv", "-nn", timeout_s=20.0),
    "ip-addr": _one("ip", "-json", "addr"),
    "dmesg": _one("dmesg", "--color=never"),
    "vastnfs-ctl": _one("vastnfs-ctl", "status"),
    "lnetctl-net-show": _one("lnetctl", "net", "show"),
    "lnetctl-peer-show": _one("lnetctl", "peer", "show"),
    "weka-local-resources": _one("weka", "local", "resources", "--json"),
}

ENVIRONMENT = {"LC_ALL": "C", "LANG": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"}
"""What a tool sees. gdscheck is given the CUFILE_* of gdsctl's own environment besides, since its report shows them."""
