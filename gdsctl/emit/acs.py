"""A shell script that ends ACS redirection at the ports on the way of an intended mount, and at no other."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.model.pci import ACS_BITS, ACS_REDIRECTING, canonical_address
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact

# ReqRedir, CmpltRedir and EgressCtrl as a mask over the ACS control register.
MASK = sum(1 << bit for bit, name in enumerate(ACS_BITS) if name in ACS_REDIRECTING)
WHY = "on the way between a GPU and a drive or NIC of an intended mount, and redirects peer requests to the host bridge"


def applies(plan: Plan) -> bool:
    return bool(plan.driver.clear_acs)


def emit(plan: Plan) -> Artifact:
    """POSIX sh; needs root and setpci. One port after the other, old values kept for --undo, stops at the first failure."""
    ports = plan.driver.redirecting
    said = f"gdsctl plan, mode {plan.mode}: "
    if not ports:
        said += "no port on the way of an intended mount redirects"
        elsewhere = [finding.subject for finding in plan.findings if finding.id == "acs.redirect-on-path"]
        if elsewhere:
            said += f"; on the way of other mounts, or of drives and NICs without one: {', '.join(elsewhere)}"
        return Artifact(path="acs.sh", content=f"#!/bin/sh\n{comment(said)}\n")
    for port in ports:
        if canonical_address(port) != port:
            raise ValueError(port)
    head = said + f"end ACS redirection at {', '.join(ports)}"
    if not plan.driver.clear_acs:
        head += "; advised, not needed for any route"
    content = _SCRIPT.format(head=comment(head), ports="\n".join(ports), mask=f"0x{MASK:02x}")
    lines = content.split("\n")
    return Artifact(
        path="acs.sh", content=content, reasons={str(lines.index(port) + 1): f"{port}: {WHY}" for port in ports}
    )


# setpci(8): without a mask it writes the whole word, so the new value is the old one less the redirecting bits.
_SCRIPT = """\
#!/bin/sh
{head}
#
#   sh acs.sh --dry-run [PORT...]   say what would be written
#   sh acs.sh [PORT...]             clear ReqRedir, CmpltRedir and EgressCtrl, one port after the other
#   sh acs.sh --undo                write the old values back
#
# Every port here lies on the way between a GPU and a drive or NIC of an intended mount. SrcValid and all other bits stay.
# Better than this script is pci=disable_acs_redir= on the kernel command line: it acts before drivers load.
#
# Risks
# - It ends the isolation of the devices below these ports: not on a host that hands them to virtual machines.
# - Clearing ACS on all bridges of a node has taken drives down. Add no port here; do one, look at the node, do the next.
# - Not persistent: firmware and kernel set ACS anew at each boot.
# - nvidia-fs judges the ways between devices when it loads, the kernel's P2PDMA when it first maps memory of a device,
#   and IOMMU groups form at boot: reload the modules (nvidia_fs, nvidia_uvm) after this, or they go on as before.
set -eu
PATH=$PATH:/usr/sbin:/sbin

ports='
{ports}
'
state=${{GDSCTL_ACS_STATE:-/run/gdsctl-acs.state}}  # old values; gone at the next boot, as the new ones are

say() {{ printf 'acs.sh: %s\\n' "$*" >&2; }}
fail() {{
    say "$*; stopped here"
    exit 1
}}

# read_port PORT: sets $value to its ACS control register, 4 hex digits.
read_port() {{
    value=$(setpci -s "$1" ECAP_ACS+6.w) || fail "cannot read the ACS control register of $1"
    case $value in
    [0-9a-f][0-9a-f][0-9a-f][0-9a-f]) ;;
    *) fail "$1 gives '$value' for its ACS control register" ;;
    esac
    [ "$value" != ffff ] || fail "$1 does not answer"
}}

# write_port PORT VALUE: writes it and reads it back.
write_port() {{
    setpci -s "$1" "ECAP_ACS+6.w=$2" || fail "cannot write to $1 (Secure Boot's lockdown refuses it)"
    read_port "$1"
    [ "$value" = "$2" ] || fail "$1 reads $value after $2 was written"
}}

clear_port() {{
    read_port "$1"
    old=$value
    new=$(printf '%04x' "$((0x$old & ~{mask}))")
    if [ "$new" = "$old" ]; then
        say "$1 is $old and redirects nothing: left alone"
    elif [ "$mode" = --dry-run ]; then
        say "$1 is $old and would become $new"
    else
        # What stood there first is what --undo writes back, however often this runs.
        grep -qs "^$1 " "$state" || printf '%s %s\\n' "$1" "$old" >>"$state" || fail "cannot write $state"
        write_port "$1" "$new"
        say "$1 was $old and is $new"
    fi
}}

undo() {{
    [ -s "$state" ] || {{
        say "$state holds no old values: nothing to undo"
        exit 0
    }}
    while read -r port old; do
        write_port "$port" "$old"
        say "$port is $old again"
    done <"$state"
    rm -f -- "$state"
}}

mode=clear
case ${{1-}} in
--dry-run | --undo)
    mode=$1
    shift
    ;;
-*)
    say "usage: acs.sh [--dry-run | --undo] [PORT...]"
    exit 2
    ;;
esac
for port in "$@"; do
    printf '%s\\n' "$ports" | grep -Fqx -e "$port" || {{
        say "$port is not one of the ports of this plan"
        exit 2
    }}
done

[ "$(id -u)" -eq 0 ] || fail "needs root"
command -v setpci >/dev/null || fail "needs setpci (package pciutils)"
umask 077

if [ "$mode" = --undo ]; then
    undo
    exit 0
fi
say "ends the isolation of devices below these ports, lasts until the next boot; undo with: sh $0 --undo"
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2086  # addresses, one a line
    set -- $ports
fi
for port in "$@"; do
    clear_port "$port"
done
"""
