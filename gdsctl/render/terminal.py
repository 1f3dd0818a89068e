"""Reports for people: plain text first, colour where a terminal wants it; no word is broken and no command folded."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text
from rich.tree import Tree

from gdsctl.model.judgement import Finding, Pair, Route
from gdsctl.model.node import Report
from gdsctl.model.pci import PciDevice
from gdsctl.model.unknown import Unknown
from gdsctl.render import documents
from gdsctl.render.layout import Columns, Line, unbroken
from gdsctl.render.layout import shown as _show
from gdsctl.render.ranges import ranges
from gdsctl.render.safe_text import plain_pointer, safe

PLAIN_WIDTH = 100
_NARROWEST = 40  # a narrower terminal wraps lines itself
_WIDEST = 1000
_STYLE = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "cyan"}
_MARK = {"critical": "CRITICAL", "error": "ERROR", "warning": "WARNING", "info": "INFO"}
_ROUTE_STYLE = {"compat": "yellow", "none": "red", "unknown": "magenta"}
_P2P_SIGN = {"bus_address": "=", "through_host_bridge": "^", "blocked": "!", "unknown": "?"}


def deliver(body: RenderableType, output: str | None, *, no_color: bool) -> None:
    """Print to the terminal or, as plain text, into a pipe or a file."""
    if output is not None and output != "-":
        documents.deliver(plain(body), output)
        return
    on_terminal = sys.stdout.isatty() and not no_color and "NO_COLOR" not in os.environ
    if not on_terminal:
        sys.stdout.write(plain(body, _width()))
        return
    console = Console(width=_width(), highlight=False, markup=False, emoji=False)
    console.print(unbroken(body), crop=False)


def plain(body: RenderableType, width: int = PLAIN_WIDTH) -> str:
    """The same without colour, cursor movement or trailing blanks."""
    text = io.StringIO()
    console = Console(
        file=text, width=width, color_system=None, highlight=False, markup=False, emoji=False, legacy_windows=False
    )
    console.print(unbroken(body), crop=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _width() -> int:
    """COLUMNS where it is set, else the terminal's width."""
    return min(max(_NARROWEST, shutil.get_terminal_size((PLAIN_WIDTH, 0)).columns), _WIDEST)


def inspect_report(report: Report, *, verbose: bool = False) -> RenderableType:
    """The whole report: what the node is, its parts, what is wrong, and last an answer for each mount."""
    parts: list[RenderableType] = [
        _heading(report),
        _section("GPUs", _gpus(report)),
        _section("PCIe tree: GPUs, NVMe, NICs and what is above them", _tree(report)),
        _section("Peers: class and the kernel's peer-to-peer answer, for each GPU", _matrix(report)),
        _section("Modules and nvidia-fs hooks", _modules(report)),
        _section("IOMMU and ACS", _iommu_acs(report)),
        _section("NVIDIA driver", _driver(report)),
        _section("GDS configuration", _gds(report)),
        _section("Mounts", _mounts(report)),
        _section("Findings, root causes first", findings(report.findings, verbose=verbose)),
        _section("Not known", _unknowns(report, verbose=verbose)),
        _section("Will the bytes go direct?", _answers(report)),
    ]
    return Group(*parts)


def explanation(story: dict[str, Any]) -> RenderableType:
    """A rule's story."""
    remedy = story["remedy"]
    rows: list[RenderableType] = [
        Text.assemble((story["id"], "bold"), f"  ({story['severity']})"),
        Text(story["problem"]),
    ]
    if story["otherwise"]:
        other = [f"{severity} {where}" for severity, where in story["otherwise"].items()]
        rows.append(_paragraph("Other severities", *other))
    rows.append(_paragraph("Why it matters", story["why"]))
    rows.append(_paragraph("Where to look", commands=story["look_at"]))
    rows.append(_paragraph("What to change", remedy.text, commands=remedy.commands))
    traits = [
        "needs a reboot" if remedy.needs_reboot else None,
        None if remedy.persistent else "lost at the next boot",
        f"risk: {remedy.risk}" if remedy.risk else None,
    ]
    if any(traits):
        rows.append(Line("; ".join(filter(None, traits)), indent=2))
    if story["not_to_conclude"]:
        rows.append(_paragraph("What not to conclude", story["not_to_conclude"]))
    if story["blocks"]:
        rows.append(_paragraph("Routes it blocks", ", ".join(story["blocks"])))
    rows.append(_paragraph("Source", story["source"]))
    return Group(*rows)


def ids(stories: Sequence[dict[str, Any]]) -> RenderableType:
    """Every finding in a line."""
    table = Columns("id", "severity", "problem")
    for story in stories:
        table.add(story["id"], story["severity"], story["problem"])
    return table


def _paragraph(title: str, *lines: str, commands: Sequence[str] = ()) -> RenderableType:
    """Commands stand below what is said of them, each in one line that can be copied."""
    said = [Line(line, indent=2) for line in lines]
    return Group(Text(""), Text(title, style="bold"), *said, *(Line(line, indent=4, whole=True) for line in commands))


def _section(title: str, body: RenderableType | None) -> RenderableType:
    if body is None:
        return Text("")
    return Group(Text(""), Text(title, style="bold underline"), body)


def _heading(report: Report) -> RenderableType:
    source, platform = report.source, report.platform
    where = {"live": "this machine"}.get(source.kind, f"{source.kind} {safe(source.path or '')}".strip())
    lines = [Text.assemble(("gdsctl inspect", "bold"), f"  {_show(source.host or platform.hostname)}, {where}")]
    if source.note:
        lines.append(Text(safe(source.note), style="yellow"))
    system = " ".join(filter(None, (platform.os_id, platform.os_version)))
    lines.append(
        Text(f"Linux {_show(platform.kernel)} {_show(platform.arch)}" + (f", {safe(system)}" if system else ""))
    )
    cpu = f"{_show(platform.sockets)} x {_show(platform.cpu_model)}" if platform.cpu_model else None
    machine = ", ".join(filter(None, (safe(platform.product) if platform.product else None, cpu, _virtual(report))))
    if machine:
        lines.append(Text(machine))
    return Group(*lines)


def _virtual(report: Report) -> str | None:
    kind = report.platform.virtualization
    if kind is None:
        return None
    return "bare metal" if kind == "none" else f"virtual machine ({safe(kind)})"


def _gpus(report: Report) -> RenderableType:
    if not report.gpus:
        return Text("none found")
    table = Columns(
        "#", "address", "name", "BAR1", "memory", "CC", "NUMA", "link", "NVLink", right=("#", "BAR1", "memory")
    )
    devices = {device.address: device for device in report.pci.devices}
    for gpu in report.gpus:
        device = devices.get(gpu.address or "")
        table.add(
            gpu.index,
            gpu.address,
            safe(gpu.name or "?").removeprefix("NVIDIA Corporation ").removeprefix("NVIDIA "),
            _size(gpu.bar1_bytes),
            _size(gpu.memory_bytes),
            gpu.compute_capability,
            _numa(device),
            _link(device, at_rest=True),
            _nvlinks(gpu),
        )
    return table


def _nvlinks(gpu: Any) -> str:
    if gpu.c2c:
        return "C2C"
    if not gpu.nvlinks:
        return "-"
    total = sum(link.count for link in gpu.nvlinks)
    to_switch = all(link.peer == "switch" for link in gpu.nvlinks)
    return f"{total}, switch" if to_switch else f"{total}, {len(gpu.nvlinks)} GPUs"


def _size(count: int | None) -> str:
    if count is None:
        return "?"
    for unit, step in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= step:
            return f"{count / step:.4g} {unit}"
    return f"{count} B"


def _numa(device: PciDevice | None) -> str:
    return "-" if device is None or device.numa_node is None else str(device.numa_node)


_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def _link(device: PciDevice | None, *, at_rest: bool = False) -> str:
    """`Gen5 x16`; the running state is added where it is lower, of a GPU `at_rest` only its width."""
    if device is None or device.link.max_width is None:
        return "-"
    link = device.link
    best = f"{_generation(link.max_speed_gts)} x{link.max_width}"
    slow = link.speed_gts != link.max_speed_gts and not at_rest
    if link.width is None or (link.width == link.max_width and not slow):
        return best
    now = _generation(link.speed_gts) + (f" x{link.width}" if link.width != link.max_width else "")
    return f"{best} (now {now})"


def _generation(gts: float | None) -> str:
    return f"Gen{_GENERATION[gts]}" if gts in _GENERATION else "Gen?"


def _tree(report: Report) -> RenderableType:
    devices = {device.address: device for device in report.pci.devices}
    names = _leaf_names(report)
    wanted: set[str] = set()
    for address in names:
        climbing: str | None = address
        while climbing is not None and climbing not in wanted and climbing in devices:
            wanted.add(climbing)
            climbing = devices[climbing].parent
    if not wanted:
        return Text("no GPU, NVMe drive or NIC on PCIe was found")
    children: dict[str | None, list[str]] = {}
    for device in report.pci.devices:
        if device.address in wanted:
            parent = device.parent if device.parent in wanted else None
            children.setdefault(parent or f"root {device.root_bus}", []).append(device.address)
    roots = sorted({key for key in children if key is not None and key.startswith("root ")})
    on_path = {port for pair in report.pairs for port in pair.acs_redirect_at or ()}
    parts: list[RenderableType] = []
    for root in roots:
        tree = Tree(Text(f"{safe(root.replace('root ', 'root bus ').replace('None', '?'))}"), guide_style="dim")
        _grow(tree, children, root, devices, names, on_path=on_path)
        parts.append(tree)
    return Group(*parts)


def _grow(
    tree: Tree,
    children: dict[str | None, list[str]],
    root: str,
    devices: dict[str, PciDevice],
    names: dict[str, str],
    *,
    on_path: set[str],
) -> None:
    """`on_path`: ports that redirect between a GPU and a peer; elsewhere an ACS bit is only noted."""
    waiting = [(tree, root)]
    while waiting:
        branch, key = waiting.pop()
        for address in children.get(key, ()):
            device = devices[address]
            label = Text(address, style="bold" if address in names else "")
            label.append(f"  {names.get(address) or _port(device)}")
            label.append(f"  {_link(device)}", style="dim")
            if device.numa_node is not None and address in names:
                label.append(f"  NUMA {device.numa_node}", style="dim")
            if address in on_path:
                label.append("  ACS redirects here", style="yellow")
            elif device.acs.redirects:
                label.append("  ACS on", style="dim")
            waiting.append((branch.add(label), address))


def _port(device: PciDevice) -> str:
    kind = device.kind.replace("_", " ") + ("?" if device.kind_inferred else "")
    return f"{kind}  {safe(device.name)}" if device.name and device.kind == "upstream_port" else kind


_NAMELESS_NIC = "NIC"


def _leaf_names(report: Report) -> dict[str, str]:
    names: dict[str, str] = {}
    devices = {device.address: device for device in report.pci.devices}
    for gpu in report.gpus:
        if gpu.address:
            names[gpu.address] = f"GPU {gpu.index} {safe(gpu.name or '')}".rstrip()
    for nvme in report.nvme:
        if nvme.address:
            names[nvme.address] = f"{safe(nvme.name)} {safe(nvme.model or '')}".rstrip()
    for nic in report.nics:
        if nic.address:
            names[nic.address] = _nic_name(nic, devices.get(nic.address))
    return names


def _nic_name(nic: Any, device: PciDevice | None) -> str:
    """Its RDMA device, netdevs, rate and state; where nobody tells these, what lspci calls it."""
    parts = [
        nic.rdma_device,
        "+".join(nic.netdevs) or None,
        f"{nic.rate_gbps:g} Gb/s" if nic.rate_gbps else None,
        nic.state,
    ]
    if not any(parts):
        parts = [_NAMELESS_NIC, device.name if device is not None else None]
    return " ".join(safe(part) for part in parts if part)


def _matrix(report: Report) -> RenderableType | None:
    """Rows are peers, columns GPUs, so that the widest machines stay within a page; GPUs go in blocks of eight."""
    if not report.pairs:
        return Text("no GPU with a peer on PCIe")
    index = {gpu.address or f"gpu{gpu.index}": gpu.index for gpu in report.gpus}
    cells: dict[str, dict[str, Pair]] = {}
    for pair in report.pairs:
        cells.setdefault(pair.peer, {})[pair.gpu] = pair
    labels = _leaf_names(report)
    gpus = sorted({pair.gpu for pair in report.pairs}, key=lambda address: index.get(address, 0))
    rows: dict[str, dict[str, Pair]] = {}
    for peer, row in cells.items():
        label = labels.get(peer, "").split(" ")[0]
        rows[peer if label in ("", _NAMELESS_NIC) else label] = row
    legend = (
        "PIX one switch, PXB several, PHB one host bridge, NODE one NUMA node, SYS more\n"
        "Kernel's peer-to-peer: = below switch, ^ through host bridge, ! refused, ? unknown"
    )
    return Group(_Matrix({gpu: f"GPU{index.get(gpu, '?')}" for gpu in gpus}, rows), Text(legend, style="dim"))


class _Matrix:
    """Blocks of as many GPUs side by side as the terminal has room for, eight at most."""

    def __init__(self, gpus: dict[str, str], rows: dict[str, dict[str, Pair]]) -> None:
        self.gpus = gpus
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gpus = list(self.gpus)
        room = options.max_width - max(map(len, ("peer", *self.rows))) - len("63-63.9") - 4
        count = max(1, min(8, room // len("NODE^  ")))
        for start in range(0, len(gpus), count):
            block = gpus[start : start + count]
            table = Columns("peer", *(self.gpus[gpu] for gpu in block), "GB/s")
            for peer, row in self.rows.items():
                table.add(peer, *(_cell(row.get(gpu)) for gpu in block), _between(row, block))
            yield table


def _between(row: dict[str, Pair], gpus: Sequence[str]) -> str:
    """Lowest and highest ceiling between these GPUs and one peer."""
    ceilings = sorted({gbs for gpu in gpus if gpu in row and (gbs := row[gpu].bottleneck_gbs) is not None})
    if not ceilings:
        return "?"
    return f"{ceilings[0]:.3g}" + (f"-{ceilings[-1]:.3g}" if len(ceilings) > 1 else "")


def _cell(pair: Pair | None) -> Text:
    if pair is None:
        return Text("-")
    sign = _P2P_SIGN[pair.p2p]
    return Text(f"{'?' if pair.class_ == 'unknown' else pair.class_}{sign}", style="red" if sign == "!" else "")


_SHOWN_MODULES = (
    "nvidia",
    "nvidia_fs",
    "nvidia_peermem",
    "nvme",
    "nvme_rdma",
    "rpcrdma",
    "mlx5_core",
    "lnet",
    "wekafsio",
)


def _modules(report: Report) -> RenderableType:
    table = Columns("module", "loaded", "version", "nvidia-fs hooks")
    for name in _SHOWN_MODULES:
        module = report.modules.get(name)
        hook = report.nvfs_hooks.get(name)
        if module is None and hook is None:
            continue
        loaded = {True: "yes", False: "no", None: "?"}[module.loaded if module else None]
        state = "-"
        if hook is not None:
            state = hook.state.replace("_", " ") + (f" ({safe(hook.symbol)})" if hook.symbol else "")
            if hook.mismatched:
                state += f", but nvidia-fs wants {safe(hook.wanted_symbol)}"
            state += f" [{safe(hook.source)}]" if hook.source else ""
        version = module.version if module else None
        if name == "nvidia_fs":  # the loaded one's
            version = report.nvidia_fs.version or version
        table.add(name, loaded, version or "-", state)
    return table


def _iommu_acs(report: Report) -> RenderableType:
    guest = report.platform.virtualization not in (None, "none")
    lines = [
        Text(f"IOMMU: {report.iommu.state}" + (f" ({safe(report.iommu.evidence[0])})" if report.iommu.evidence else ""))
    ]
    if guest:
        lines.append(
            Text("This is a guest: what the host's IOMMU and the ACS of the host's ports do is not seen from here")
        )
    redirecting = sorted({port for pair in report.pairs for port in pair.acs_redirect_at or ()})
    states = [device.acs.state for device in report.pci.devices]
    unreadable = states.count("unreadable")
    if redirecting:
        lines.append(
            Text(f"ACS redirects peer traffic on paths at: {', '.join(map(safe, redirecting))}", style="yellow")
        )
    elif unreadable and unreadable == len(states):
        lines.append(Text("ACS: unreadable on every function (config space needs root)"))
    elif states:
        lines.append(Text(f"ACS: {_no_redirection(report)}; {unreadable} of {len(states)} functions unreadable"))
    bridges = report.nvidia_fs.acs_bridges
    if bridges:
        lines.append(Text(f"nvidia-fs lists bridges with any ACS bit on: {', '.join(map(safe, bridges))}"))
    return Group(*lines)


def _no_redirection(report: Report) -> str:
    """Why no port is named: nothing redirects, or there is no pair whose traffic a port could redirect."""
    if not report.gpus:
        return "no GPU is known, so there is no path to judge"
    if not report.pairs:
        return "no drive or NIC on PCI is known beside the GPUs, so there is no path to judge"
    below = sum(pair.meet in ("switch", "root_port") for pair in report.pairs)
    if not below:
        return "no GPU is seen to share a root port with a drive or NIC, so there is no port between them to judge"
    return f"no port between a GPU and a peer below one root port redirects ({below} pairs), as far as readable"


def _driver(report: Report) -> RenderableType:
    driver = report.nvidia_driver
    if driver.version is None and driver.kind == "unknown":
        unknown = _unknown(report, "/nvidia_driver/version")
        return Text("not loaded" if unknown is None else _not_known("whether and which one is loaded", unknown))
    kind = f"{driver.kind} kernel modules" if driver.kind != "unknown" else "open or proprietary is not known"
    told = f" [{safe(driver.sources['kind'])}]" if driver.sources.get("kind") == "gdscheck" else ""
    lines = [Text(f"{safe(driver.version or 'version not known')}, {kind}{told}")]
    if driver.registry_dwords is not None:
        lines.append(Text(f"RegistryDwords in force: {_dwords(driver.registry_dwords)}"))
    if driver.modprobe_registry_dwords:
        lines.append(Text(f"modprobe.d would set:    {_dwords(driver.modprobe_registry_dwords)}"))
    return Group(*lines)


def _dwords(values: dict[str, str]) -> str:
    return "; ".join(f"{safe(name)}={safe(value)}" for name, value in values.items()) or "none"


def _gds(report: Report) -> RenderableType:
    gds = report.gds
    config = gds.cufile_config
    if config.files is None:
        files = "cufile.json not known"
    else:
        files = ", ".join(map(safe, config.files)) or "no cufile.json: the library's defaults"
    lines = [Text(f"GDS {_show(gds.version)}; {files}")]
    lines += [Text(f"  {safe(problem)}", style="yellow") for problem in config.problems[:5]]
    if len(config.problems) > 5:
        lines.append(Text(f"  and {len(config.problems) - 5} more (gdsctl lint)"))
    return Group(*lines)


def _mounts(report: Report) -> RenderableType:
    shown = [mount for mount in report.mounts if mount.can_hold_data]
    if not shown:
        unknown = _unknown(report, "/mounts")
        return Text("none that could hold data" if unknown is None else _not_known("which there are", unknown))
    table = Columns("target", "type", "source", "on", "options", lists=("options",))
    for mount in shown:
        table.add(mount.target, mount.fstype, mount.source, _backing(mount), _notable(mount.options))
    return table


def _backing(mount: Any) -> str:
    backing = mount.backing
    through = " ".join(safe(name) for name in (*backing.nvme, *backing.nics))
    kind = backing.kind + (f"/{safe(backing.transport)}" if backing.transport and backing.transport != "pcie" else "")
    return f"{kind}: {through}" if through else kind


_NOTABLE = ("data=", "proto=", "port=", "vers=", "nconnect=", "localports=", "remoteports=", "rdma", "spread_")


def _notable(options: Iterable[str]) -> str:
    return ",".join(safe(option) for option in options if option.startswith(_NOTABLE)) or "-"


def findings(found: Sequence[Finding], *, verbose: bool = False) -> RenderableType:
    """Root causes first; findings of one id with the same remedy share it."""
    if not found:
        return Text("none", style="green")
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in found:
        alike.setdefault((finding.id, finding.severity, repr(finding.remedy)), []).append(finding)
    parts: list[RenderableType] = []
    for group in alike.values():
        first = group[0]
        for finding in group:
            head = Text(f"{_MARK[finding.severity]} ", style=_STYLE[finding.severity])
            head.append(finding.id, style="bold")
            head.append(f"  {safe(finding.message)}")
            seen = [f"seen: {safe(e.fact)} = {safe(e.value)}  [{safe(e.source)}]" for e in finding.evidence]
            parts += [head, *(_indented(line, dim=True) for line in (seen if verbose else ()))]
        if verbose:
            parts.append(_indented(safe(first.why), dim=True))
        if first.severity != "info" or verbose:
            parts.append(_indented(f"-> {safe(first.remedy.text)}"))
            parts += [Line(command, indent=7, whole=True) for command in first.remedy.commands]
            if first.remedy.needs_reboot:
                parts.append(_indented("   needs a reboot"))
            if first.remedy.risk and verbose:
                parts.append(_indented(f"   risk: {safe(first.remedy.risk)}"))
    return Group(*parts)


def _indented(line: str, *, dim: bool = False) -> RenderableType:
    return Line(line, style="dim" if dim else "", indent=4)


def _unknowns(report: Report, *, verbose: bool) -> RenderableType | None:
    """One line a kind of fact, what settles it below: the same of several things by number, or of several by name that one
    command settles.
    """
    if not report.unknowns:
        return None
    alike: dict[tuple[str, str, str | None], list[Unknown]] = {}
    for unknown in report.unknowns:
        section, _, rest = unknown.pointer.strip("/").partition("/")
        *middle, last = rest.split("/")
        numbered = any(part.isdigit() for part in middle)
        kinds = ["*" if part.isdigit() or not numbered else part for part in middle]
        shape = "/".join(["", section, *kinds, last]) if kinds and not verbose else unknown.pointer
        alike.setdefault((shape, unknown.reason, None if numbered else unknown.settle_with), []).append(unknown)
    lines: list[RenderableType] = []
    for (shape, reason, _), found in alike.items():
        name = plain_pointer(found[0].pointer) if len(found) == 1 else f"{plain_pointer(shape)} ({len(found)})"
        lines.append(Line(f"{name}: {reason}"))
        if found[0].settle_with:
            lines.append(Line(found[0].settle_with, indent=4, whole=True))
    return Group(*lines)


_NO_ROUTE_EXISTS = frozenset({"fs.unsupported", "fs.tmpfs", "fs.overlay"})


def _answers(report: Report) -> RenderableType:
    """For each mount one line a group of GPUs that fare alike; mounts that no set-up could make direct in one line."""
    if not report.routes:
        return Text(_no_answer(report))
    index = {(gpu.address or f"gpu{gpu.index}"): gpu.index for gpu in report.gpus}
    parts: list[RenderableType] = []
    hopeless: dict[str, list[str]] = {}
    for mount, found in _by_mount(report.routes).items():
        if all(route.blockers and _NO_ROUTE_EXISTS.issuperset(route.blockers) for route in found):
            hopeless.setdefault("/".join(sorted({route.route for route in found})), []).append(mount)
            continue
        parts.append(Text(safe(mount), style="bold"))
        parts += [Line(line, indent=2) for line in _grouped(found, index)]
    for outcome, mounts in hopeless.items():
        words = outcome.replace("none", "cuFile refuses files there")
        parts.append(Text(f"No direct route exists on {', '.join(map(safe, mounts))}: {words}", style="dim"))
    return Group(*parts)


def _no_answer(report: Report) -> str:
    """Why there is no GPU x mount to tell of: one of them is not there, or not known to be."""
    unknown = _unknown(report, "/mounts")
    if not any(mount.can_hold_data for mount in report.mounts) and unknown is not None:
        return _not_known("which mounts there are", unknown)
    unknown = _unknown(report, "/gpus") or _unknown(report, "/pci/devices")
    if not report.gpus:
        return "no GPU: nothing to route" if unknown is None else _not_known("which GPUs there are", unknown)
    return "no mount that could hold data: nothing to route"


def _unknown(report: Report, pointer: str) -> Unknown | None:
    return next((unknown for unknown in report.unknowns if unknown.pointer == pointer), None)


def _not_known(fact: str, unknown: Unknown) -> str:
    settle = f"; settle with: {safe(unknown.settle_with)}" if unknown.settle_with else ""
    return f"{fact} is not known{settle}"


def _grouped(found: Sequence[Route], index: dict[str, int]) -> list[Text]:
    groups: dict[tuple[object, ...], list[Route]] = {}
    for route in found:
        key = (route.route, route.dynamic_routing, route.because, route.confidence, route.ceiling_gbs)
        groups.setdefault(key, []).append(route)
    return [_answer(routes[0], ranges(index.get(route.gpu, -1) for route in routes)) for routes in groups.values()]


def _answer(route: Route, gpus: str) -> Text:
    line = Text(f"GPU {gpus}: ")
    line.append(safe(route.because), style=_ROUTE_STYLE.get(route.route, "green"))
    if route.dynamic_routing:
        line.append(f"; staged by dynamic routing: {route.dynamic_routing}")
    if route.ceiling_gbs is not None:
        line.append(f"; at most {route.ceiling_gbs:.3g} GB/s")
    if route.route not in ("compat", "none", "unknown") and route.confidence != "certain":
        line.append(f" [{route.confidence}]")
    if route.settle_with:
        line.append(f"; settle with: {safe(route.settle_with)}")
    return line


def _by_mount(routes: Sequence[Route]) -> dict[str, list[Route]]:
    grouped: dict[str, list[Route]] = {}
    for route in routes:
        grouped.setdefault(route.mount, []).append(route)
    return grouped
