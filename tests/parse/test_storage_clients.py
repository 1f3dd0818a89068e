"""What the clients of network filesystems say of their own network: LNet, BeeGFS, WEKA."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.model.devices import LnetNi
from gdsctl.parse import beegfs, lnet, weka
from gdsctl.parse.beegfs import Connection
from gdsctl.parse.weka import WekaNet

# The kernel prints "%-24s %6s %5s %4s %4s %4s %5s %5s %5s", a row for each CPU partition (Lustre lnet/lnet/router_proc.c).
NIS = """\
nid                      status alive refs peer  rtr   max    tx   min
0@lo                         up     0    2    0    0     0     0     0
0@lo                         up     0    0    0    0     0     0     0
192.0.2.7@o2ib               up    -1    1    8    0    63    63    40
192.0.2.7@o2ib               up    -1    1    8    0    63    63    40
198.51.100.7@o2ib1         down    -1    1    8    0    63    63    40
"""
NET_SHOW = """\
net:
    - net type: lo
      local NI(s):
        - nid: 0@lo
          status: up
    - net type: o2ib
      local NI(s):
        - nid: 192.0.2.7@o2ib
          status: up
          interfaces:
              0: ib0
        - nid: 192.0.2.8@o2ib
          status: down
          interfaces:
              0: ib1[1]
          statistics:
              send_count: 1200
          health stats:
              health value: 1000
          dev cpt: 1
          CPT: "[0,1]"
"""
OLDER = """\
net:
    - net: tcp
      nid: 203.0.113.7@tcp
      status: up
      interfaces:
          0: eth0
"""


def test_the_kernels_table() -> None:
    assert lnet.parse_nis(NIS) == (
        LnetNi(nid="192.0.2.7@o2ib", net="o2ib", up=True),
        LnetNi(nid="198.51.100.7@o2ib1", net="o2ib1", up=False),
    )
    assert lnet.parse_nis(NIS.splitlines()[0]) == ()


def test_net_show() -> None:
    expected = (
        LnetNi(nid="192.0.2.7@o2ib", net="o2ib", up=True, interfaces=("ib0",)),
        LnetNi(nid="192.0.2.8@o2ib", net="o2ib", up=False, interfaces=("ib1",)),
    )
    assert lnet.parse_net_show(NET_SHOW) == expected
    assert lnet.parse_net_show("\n".join(line.strip() for line in NET_SHOW.splitlines())) == expected
    assert lnet.parse_net_show("\n".join(f"> {line}" for line in NET_SHOW.splitlines())) == expected
    assert lnet.parse_net_show(OLDER) == (LnetNi(nid="203.0.113.7@tcp", net="tcp", up=True, interfaces=("eth0",)),)


def test_peers_of_an_export_are_no_interfaces() -> None:
    """`lnetctl export` puts routes and peers, which have NIDs too, behind the networks."""
    text = (
        NET_SHOW
        + "route:\n    - net: tcp7\n      gateway: 192.0.2.9@o2ib\npeer:\n    - primary nid: 192.0.2.9@o2ib\n      peer ni:\n        - nid: 192.0.2.9@o2ib\n"
    )
    assert [ni.nid for ni in lnet.parse_net_show(text)] == ["192.0.2.7@o2ib", "192.0.2.8@o2ib"]
    assert lnet.parse_peer_show(text) == (("192.0.2.9@o2ib",),)


def test_peer_show() -> None:
    text = """\
peer:
    - primary nid: 192.0.2.20@o2ib
      Multi-Rail: True
      peer ni:
        - nid: 192.0.2.20@o2ib
          state: NA
        - nid: 198.51.100.20@o2ib1
          state: NA
    - primary nid: 192.0.2.21@o2ib
      Multi-Rail: False
      peer ni:
        - nid: 192.0.2.21@o2ib
          state: NA
"""
    assert lnet.parse_peer_show(text) == (("192.0.2.20@o2ib", "198.51.100.20@o2ib1"), ("192.0.2.21@o2ib",))


@pytest.mark.parametrize("parse", [lnet.parse_nis, lnet.parse_net_show, lnet.parse_peer_show, weka.parse_resources])
@pytest.mark.parametrize(
    "text", ["", "\0", "show:\n- descr: Network is down\n", "[" * 100_000, "opening /dev/lnet failed"]
)
def test_other_text_is_refused(parse: object, text: str) -> None:
    with pytest.raises(InputError):
        parse(text)  # type: ignore[operator]  # a list of functions has no one signature


@pytest.mark.parametrize(
    ("source", "nets", "nids"),
    [
        ("192.0.2.20@o2ib:/fs", ("o2ib",), ("192.0.2.20@o2ib",)),
        ("192.0.2.20@o2ib0:/fs", ("o2ib",), ("192.0.2.20@o2ib0",)),  # net 0 is the net without a number
        (
            "192.0.2.20@o2ib,198.51.100.20@o2ib1:192.0.2.21@o2ib10:/fs/sub",
            ("o2ib", "o2ib1", "o2ib10"),
            ("192.0.2.20@o2ib", "198.51.100.20@o2ib1", "192.0.2.21@o2ib10"),
        ),
        ("mgs1@tcp:/fs", ("tcp",), ("mgs1@tcp",)),
        ("2001:db8::1@tcp:/fs", ("tcp",), ("2001:db8::1@tcp",)),
        ("/dev/sda", (), ()),
    ],
)
def test_networks_of_a_mount(source: str, nets: tuple[str, ...], nids: tuple[str, ...]) -> None:
    assert (lnet.nets(source), lnet.nids(source)) == (nets, nids)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a@o2ib:/fs", "rdma"),
        ("a@o2ib,b@o2ib12:/fs", "rdma"),
        ("a@kfi:/fs", "rdma"),
        ("a@tcp3:/fs", "tcp"),
        ("a@tcp,b@o2ib:/fs", None),
        ("a@gni:/fs", None),
        ("server:/fs", None),
    ],
)
def test_transport_of_a_mount(source: str, expected: str | None) -> None:
    assert lnet.transport(source) == expected


def test_beegfs_connections() -> None:
    """The client prints the address of one connection that is free, `n/a` where none is (ProcFsHelper.c)."""
    text = """\
stor1 [ID: 1]
   Connections: RDMA: 2 (192.0.2.30:8003);
stor2 [ID: 2]
   Connections: TCP: 4 (203.0.113.30:8003 [fallback route]); RDMA: 1 (n/a);
stor3 [ID: 3]
   Connections: <none>
"""
    assert beegfs.parse_nodes(text) == (
        Connection(protocol="rdma", server="192.0.2.30"),
        Connection(protocol="tcp", server="203.0.113.30"),
        Connection(protocol="rdma"),
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("rw,net=ib0", WekaNet(devices=("ib0",))),
        ("net=ib0/192.0.2.7/24/192.0.2.1,num_cores=2", WekaNet(devices=("ib0",), addresses=("192.0.2.7",))),
        ("net:ha=mlnx0,net:ha=mlnx1,mgmt_ip=192.0.2.7+192.0.2.8", WekaNet(devices=("mlnx0", "mlnx1"))),
        (
            "net:s1+2=0000:5e:00.0/192.0.2.7+192.0.2.8/16",
            WekaNet(devices=("0000:5e:00.0",), addresses=("192.0.2.7", "192.0.2.8")),
        ),
        ("num_cores=0,net=udp,mgmt_ip=192.0.2.7+192.0.2.8", WekaNet(addresses=("192.0.2.7", "192.0.2.8"), udp=True)),
        ("net=udp", WekaNet(udp=True)),
        ("rw,relatime,writecache,container_name=client", WekaNet()),
        ("net=,network=ib0", WekaNet()),
    ],
)
def test_weka_options(options: str, expected: WekaNet) -> None:
    """Examples as docs.weka.io gives them."""
    assert weka.of_options(options.split(",")) == expected


def test_weka_resources() -> None:
    text = {"cores": [], "net_devices": [{"device": "ib0", "ips": ["192.0.2.7"], "slots": [1]}, {"device": "ib1"}]}
    assert weka.parse_resources(json.dumps(text)) == WekaNet(devices=("ib0", "ib1"), addresses=("192.0.2.7",))
    assert weka.parse_resources('{"net_devices": [{"device": "udp", "ips": []}]}') == WekaNet(udp=True)
    assert weka.parse_resources('{"net_devices": []}') == WekaNet()


@given(text=st.text(st.sampled_from("net: nid0@o2ib1,/\n-()[]RDMA TCP=\0\ud800"), max_size=200))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks(text: str) -> None:
    for parse in (lnet.parse_nis, lnet.parse_net_show, lnet.parse_peer_show, weka.parse_resources):
        with suppress(InputError):
            parse("net:\n" + text)
    assert isinstance(beegfs.parse_nodes(text), tuple)
    assert isinstance(lnet.nets(text) + lnet.nids(text), tuple)
    assert isinstance(weka.of_options(text.split(",")), WekaNet)


@pytest.mark.parametrize(
    "line", ["Connections: " + "RDMA: 1 (" * 20_000, "net: " * 50_000, "a@" * 100_000, "nid: " + "x" * 10**6]
)
def test_long_lines_take_no_time(line: str) -> None:
    lnet.nets(line)
    lnet.nids(line)
    assert beegfs.parse_nodes(line) in ((), (Connection(protocol="rdma"),))
    assert lnet.parse_net_show("net:\n" + line) == ()
