"""Redaction: no secret is left in any byte, what is equal stays equal, what is no secret stays."""

# mypy: disable-error-code="union-attr,no-untyped-call,index,arg-type"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import ipaddress
import json
import re
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.model.node import SourceInfo, Tool
from gdsctl.source.addresses import Mapping4
from gdsctl.source.base import Output
from gdsctl.source.capture import Capture, capture_of
from gdsctl.source.opening import open_source
from gdsctl.source.record import Recorder
from gdsctl.source.redact import redacted
from gdsctl.source.snapshot import CommandEntry, Manifest
from gdsctl.source.writing import write_capture

NVME = "/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0"
SECRETS = {
    "host": "gpu-node-07",
    "domain": "hpc.example-corp.com",
    "filer": "filer01",
    "user": "mmustermann",
    "serial": "S64HNE0R500123",
    "board": "MB-55-7781X",
    "gpu": "8f7c3a10-52d1-4b6e-9c0d-1e2f3a4b5c6d",
    "fs": "3cc51286-9c79-4cdd-9564-55691a8da6ac",
    "fat": "1F2E-3D4C",
    "guid": "b8ce:f603:00a1:b2c3",
    "mac": "b8:ce:f6:a1:b2:c3",
    "eui": "0025385b71b00a1c",
    "nguid": "36344830523500123456789abcdef012",
    "nqn": "nqn.1994-11.com.samsung:nvme:PM1733:2.5-inch:S64HNE0R500123",
    "ipv4": "172.16.1.17",
    "server": "172.16.1.250",
    "public": "141.76.3.9",
    "ipv6": "2001:638:902:1::17",
    "machine": "0123456789abcdef0123456789abcdef",
}


def the_capture():
    s = SECRETS
    full = f"{s['host']}.{s['domain']}"
    files = {
        "/proc/sys/kernel/hostname": f"{full}\n",
        f"{NVME}/serial": f"{s['serial']}      \n",
        f"{NVME}/model": "SAMSUNG MZWLJ3T8HBLS-00007\n",
        f"{NVME}/firmware_rev": "10.3.0.2\n",
        f"{NVME}/subsysnqn": s["nqn"] + "\n",
        f"{NVME}/nvme0n1/wwid": f"eui.{s['eui']}\n",
        f"{NVME}/nvme0n1/eui": "00 25 38 5b 71 b0 0a 1c\n",
        f"{NVME}/nvme0n1/nguid": "36344830-5235-0012-3456-789abcdef012\n",
        "/sys/class/dmi/id/board_serial": s["board"] + "\n",
        "/sys/class/dmi/id/chassis_serial": "To be filled by O.E.M.\n",
        "/sys/class/net/ib0/address": "00:00:10:29:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:a1:b2:c3\n",
        "/sys/class/net/eth0/address": s["mac"] + "\n",
        "/sys/class/net/eth0/broadcast": "ff:ff:ff:ff:ff:ff\n",
        "/sys/class/infiniband/mlx5_0/node_guid": s["guid"] + "\n",
        "/sys/class/infiniband/mlx5_0/node_desc": f"{s['host']} mlx5_0\n",
        "/sys/class/infiniband/mlx5_0/fw_ver": "20.38.1002\n",
        "/sys/class/infiniband/mlx5_0/ports/1/gids/0": "fe80:0000:0000:0000:b8ce:f603:00a1:b2c3\n",
        "/sys/class/infiniband/mlx5_0/ports/1/gids/3": "0000:0000:0000:0000:0000:ffff:ac10:0111\n",
        # 172.16.1.0/24 through no gateway, default through 172.16.1.1 (0101 10AC, bytes swapped)
        "/proc/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010110AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t000110AC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        "/proc/net/fib_trie": "Local:\n  +-- 172.16.1.0/24 2 0 2\n     |-- 172.16.1.17\n        /32 host LOCAL\n"
        "     |-- 172.16.1.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n",
        "/proc/net/if_inet6": "200106380902000100000000000000" + "17 02 40 00 80 eth0\n",
        "/proc/self/mounts": f"{s['filer']}:/export /home/{s['user']}/kv nfs4 rw,vers=4.2,addr={s['server']} 0 0\n"
        f"{s['server']}:/kv /kv nfs rw,proto=rdma,port=20049,remoteports={s['server']}-172.16.1.253 0 0\n"
        "/dev/nvme0n1 /data ext4 rw,data=ordered 0 0\n",
        "/etc/cufile.json": json.dumps(
            {"properties": {"rdma_dev_addr_list": [s["ipv4"]]}, "dir": f"/home/{s['user']}/log"}
        ),
        "/proc/cmdline": f"BOOT_IMAGE=/vmlinuz root=UUID={s['fs']} boot=UUID={s['fat']} intel_iommu=on\n",
        "/etc/machine-id": s["machine"] + "\n",
        "/sys/module/nvidia_fs/version": "2.17.5\n",
    }
    outputs = {
        "gdscheck": Output(stdout="GDS release version: 1.14.1.1\n nvidia_fs version:  2.17 libcufile version: 2.12\n"),
        "lspci": Output(
            stdout="0000:01:00.0 Non-Volatile memory controller [0108]: Samsung [144d:a824]\n"
            "\tCapabilities: [148 v1] Device Serial Number b8-ce-f6-03-00-a1-b2-c3\n"
            f"\t\t[SN] Serial number: {s['serial']}\n"
        ),
        "dmesg": Output(
            stdout=f"[    1.0] systemd[1]: Hostname set to <{s['host']}>.\n"
            f"[    2.0] mlx5_core 0000:3b:00.0: Rx {s['mac']}\n[ 12:34:56] nvidia 535.104.05 loaded, ofed 23.10-1.1.9.0\n"
            f"[    3.0] nfs: server {s['public']} not responding; {s['ipv6']} neither\n"
            "[    4.0] Serial: 8250/16550 driver, 32 ports\n"
        ),
        "ip-addr": Output(stdout=json.dumps([{"addr_info": [{"local": s["ipv4"], "prefixlen": 24}]}])),
    }
    answers = {
        "nvml": {"driver_version": "535.104.05", "gpus": [{"uuid": f"GPU-{s['gpu']}", "pci_address": "0000:17:00.0"}]},
        "udev": {"devices": {"block": {"nvme0n1": {"ID_FS_UUID": s["fs"], "ID_FS_TYPE": "ext4"}}}},
        "host": {"hostname": full, "cufile_environment": {"CUFILE_ENV_PATH_JSON": f"/home/{s['user']}/cufile.json"}},
    }
    by_id = f"/dev/disk/by-id/nvme-SAMSUNG_MZWLJ3T8HBLS-00007_{s['serial']}"
    manifest = Manifest(
        schema_version="1",
        tool=Tool(name="gdsctl", version="0"),
        host=full,
        note=f"taken on {s['host']}",
        paths={**dict.fromkeys(files, "ok"), f"/home/{s['user']}/.x": "denied", f"/sys/fs/xfs/{s['fs']}": "absent"},
        details={f"/home/{s['user']}/.x": f"Permission denied: {s['user']}"},
        listings={
            "/dev/disk/by-id": (by_id.rpartition("/")[2], f"nvme-eui.{s['eui']}"),
            "/dev/disk/by-uuid": (s["fs"],),
        },
        commands={
            "gdscheck": CommandEntry(status="ok"),
            "x": CommandEntry(status="error", detail=f"no route to {s['server']}"),
        },
        answers={"nvml": CommandEntry(status="ok")},
    )
    return Capture(
        manifest=manifest,
        files={path: text.encode() for path, text in files.items()},
        links={by_id: "/dev/nvme0n1"},
        outputs=outputs,
        answers=answers,
    )


@pytest.fixture(scope="module")
def after():
    return redacted(the_capture(), b"a fixed key")


def text(capture, path):
    return capture.files[path].decode()


def test_no_secret_in_any_byte(after, tmp_path):
    write_capture(after, str(tmp_path / "n.tar"))
    with tarfile.open(tmp_path / "n.tar") as tar:
        assert len(tar.getnames()) > 30
    raw = (tmp_path / "n.tar").read_bytes().lower()
    forms = [
        *SECRETS.values(),
        "b8ce:f6",
        "b8-ce-f6",
        "ac10:0111",
        "ac10",
        "010110ac",
        "20010638",
        "mustermann",
        "s64hne",
    ]
    forms += ["0025385b", "00 25 38 5b", "36344830-5235", "example-corp"]
    for secret in forms:
        assert secret.lower().encode() not in raw, secret


def test_relations_stay(after):
    serial = text(after, f"{NVME}/serial").strip()
    assert serial in after.outputs["lspci"].stdout
    assert any(serial in name for name in after.manifest.listings["/dev/disk/by-id"])
    assert any(serial in path for path in after.links)
    assert len(text(after, f"{NVME}/serial")) - len(serial) == len("      \n")  # its padding
    mac = text(after, "/sys/class/net/eth0/address").strip()
    assert mac in after.outputs["dmesg"].stdout
    guid = text(after, "/sys/class/infiniband/mlx5_0/node_guid").strip()
    assert guid in text(after, "/sys/class/infiniband/mlx5_0/ports/1/gids/0")
    digits = guid.replace(":", "")
    assert digits[:6] + digits[10:] == mac.replace(":", "")  # an adapter's GUID is still made of its MAC
    assert ":".join(re.findall("..", digits)) in text(after, "/sys/class/net/ib0/address")
    assert "-".join(re.findall("..", digits)) in after.outputs["lspci"].stdout
    eui = text(after, f"{NVME}/nvme0n1/eui").replace(" ", "").strip()
    assert text(after, f"{NVME}/nvme0n1/wwid").strip() == f"eui.{eui}"
    assert f"nvme-eui.{eui}" in after.manifest.listings["/dev/disk/by-id"]
    uuid = after.answers["udev"]["devices"]["block"]["nvme0n1"]["ID_FS_UUID"]
    assert f"UUID={uuid} " in text(after, "/proc/cmdline")
    assert after.manifest.listings["/dev/disk/by-uuid"] == (uuid,)
    assert f"/sys/fs/xfs/{uuid}" in after.manifest.paths
    host = after.manifest.host
    assert text(after, "/proc/sys/kernel/hostname").strip() == host == after.answers["host"]["hostname"]
    assert f"<{host.partition('.')[0]}>" in after.outputs["dmesg"].stdout
    user = re.search(r"/home/(\S+)/kv", text(after, "/proc/self/mounts"))[1]
    assert after.answers["host"]["cufile_environment"]["CUFILE_ENV_PATH_JSON"] == f"/home/{user}/cufile.json"
    assert f"/home/{user}/.x" in after.manifest.paths


def test_addresses_stay_in_their_subnet(after):
    own = ipaddress.IPv4Address(json.loads(after.outputs["ip-addr"].stdout)[0]["addr_info"][0]["local"])
    mounts = text(after, "/proc/self/mounts")
    server = ipaddress.IPv4Address(re.search(r"addr=([\d.]+)", mounts)[1])
    assert mounts.count(str(server)) == 3
    rows = [line.split("\t") for line in text(after, "/proc/net/route").splitlines()[1:]]
    default, local = rows
    assert (default[1], default[7], local[2], local[7]) == ("00000000", "00000000", "00000000", "00FFFFFF")

    def address(cell):
        return ipaddress.IPv4Address(bytes.fromhex(cell)[::-1])

    network = ipaddress.IPv4Network(f"{address(local[1])}/24")  # raises unless its host part is still zero
    assert {own in network, server in network, address(default[2]) in network} == {True}
    assert network.subnet_of(ipaddress.IPv4Network("172.16.0.0/12"))
    trie = text(after, "/proc/net/fib_trie")
    assert f"|-- {own}\n" in trie
    assert f"+-- {network} 2" in trie
    assert f"|-- {network.broadcast_address}\n" in trie
    assert "127.0.0.1" in trie
    assert json.loads(text(after, "/etc/cufile.json"))["properties"]["rdma_dev_addr_list"] == [str(own)]
    gid = ipaddress.IPv6Address(text(after, "/sys/class/infiniband/mlx5_0/ports/1/gids/3").strip())
    assert gid.ipv4_mapped == own
    last = ipaddress.IPv6Address(int(text(after, "/proc/net/if_inet6").split()[0], 16))
    assert str(last) in after.outputs["dmesg"].stdout


def test_what_is_no_secret_stays(after):
    before = the_capture()
    for path in (
        f"{NVME}/model",
        f"{NVME}/firmware_rev",
        "/sys/class/infiniband/mlx5_0/fw_ver",
        "/sys/module/nvidia_fs/version",
    ):
        assert after.files[path] == before.files[path]
    assert text(after, "/sys/class/dmi/id/chassis_serial") == "To be filled by O.E.M.\n"
    assert text(after, "/sys/class/net/eth0/broadcast") == "ff:ff:ff:ff:ff:ff\n"
    assert after.outputs["gdscheck"] == before.outputs["gdscheck"]
    assert "0000:01:00.0 Non-Volatile memory controller [0108]: Samsung [144d:a824]" in after.outputs["lspci"].stdout
    assert after.answers["nvml"]["gpus"][0]["pci_address"] == "0000:17:00.0"
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", after.answers["nvml"]["gpus"][0]["uuid"])
    dmesg = after.outputs["dmesg"].stdout
    for words in (
        "0000:3b:00.0",
        "[ 12:34:56] nvidia 535.104.05 loaded, ofed 23.10-1.1.9.0",
        "Serial: 8250/16550 driver, 32",
    ):
        assert words in dmesg
    mounts = text(after, "/proc/self/mounts")
    assert "nfs4 rw,vers=4.2,addr=" in mounts
    assert "/dev/nvme0n1 /data ext4 rw,data=ordered 0 0\n" in mounts
    assert after.manifest.redacted
    assert after.manifest.paths[f"{NVME}/serial"] == "ok"


def test_another_key_gives_other_addresses_and_the_same_names():
    first, second = redacted(the_capture(), b"one"), redacted(the_capture(), b"two")
    assert text(first, f"{NVME}/serial") == text(second, f"{NVME}/serial")
    assert first.outputs["ip-addr"] != second.outputs["ip-addr"]
    assert redacted(the_capture(), b"one") == first
    assert redacted(the_capture()).outputs["ip-addr"] != redacted(the_capture()).outputs["ip-addr"]


def test_the_serial_number_in_configuration_space():
    """Extended capability 3 (PCIe 7.9.3) at 0x148 behind AER at 0x100: eight bytes, least significant first."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x148 << 20 | 2 << 16 | 1).to_bytes(4, "little")
    config[0x148:0x14C] = (0 << 20 | 1 << 16 | 3).to_bytes(4, "little")
    config[0x14C:0x154] = bytes.fromhex("b8cef60300a1b2c3")[::-1]
    path = "/sys/devices/pci0000:00/0000:01:00.0/config"
    lspci = Output(stdout="Device Serial Number b8-ce-f6-03-00-a1-b2-c3\n")
    capture = Capture(
        manifest=Manifest(schema_version="1", tool=Tool(name="gdsctl", version="0")),
        files={path: bytes(config)},
        outputs={"lspci": lspci},
    )
    after = redacted(capture, b"k")
    new = after.files[path]
    assert new[:0x14C] == bytes(config[:0x14C])
    assert new[0x154:] == bytes(config[0x154:])
    assert new[0x14C:0x154] != bytes(config[0x14C:0x154])
    assert after.outputs["lspci"].stdout == f"Device Serial Number {new[0x14C:0x154][::-1].hex('-')}\n"
    config[0x148:0x14C] = (0x148 << 20 | 3).to_bytes(4, "little")  # a list that bites its tail
    assert redacted(Capture(manifest=capture.manifest, files={path: bytes(config)}), b"k").files[path]


@pytest.mark.parametrize(
    "words",
    [
        "GDS release version: 1.14.1.1",
        "upgraded from 1.13.0.11 to 1.20.0.107",
        "/usr/local/gds-1.14.1.1/tools",
        "libcufile.so.1.14.1",
        "MLNX_OFED_LINUX-5.8-1.1.2.1:",
        "firmware 28.39.1002, vbios 96.00.74.00.1F",
        "0000:82:02.0 10000:e1:00.0 0000:00:1f.6",
        "NVRM: version: 535.104.05",
        "class 010802 vendor 10de:2330 rev a1",
        "12:34:56 up 3 days",
        "ACSCap:\tSrcValid+ TransBlk+",
        "Kernel 5.15.0-1042-nvidia",
        "deadbeefdeadbeef 0x00000000fee00018",
        "netmask 255.255.255.0 gateway 0.0.0.0 lo 127.0.0.1 ::1 ff02::1",
        "numa 0-31,64-95 10.5 GT/s 8.0 GT/s",
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "ID_PART_ENTRY_TYPE=0fc63daf-8483-4772-8e79-3d69d8477de4",
    ],
)
def test_looks_like_a_secret_and_is_none(words):
    capture = Capture(
        manifest=Manifest(schema_version="1", tool=Tool(name="gdsctl", version="0")),
        outputs={"x": Output(stdout=words)},
    )
    assert redacted(capture, b"k").outputs["x"].stdout == words


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.integers(0x0B000000, 0x7EFFFFFF) | st.integers(0x0A000000, 0x0AFFFFFF), min_size=1, max_size=6, unique=True
    ),
    st.lists(st.integers(1, 2**39 - 1).map(lambda n: f"{n << 1:012x}"), min_size=1, max_size=4, unique=True),
    st.lists(st.uuids(), min_size=1, max_size=4, unique=True),
    st.lists(st.from_regex(r"[A-Z][0-9A-Z]{4,10}[0-9]", fullmatch=True), min_size=1, max_size=4, unique=True),
)
def test_no_value_survives_and_equals_stay_equal(addresses, macs, uuids, serials):
    ips = [str(ipaddress.IPv4Address(address)) for address in addresses]
    macs = [":".join(re.findall("..", mac)) for mac in macs]
    uuids = [str(uuid) for uuid in uuids]
    files = {f"/sys/class/nvme/nvme{number}/serial": serial.encode() for number, serial in enumerate(serials)}
    line = " | ".join([*(f"addr={ip}" for ip in ips), *macs, *uuids, *serials])
    capture = Capture(
        manifest=Manifest(schema_version="1", tool=Tool(name="gdsctl", version="0")),
        files=files,
        outputs={"x": Output(stdout=f"{line}\n{line}\n")},
    )
    after = redacted(capture, b"k")
    first, second, _ = after.outputs["x"].stdout.split("\n")
    assert first == second
    tokens = first.split(" | ")
    assert len(set(tokens)) == len(tokens)
    for secret in (*macs, *uuids, *serials):
        if len(set(re.sub("[^0-9a-f]", "", secret))) > 1:
            assert secret not in tokens
    assert not {f"addr={ip}" for ip in ips} & set(tokens)
    assert [after.files[path].decode() for path in files] == tokens[-len(serials) :]


@pytest.mark.shared
def test_a_real_machine_looks_the_same_to_its_topology(shared):
    tree = open_source(str(shared / "field/vm/rdma-on/root.tar.gz"))
    recorder = Recorder(tree)
    for address in recorder.names("/sys/bus/pci/devices"):
        for name in ("vendor", "class", "numa_node", "resource", "current_link_speed"):
            recorder.read(f"/sys/bus/pci/devices/{address}/{name}")
        recorder.real(f"/sys/bus/pci/devices/{address}/driver")
    for controller in recorder.names("/sys/class/nvme"):
        for name in ("serial", "subsysnqn", "address", "model"):
            recorder.read(f"/sys/class/nvme/{controller}/{name}")
    recorder.read("/proc/mounts")
    before = capture_of(recorder)
    after = redacted(before, b"k")
    assert list(after.files) == list(before.files)
    assert after.links == before.links
    changed = {path.rpartition("/")[2] for path, content in before.files.items() if after.files[path] != content}
    assert changed == {"serial", "subsysnqn", "address", "mounts"}  # address: of the fabrics controller alone
    raw = b"".join(after.files.values())
    for secret in (b"10.9.0.1", b"GDS0A", b"GDS1B", b"66611d6b566b3f6f6c4d"):
        assert any(secret in content for content in before.files.values())
        assert secret not in raw
    assert after.files["/proc/self/mounts" if "/proc/self/mounts" in after.files else "/proc/mounts"].count(
        b"port=20049"
    )


def test_the_source_of_a_recorder_is_untouched():
    class Source:
        info = SourceInfo(kind="live", host="gpu-node-07")

        def read(self, path):
            return b"gpu-node-07\n"

        def real(self, path):
            return path

    recorder = Recorder(Source())
    recorder.read("/etc/hostname")
    capture = capture_of(recorder)
    assert redacted(capture).files == {"/etc/hostname": b"host-1\n"}
    assert capture.files == {"/etc/hostname": b"gpu-node-07\n"}


def test_address_ranges_keep_their_length():
    mapping = Mapping4(b"k" * 32, [ipaddress.IPv4Network("172.16.0.0/16")])
    first, last = (int(ipaddress.IPv4Address(text)) for text in ("172.16.1.10", "172.16.1.25"))
    assert mapping(last) - mapping(first) == 15
    assert mapping(first) != first
