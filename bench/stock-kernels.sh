#!/usr/bin/env bash
# Both eyes under kernels as distributions ship them: boots each in qemu, which emulates the processor, and has programs of
# known bytes recorded there. It judges what is seen, not how long it takes. A table; ends with 1 if something is missing.
# Needs qemu-system-x86, busybox-static, cpio, xz, curl, dpkg-deb, mke2fs and cc; no root. Kernels are kept in
# ~/.cache/cawl-lab/stock.
# Usage: bench/stock-kernels.sh [RELEASE...]    CAWL_BIN=DIR: cawl-cli and cawld of this folder instead of building them.
set -euo pipefail
cd "$(dirname "$0")/.."
releases=("$@")
[ $# -gt 0 ] || releases=(5.10 5.15 6.1 6.8 6.12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cawl-lab/stock
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=${CAWL_BIN:-target/release}
[ -n "${CAWL_BIN:-}" ] || cargo build --release -q -p cawl-cli -p cawld
MODULES="virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk"

# Archive, suite and name of the packages of a release.
source_of() {
    case $1 in
        5.10) echo http://archive.debian.org/debian bullseye 'linux-image-5\.10[^ ]*-cloud-amd64-unsigned' ;;
        5.15) echo http://archive.ubuntu.com/ubuntu jammy-updates 'linux-(image-unsigned|modules)-5\.15\.0-[0-9]+-generic' ;;
        6.1) echo http://deb.debian.org/debian bookworm 'linux-image-6\.1\.[^ ]*-cloud-amd64-unsigned' ;;
        6.8) echo http://archive.ubuntu.com/ubuntu noble-updates 'linux-(image-unsigned|modules)-6\.8\.0-[0-9]+-generic' ;;
        6.12) echo http://deb.debian.org/debian trixie 'linux-image-6\.12\.[^ ]*-cloud-amd64-unsigned' ;;
        *) echo "no package of Linux $1 is known" >&2; return 1 ;;
    esac
}

# Fetches and unpacks a kernel: its newest package, and that of its modules.
fetch() {
    local archive suite name files
    [ -e "$cache/$1/whole" ] && return
    read -r archive suite name < <(source_of "$1")
    files=$(curl -fsS "$archive/dists/$suite/main/binary-amd64/Packages.xz" | xz -dc |
        awk -v name="^$name\$" '$1 == "Package:" { is_ours = $2 ~ name } $1 == "Filename:" && is_ours { print $2 }' | sort -V)
    mkdir -p "$cache/$1"
    for kind in image modules; do
        local file; file=$(grep "/linux-$kind" <<<"$files" | tail -n 1) || continue
        curl -fsS -o "$work/package.deb" "$archive/$file"
        dpkg-deb -x "$work/package.deb" "$cache/$1"
    done
    touch "$cache/$1/whole"
}

# The root of the machine: programs, their libraries, and what it does.
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,root}
cp "$(command -v busybox)" "$bin/cawl-cli" "$bin/cawld" "$root/bin/"
cc -D_GNU_SOURCE -O2 -static -pthread -o "$root/bin/eyes" tests/apps/eyes.c
cc -D_GNU_SOURCE -O2 -pthread -o "$root/bin/eyes-dynamic" tests/apps/eyes.c
cc -O2 -static -o "$root/bin/loop" bench/kernel.c
for file in "$root"/bin/{cawl-cli,cawld,eyes-dynamic}; do
    while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Ln "$library" "$root$library"
    done < <(ldd "$file" | grep -o '/[^ ]*')
done
echo root:x:0:0:root:/root:/bin/sh >"$root/etc/passwd"
for name in sh ls cat sleep kill grep sed awk mkdir rm head tail cut; do ln -s busybox "$root/bin/$name"; done
cat >"$root/test" <<'IN'
cd /root
figure() { sed -n "s/^  \"$1\": \([^,]*\),*/\1/p" "$2" | head -n 1; }
see() {
    via=$1 kind=$2 program=$3
    rm -rf work report.json; mkdir work; cd work
    wrote=$(cawl-cli run --via $via --no-save --report ../report.json -- $program $kind . 2>../errors); status=$?; cd ..
    if [ $status = 77 ]; then echo "ROW $via $kind none here"
    elif [ ! -e report.json ]; then echo "ROW $via $kind $(head -n 1 errors | cut -c1-100)"
    else
        drops=$(figure drops report.json) bytes=$(figure bytes report.json)
        if [ "$bytes $drops" = "$wrote 0" ]; then echo "ROW $via $kind all"; else echo "ROW $via $kind $bytes of $wrote B"; fi
    fi
}
see preload calls eyes-dynamic
for kind in calls threads uring aio reaped stored; do see kernel $kind eyes; done
loop pwrite 100000000 1 file & pid=$!
sleep 1
cawl-cli attach $pid --for 2s --no-save --report report.json 2>errors
kill $pid
if [ -e report.json ]; then echo "ROW attach coverage $(figure coverage report.json | cut -c1-5)"
else echo "ROW attach coverage $(tail -n 1 errors | cut -c1-100)"; fi
IN

boot() {
    local init=$work/init-$1 modules
    mkdir -p "$init"/{bin,mnt,dev,proc,modules}
    cp "$(command -v busybox)" "$init/bin/"; ln -s busybox "$init/bin/sh"
    for module in $MODULES; do
        modules=$(find "$cache/$1" -name "$module.ko*" | head -n 1)
        case $modules in
            *.xz) xz -dc "$modules" >"$init/modules/$module.ko" ;;
            *.zst) zstd -qdc "$modules" >"$init/modules/$module.ko" ;;
            *.ko) cp "$modules" "$init/modules/" ;;
        esac
    done
    cat >"$init/init" <<IN
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t devtmpfs dev /dev
for module in $MODULES; do [ -e /modules/\$module.ko ] && insmod /modules/\$module.ko; done
until [ -e /dev/vda ]; do sleep 1; done
mount -t ext4 /dev/vda /mnt
mount -t proc proc /mnt/proc; mount -t sysfs sys /mnt/sys; mount -t devtmpfs dev /mnt/dev; mount -t tmpfs tmp /mnt/tmp
chroot /mnt /bin/sh /test
poweroff -f
IN
    chmod +x "$init/init"
    (cd "$init" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/$1.gz"
    truncate -s 1G "$work/$1.img"
    mke2fs -q -F -t ext4 -d "$root" "$work/$1.img"
    # qemu's own faults (cmpxchg16b, 6.12) end or stop some boots of two processors.
    for processors in 2 2 1; do
        emulate "$1" "$processors"
        grep -q 'ROW attach' "$work/$1.out" && return
    done
}

emulate() {
    timeout 240 qemu-system-x86_64 -accel tcg,thread=multi -cpu Nehalem -smp "$2" -m 2048 -display none -monitor none \
        -serial stdio -no-reboot -kernel "$(ls "$cache/$1"/boot/vmlinuz-*)" -initrd "$work/$1.gz" \
        -append "console=ttyS0 quiet panic=1 mitigations=off" \
        -drive file="$work/$1.img",format=raw,if=virtio,cache=unsafe </dev/null | tr -d '\r' >"$work/$1.out" || true
}

missing=0
echo "| Linux | library | static | threads | io_uring | libaio | of two threads | mappings | attached: coverage |"
echo "|---|---|---|---|---|---|---|---|---|"
for release in "${releases[@]}"; do
    fetch "$release"
    boot "$release"
    cell() { sed -n "s/.*ROW $1 $2 //p" "$work/$release.out" | head -n 1; }
    cells=("$(cell preload calls)" "$(cell kernel calls)" "$(cell kernel threads)" "$(cell kernel uring)"
        "$(cell kernel aio)" "$(cell kernel reaped)" "$(cell kernel stored)" "$(cell attach coverage)")
    case ${cells[1]} in *'need Linux'*) cells=("${cells[0]}" "" "" "" "" "" "" "too old, and said so") ;; esac
    echo "| $release | ${cells[0]} | ${cells[1]} | ${cells[2]} | ${cells[3]} | ${cells[4]} | ${cells[5]} | ${cells[6]} | ${cells[7]} |"
    [ "$release" = 5.10 ] && continue
    for at in 0 1 2 4 5; do [ "${cells[$at]}" = all ] || missing=1; done
done
exit $missing
