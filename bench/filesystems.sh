#!/usr/bin/env bash
# bench/real.sh on each filesystem: ext4, xfs, btrfs on a loop device (a sparse file of 1900 MiB under
# /var/tmp, removed at the end), overlay over an ext4 there, tmpfs. As root; what cannot be mounted is skipped.
# Usage: bench/filesystems.sh [ROUNDS] [PROGRAM…]    3 rounds of the programs of PROGRAMS below.
# FILESYSTEMS="xfs btrfs": only these. KEEP=DIR: keep traces, reports and profiles in DIR/FILESYSTEM.
# The other variables are those of bench/real.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
programs=("$@")
[ $# -gt 0 ] || programs=(dd-1m dd-4k tar sqlite-bulk sqlite-commits fio-seq fio-random fio-over)
[ "$(id -u)" = 0 ] || { echo "skipped: mounting needs root"; exit 0; }
base=$(mktemp -d /var/tmp/cawl-filesystems-XXXXXX)
loop=
unmount() {
    for at in on layers; do ! mountpoint -q "$base/$at" || umount "$base/$at"; done
    [ -z "$loop" ] || losetup -d "$loop"
    loop=
    rm -f "$base/image"
}
trap 'unmount; rm -rf "$base"' EXIT
mkdir "$base/on" "$base/layers"

# A new filesystem of this kind at the folder.
disk() {
    truncate -s 1900M "$base/image"
    loop=$(losetup --find --show --direct-io=on "$base/image")
    case $1 in
        ext4) mkfs.ext4 -q -F "$loop" ;;
        *) "mkfs.$1" -q -f "$loop" ;;
    esac
    mount -t "$1" "$loop" "$2"
}
mount_on() {
    case $1 in
        tmpfs) mount -t tmpfs -o size=4G cawl "$base/on" ;;
        overlay)
            disk ext4 "$base/layers" && mkdir "$base"/layers/{lower,upper,work} &&
                mount -t overlay -o "lowerdir=$base/layers/lower,upperdir=$base/layers/upper,workdir=$base/layers/work" cawl "$base/on" ;;
        *) disk "$1" "$base/on" ;;
    esac
}

for filesystem in ${FILESYSTEMS:-ext4 xfs btrfs overlay tmpfs}; do
    echo "## $filesystem"
    if mount_on "$filesystem"; then
        kept=()
        [ -z "${KEEP:-}" ] || kept=(KEEP="$KEEP/$filesystem")
        env ON="$base/on" "${kept[@]}" bench/real.sh "$rounds" "${programs[@]}"
    else
        echo "skipped: $filesystem cannot be mounted"
    fi
    unmount
done
