#!/bin/bash
# Builds what gdsvm.py needs, in $GDSVM_CACHE (default /var/cache/gdsvm): kernels, unpacked and
# never installed; a root disk with the guest's tools; and a few kernel modules for tests.
# Needs root, Debian 12 and Debian's package registry. Run again, it keeps what is there.
#
#   setup.sh [KERNEL...]
#     6.1         Debian 12's own (the default)
#     6.12        from bookworm-backports
#     trixie-bpo  from trixie-backports: CONFIG_PCI_P2PDMA=y, so p2pmem shows; no extra modules
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${GDSVM_CACHE:-/var/cache/gdsvm}
# the Debian mirror that this machine itself uses
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
    sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' | grep -m 1 '/debian/*$' || true)
[ -n "$mirror" ] || { echo "setup.sh: no Debian mirror in /etc/apt" >&2; exit 1; }
kernels=("$@"); [ $# -gt 0 ] || kernels=(6.1)
host_packages=(qemu-system-x86 mmdebstrap kmod cpio xz-utils zstd e2fsprogs python3 gcc-12 make)
guest_packages=kmod,udev,iproute2,iputils-ping,pciutils,nvme-cli,rdma-core,ibverbs-providers,ibverbs-utils,rdmacm-utils,nfs-kernel-server,nfs-common,hwloc-nox,fio,mdadm,xfsprogs,e2fsprogs,btrfs-progs,f2fs-tools,dmsetup,procps,ethtool,numactl,util-linux,python3,python3-pyudev
mkdir -p "$cache/kernels"
say() { echo "setup.sh: $* ($SECONDS s)"; }

# apt with sources and lists of its own, so the machine's are left alone.
private() {  # SUITE COMMAND...
    local suite=$1 d=$cache/apt-$1 opts; shift
    opts=(-q -o Dir::Etc::sourcelist="$d/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::lists="$d/lists" -o Dir::Cache="$d/cache" -o Dir::State::status=/dev/null
        -o APT::Sandbox::User=root -o APT::Architecture=amd64)
    if [ ! -d "$d" ]; then
        mkdir -p "$d"/{lists/partial,cache/archives/partial}
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main contrib non-free" >"$d/sources.list"
        apt-get "${opts[@]}" update >/dev/null
    fi
    "$1" "${opts[@]}" "${@:2}"
}

unpack() {  # SUITE FOLDER PACKAGE...
    local suite=$1 to=$2 d deb; shift 2
    d=$(mktemp -d)
    (cd "$d" && private "$suite" apt-get download "$@" >/dev/null)
    mkdir -p "$to"
    for deb in "$d"/*.deb; do dpkg -x "$deb" "$to"; done
    rm -r "$d"
}

depends() {  # SUITE PACKAGE PATTERN
    private "$1" apt-cache depends "$2" | awk -v p="$3" '/Depends:/ && $2 ~ p {print $2}'
}

kernel() {  # NAME SUITE
    local suite=$2 k=$cache/kernels/$1 t image lib ver
    [ -e "$k/version" ] && return
    rm -rf "$k"; mkdir -p "$k"; t=$(mktemp -d)
    image=$(depends "$suite" linux-image-amd64 '^linux-image-[0-9]' | head -1)
    # newer kernels come in three packages
    unpack "$suite" "$t" $image $(depends "$suite" "$image" '^linux-(binary|modules|base)-[0-9]')
    lib=$t/lib/modules; [ -d "$t/usr/lib/modules" ] && lib=$t/usr/lib/modules
    ver=$(ls "$lib")
    cp "$t/boot/vmlinuz-$ver" "$k/vmlinuz" 2>/dev/null || cp "$lib/$ver/vmlinuz" "$k/vmlinuz"
    cp "$t/boot/config-$ver" "$k/config" 2>/dev/null || cp "$lib/$ver/config" "$k/config"
    mv "$lib" "$k/modules"; rm -r "$t"
    vmlinux "$k" >"$k/vmlinux"
    mkdir -p "$k/base/lib"; ln -s ../../modules "$k/base/lib/modules"
    depmod -b "$k/base" "$ver"
    initramfs "$k" "$ver"
    [ "$1" = trixie-bpo ] || extra_modules "$suite" "$k" "$ver"
    echo "$ver" >"$k/version"
    say "kernel $1: $ver"
}

# The ELF kernel out of a bzImage. QEMU boots it directly (PVH), which under
# emulation saves the 5 s that the guest takes to decompress itself.
vmlinux() {  # KERNEL_DIR
    python3 - "$1/vmlinuz" <<'PY' | case $(grep -oE '^CONFIG_KERNEL_(XZ|ZSTD)=y' "$1/config") in
import sys
b = open(sys.argv[1], "rb").read()
start = 512 * (b[0x1F1] + 1) + int.from_bytes(b[0x248:0x24C], "little")  # setup code, then payload_offset
sys.stdout.buffer.write(b[start : start + int.from_bytes(b[0x24C:0x250], "little") - 4])  # less the size at its end
PY
        *XZ=y) xz -dc ;;
        *ZSTD=y) zstd -dcq ;;
    esac
}

initramfs() {  # KERNEL_DIR VERSION
    local t p n m
    t=$(mktemp -d); mkdir -p "$t"/{bin,mod}
    cp "$cache/busybox" "$t/bin/busybox"
    install -m755 "$here/guest/initramfs-init" "$t/init"
    for m in virtio_pci virtio_blk ext4 9pnet_virtio 9p; do
        modprobe -d "$1/base" -S "$2" --show-depends "$m" 2>/dev/null | awk '$1 == "insmod" {print $2}'
    done | awk '!seen[$0]++' | while read -r p; do
        n=$(basename "$p" .xz)
        case $p in *.xz) xz -dc "$p" ;; *) cat "$p" ;; esac >"$t/mod/$n"
        echo "$n" >>"$t/mod/order"
    done
    (cd "$t" && find . | cpio --quiet -o -H newc | gzip -1) >"$1/initrd.img"
    rm -r "$t"
}

# pcioverlay.ko (overlay/), a stand-in nvidia.ko (stubs/), and the real nvidia-fs.ko from
# Debian's nvidia-fs-dkms, built on it. In KERNEL_DIR/extra; the guest sees them in /ctl/extra.
extra_modules() {  # SUITE KERNEL_DIR VERSION
    local suite=$1 k=$2 ver=$3 t build fs
    t=$(mktemp -d)
    unpack "$suite" "$t" "linux-headers-$ver" $(depends "$suite" "linux-headers-$ver" '^linux-(headers|kbuild)')
    build=$t/usr/src/linux-headers-$ver
    sed -i "s,/usr/src/,$t/usr/src/," "$build/Makefile"
    rm -f "$build/vmlinux"  # else type information is made, with a tool not here
    mkdir -p "$k/extra" "$t/m"
    cp -r "$here/overlay" "$here/stubs" "$t/m"
    make -s -C "$build" M="$t/m/overlay" modules 2>/dev/null
    make -s -C "$build" M="$t/m/stubs" modules 2>/dev/null
    cp "$t"/m/*/*.ko "$k/extra"
    unpack bookworm "$t/nv" nvidia-fs-dkms nvidia-open-kernel-dkms  # the second only for nv-p2p.h
    fs=$(echo "$t"/nv/usr/src/nvidia-fs-*)
    (
        cd "$fs"
        sed -i "s,^export KDIR=.*,export KDIR=$build," configure
        bash ./configure "$ver" >/dev/null 2>&1
        export KCPPFLAGS="-DCONFIG_NVFS_STATS=y -DGDS_VERSION=$(cat GDS_VERSION) -DNVFS_ENABLE_KERN_RDMA_SUPPORT -DNVFS_BATCH_SUPPORT=y"
        make -s -C "$build" M="$fs" CONFIG_NVFS_BATCH_SUPPORT=y CONFIG_NVFS_STATS=y KBUILD_EXTRA_SYMBOLS="$t/m/stubs/Module.symvers" \
            NVIDIA_SRC_DIR="$(dirname "$(find "$t/nv" -path '*/nvidia/nv-p2p.h')")" modules >build.log 2>&1
    ) && cp "$fs/nvidia-fs.ko" "$k/extra" || say "nvidia-fs.ko does not build for $ver"
    strip -g "$k"/extra/*.ko
    rm -r "$t"
}

if ! dpkg -s "${host_packages[@]}" >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends "${host_packages[@]}" >/dev/null
    say "host packages"
fi

if [ ! -e "$cache/busybox" ]; then
    d=$(mktemp -d)
    unpack bookworm "$d" busybox-static
    cp "$d/bin/busybox" "$cache/busybox"; rm -r "$d"
fi

if [ ! -e "$cache/root.img" ] || [ "$(cat "$cache/root.packages" 2>/dev/null)" != "$guest_packages" ]; then
    d=$(mktemp -d)
    mmdebstrap --quiet --variant=minbase --include="$guest_packages" \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        bookworm "$d/root" $mirror
    mke2fs -q -t ext4 -L gdsroot -d "$d/root" "$cache/root.img.new" 1G >/dev/null
    mv "$cache/root.img.new" "$cache/root.img"; rm -r "$d"
    echo "$guest_packages" >"$cache/root.packages"
    say "root disk"
fi

for name in "${kernels[@]}"; do
    case $name in
        6.1) kernel 6.1 bookworm ;;
        6.12) kernel 6.12 bookworm-backports ;;
        trixie-bpo) kernel trixie-bpo trixie-backports ;;
        *) echo "setup.sh: unknown kernel $name" >&2; exit 2 ;;
    esac
done
say "done"
