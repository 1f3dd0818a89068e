# Sourced in the guest. `make KIND` gives a file system at /mnt/KIND, `drop KIND` takes it and all below it away.
# Disks by serial (topology `drives`): PLAIN for one at a time, RAIDA and RAIDB, SERVED behind NFS and NVMe-oF.
addr=10.9.0.1
nqn=nqn.2024-01.lab.gds:disk
target=/sys/kernel/config/nvmet

disk() {  # SERIAL
    local c
    for c in /sys/class/nvme/nvme*; do
        if [ "$(tr -d ' ' <"$c/serial")" = "$1" ]; then echo "/dev/$(basename "$c"/nvme*n1)"; fi
    done
}

address() {  # SERIAL: PCI address
    local c
    for c in /sys/class/nvme/nvme*; do
        if [ "$(tr -d ' ' <"$c/serial")" = "$1" ]; then basename "$(readlink -f "$c/device")"; fi
    done
}

network() {
    local nic
    [ -e /sys/class/infiniband/rxe0 ] && return 0
    nic=$(for n in /sys/class/net/*; do [ -e "$n/device" ] && basename "$n" && break; done)
    ip addr add $addr/24 dev "$nic"
    ip link set "$nic" up
    modprobe rdma_rxe
    rdma link add rxe0 type rxe netdev "$nic"
    for _ in $(seq 100); do rdma link | grep -q 'state ACTIVE' && break; sleep 0.05; done
    modprobe -a rdma_ucm ib_uverbs
}

nfs_server() {
    mountpoint -q /srv && return 0
    network
    modprobe -a rpcrdma nfsd nfs
    mkfs.xfs -q -f "$(disk SERVED)"
    mount -t xfs -o uquota "$(disk SERVED)" /srv
    chmod 1777 /srv
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /run/rpcbind /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcltrack /run/rpc_pipefs
    [ -e /run/rpcbind.sock ] || rpcbind -w
    echo "/srv $addr/24(rw,fsid=0,insecure,no_root_squash,no_subtree_check)" >/etc/exports
    exportfs -ra
    pidof rpc.mountd >/dev/null || rpc.mountd
    echo 2 >/proc/fs/nfsd/nfsv4leasetime 2>/dev/null || true
    echo 2 >/proc/fs/nfsd/nfsv4gracetime 2>/dev/null || true
    rpc.nfsd --rdma=20049 8
}

nvmet_server() {  # TRANSPORT
    modprobe -a nvmet "nvmet-$1" "nvme-$1" 2>/dev/null || modprobe -a nvmet "nvme-$1"
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
    mkdir $target/subsystems/$nqn
    echo 1 >$target/subsystems/$nqn/attr_allow_any_host
    mkdir $target/subsystems/$nqn/namespaces/1
    echo -n "$(disk SERVED)" >$target/subsystems/$nqn/namespaces/1/device_path
    echo 1 >$target/subsystems/$nqn/namespaces/1/enable
    mkdir $target/ports/1
    echo -n "$1" >$target/ports/1/addr_trtype
    if [ "$1" != loop ]; then
        echo -n ipv4 >$target/ports/1/addr_adrfam
        echo -n $addr >$target/ports/1/addr_traddr
        echo -n 4420 >$target/ports/1/addr_trsvcid
    fi
    ln -s $target/subsystems/$nqn $target/ports/1/subsystems/$nqn
}

fabric_disk() {
    local s
    for s in /sys/class/nvme-subsystem/*; do
        if [ "$(<"$s/subsysnqn")" = $nqn ]; then echo "/dev/$(basename "$s"/nvme*n1)"; fi
    done
}

fabric() {  # TRANSPORT
    network
    nvmet_server "$1"
    if [ "$1" = loop ]; then nvme connect -t loop -n $nqn; else nvme connect -t "$1" -a $addr -s 4420 -n $nqn -l "${LOSS:-600}"; fi >/dev/null
    for _ in $(seq 100); do [ -b "$(fabric_disk)" ] && break; sleep 0.05; done
    udevadm settle
}

mapped() {  # NAME: a dm device of the same extent as PLAIN
    dmsetup create "$1" --table "0 $(blockdev --getsz "$(disk PLAIN)") linear $(disk PLAIN) 0"
    udevadm settle
}

becomes() {  # error | flakey 'UP DOWN FEATURES' | delay MS: what the device `faulty` maps to from now on
    local table="0 $(blockdev --getsz "$(disk PLAIN)")"
    case $1 in
    error) table="$table error" ;;
    flakey) table="$table flakey $(disk PLAIN) 0 $2" ;;
    delay) table="$table delay $(disk PLAIN) 0 $2" ;;
    esac
    modprobe -a dm-flakey dm-delay
    dmsetup suspend --nolockfs --noflush faulty
    dmsetup load faulty --table "$table"
    dmsetup resume faulty
}

fill() {  # FOLDER MIB: leave so much free
    local free tries  # others write meanwhile
    for tries in $(seq 20); do
        free=$(df -B1M --output=avail "$1" | tail -1)
        if fallocate -l "$((free - $2))M" "$1/fill"; then return 0; fi
    done
    return 1
}

quota() {  # FOLDER: 16 MiB for nobody, on XFS
    xfs_quota -x -c 'limit bhard=16m 65534' "$1"
}

fs_error() {  # FOLDER: an error that ext4 finds
    echo 1 >"/sys/fs/ext4/$(basename "$(findmnt -no SOURCE "$1")")/trigger_fs_error"
}

make() {  # KIND
    local d; d=$(disk PLAIN)
    mkdir -p "/mnt/$1" /mnt/below
    case $1 in
    xfs) mkfs.xfs -q -f "$d"; mount -t xfs "$d" "/mnt/$1" ;;
    xfs-quota) mkfs.xfs -q -f "$d"; mount -t xfs -o uquota "$d" "/mnt/$1" ;;
    faulty-*) mapped faulty; "mkfs.${1#faulty-}" -q /dev/mapper/faulty; mount /dev/mapper/faulty "/mnt/$1" ;;
    ext4) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$d"; mount -t ext4 -o data=ordered "$d" "/mnt/$1" ;;
    ext4-journal) mkfs.ext4 -q -F "$d"; mount -t ext4 -o data=journal "$d" "/mnt/$1" ;;
    ext3) mkfs.ext3 -q -F "$d"; mount -t ext3 "$d" "/mnt/$1" ;;
    btrfs) mkfs.btrfs -q -f "$d"; mount -t btrfs "$d" "/mnt/$1" ;;
    btrfs-nodatacow) mkfs.btrfs -q -f "$d"; mount -t btrfs -o nodatacow "$d" "/mnt/$1" ;;
    btrfs-compress) mkfs.btrfs -q -f "$d"; mount -t btrfs -o compress-force=zstd:1 "$d" "/mnt/$1" ;;
    f2fs) mkfs.f2fs -q -f "$d" >/dev/null; mount -t f2fs "$d" "/mnt/$1" ;;
    tmpfs) mount -t tmpfs tmpfs "/mnt/$1" ;;
    overlay)
        mkfs.xfs -q -f "$d"; mount -t xfs "$d" /mnt/below; mkdir /mnt/below/{lower,upper,work}
        mount -t overlay -o lowerdir=/mnt/below/lower,upperdir=/mnt/below/upper,workdir=/mnt/below/work overlay "/mnt/$1" ;;
    dm-linear) mapped linear; mkfs.xfs -q -f /dev/mapper/linear; mount -t xfs /dev/mapper/linear "/mnt/$1" ;;
    dm-crypt)
        modprobe -a dm-crypt xts aes_generic 2>/dev/null || true
        dmsetup create crypt --table "0 $(blockdev --getsz "$d") crypt aes-xts-plain64 $(printf '%064d' 7) 0 $d 0"; udevadm settle
        mkfs.xfs -q -f /dev/mapper/crypt; mount -t xfs /dev/mapper/crypt "/mnt/$1" ;;
    loop | loop-direct)
        modprobe loop
        mkfs.xfs -q -f "$d"; mount -t xfs "$d" /mnt/below; fallocate -l 600M /mnt/below/image
        losetup $([ "$1" = loop-direct ] && echo --direct-io=on) /dev/loop0 /mnt/below/image
        mkfs.xfs -q -f /dev/loop0; mount -t xfs /dev/loop0 "/mnt/$1" ;;
    raid0 | raid1)
        modprobe "$1"
        for _ in $(seq 100); do [ -b "$(disk RAIDA)" ] && [ -b "$(disk RAIDB)" ] && break; sleep 0.05; done  # one was away
        wipefs -aq "$(disk RAIDA)" "$(disk RAIDB)"
        mdadm --create /dev/md0 --run --quiet "--level=${1#raid}" --assume-clean --raid-devices=2 "$(disk RAIDA)" "$(disk RAIDB)" </dev/null
        udevadm settle
        mkfs.xfs -q -f /dev/md0; mount -t xfs /dev/md0 "/mnt/$1" ;;
    nvmeof-*) fabric "${1#nvmeof-}"; mkfs.xfs -q -f "$(fabric_disk)"; mount -t xfs "$(fabric_disk)" "/mnt/$1" ;;
    nfs3-tcp) nfs_server; mount -t nfs -o "vers=3,proto=tcp,nolock,mountproto=tcp${OPTIONS:-}" $addr:/srv "/mnt/$1" ;;
    nfs3-rdma) nfs_server; mount -t nfs -o "vers=3,proto=rdma,port=20049,nolock,mountproto=tcp${OPTIONS:-}" $addr:/srv "/mnt/$1" ;;
    nfs4-tcp) nfs_server; mount -t nfs -o "vers=4.2,proto=tcp${OPTIONS:-}" $addr:/ "/mnt/$1" ;;
    nfs4-rdma) nfs_server; mount -t nfs -o "vers=4.2,proto=rdma,port=20049${OPTIONS:-}" $addr:/ "/mnt/$1" ;;
    9p) mkdir -p /ctl/nine; mount --bind /ctl/nine "/mnt/$1" ;;
    *) echo "filesystems.sh: unknown kind $1" >&2; return 2 ;;
    esac
}

nfs_down() {
    rpc.nfsd 0
    exportfs -ua
    echo /srv >/proc/fs/nfsd/unlock_filesystem 2>/dev/null || true
    umount /srv || umount -l /srv
}

drop() {  # KIND
    set +e  # whatever of it was made
    umount "/mnt/$1" 2>/dev/null || umount -f "/mnt/$1" 2>/dev/null || umount -l "/mnt/$1"
    case $1 in
    overlay) umount /mnt/below ;;
    loop*) losetup -d /dev/loop0 || true; umount /mnt/below ;;
    dm-linear) dmsetup remove --retry linear ;;
    faulty-*) dmsetup remove --retry faulty ;;
    dm-crypt) dmsetup remove --retry crypt ;;
    raid*) mdadm --stop --quiet /dev/md0; mdadm --zero-superblock --quiet "$(disk RAIDA)" "$(disk RAIDB)" || true ;;
    nvmeof-*)
        nvme disconnect -n $nqn >/dev/null || true
        rm $target/ports/1/subsystems/*; rmdir $target/ports/1
        echo 0 >$target/subsystems/$nqn/namespaces/1/enable
        rmdir $target/subsystems/$nqn/namespaces/1 $target/subsystems/$nqn ;;
    nfs*) nfs_down ;;
    esac
    case $1 in nfs* | raid* | nvmeof* | tmpfs | 9p) ;; *) wipefs -aq "$(disk PLAIN)" ;; esac
}
