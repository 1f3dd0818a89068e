"""Which paths of a cufile.json are looked for, and what is said of those that nobody captured."""

from __future__ import annotations

import json
from collections.abc import Callable

from gdsctl.collect import gds
from gdsctl.collect.cufile_paths import standing
from gdsctl.collect.reader import Reader

TEXT = json.dumps(
    {
        "logging": {"dir": "/log"},
        "denylist": {"mounts": ["/mnt", "relative", "/nul\0", 7], "devices": "none", "drivers": ["/nvme"]},
        "miscellaneous": {"static_routing_filepath": "/etc/routes"},
        "fs": {"nfs": {"mount_table": {"/kv/a~b": {}}}, "weka": []},
    }
)


def test_the_paths_that_libcufile_follows(machine: Callable[..., Reader]) -> None:
    reader = machine({"/log/old": b""})
    assert set(standing(reader, [TEXT])) == {"/log", "/mnt", "/etc/routes", "/kv/a~b"}
    assert standing(reader, [TEXT])["/log"] is True
    assert standing(reader, ["{", "[]", ""]) == {}


def test_their_number_is_bounded(machine: Callable[..., Reader]) -> None:
    reader = machine({})
    found = standing(reader, [json.dumps({"denylist": {"mounts": [f"/{n}" for n in range(300)]}})])
    assert len(found) == 256
    assert any("more than 256" in gap.detail for gap in reader.gaps)


def test_a_static_routing_file_is_read_where_it_is_switched_on(machine: Callable[..., Reader]) -> None:
    def collected(routing: dict[str, object], files: dict[str, bytes]) -> tuple[str | None, list[str]]:
        text = json.dumps({"miscellaneous": routing}).encode()
        reader = machine({"/etc/cufile.json": text, "/proc/self/status": b"", **files})
        config = gds.collect(reader).cufile_config
        return config.static_routing, [gap.field for gap in reader.gaps if "static" in gap.field]

    on = {"enable_static_routing": True, "static_routing_filepath": "/etc/t.json"}
    assert collected(on, {"/etc/t.json": b"{}"}) == ("{}", [])
    assert collected({**on, "enable_static_routing": False}, {"/etc/t.json": b"{}"}) == (None, [])
    assert collected(on, {}) == (None, [])
