#!/usr/bin/env bash
# bench/real.sh on each filesystem: ext4, xfs and btrfs on an emulated ssd, overlay over an ext4 there, tmpfs.
# As root; needs cawl-lab beside the cawl-cli that is measured. What cannot be mounted is skipped.
# Usage: bench/filesystems.sh [ROUNDS] [PROGRAM…]    3 rounds of dd, tar, sqlite and fio.
# FILESYSTEMS="xfs btrfs": only these. DISK=…: another disk of cawl-lab. KEEP=DIR: keep traces, reports and
# profiles in DIR/FILESYSTEM. CAWL_CLI and PROFILE as in bench/real.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
programs=("$@")
[ $# -gt 0 ] || programs=(dd-1m dd-4k tar sqlite-bulk sqlite-commits fio-seq fio-random fio-over)
[ "$(id -u)" = 0 ] || { echo "skipped: mounting needs root"; exit 0; }
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli -p cawl-lab
CAWL_CLI=$(realpath "${CAWL_CLI:-target/release/cawl-cli}")
export CAWL_CLI
base=$(mktemp -d /var/tmp/cawl-filesystems-XXXXXX)
unmount() {
    ! mountpoint -q "$base/on" || umount "$base/on"
    if [ -n "${lab_PID:-}" ]; then
        # It goes when its input ends.
        eval "exec ${lab[1]}>&-"
        wait "$lab_PID" || true
    fi
}
trap 'unmount; rmdir "$base/on" "$base"' EXIT
mkdir "$base/on"

# Where a disk with this filesystem is mounted, in `disk`.
disk() {
    coproc lab { exec "$(dirname "$CAWL_CLI")/cawl-lab" --disk "${DISK:-ssd}" --filesystem "$1" --supervised; }
    read -r ready <&"${lab[0]}" || return
    disk=$(sed -n 's/.*"mount":"\([^"]*\)".*/\1/p' <<<"$ready")
}
mount_on() {
    case $1 in
        tmpfs) mount -t tmpfs -o size=4G cawl "$base/on" ;;
        overlay)
            disk ext4 && mkdir "$disk"/{lower,upper,work} &&
                mount -t overlay -o "lowerdir=$disk/lower,upperdir=$disk/upper,workdir=$disk/work" cawl "$base/on" ;;
        *) disk "$1" && mount --bind "$disk" "$base/on" ;;
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
