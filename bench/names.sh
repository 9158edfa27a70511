#!/usr/bin/env bash
# WHAT=names bench/real.sh (or WHAT=others) on two filesystems: this machine's own, and an ext4 with a journal in a
# file, which is mounted as root. The file has all its blocks and is written past the page cache, as a disk is.
# Usage and variables: bench/real.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(mktemp -d "${ON:-/var/tmp}/cawl-names-XXXXXX")
trap '! mountpoint -q "$base/on" || umount "$base/on"; rm -rf --one-file-system "$base"' EXIT
export WHAT=${WHAT:-names}
echo "## $(stat -f -c %T "$base")"
ON=$base bench/real.sh "$@"
echo "## ext4 with a journal, in a file"
[ "$(id -u)" = 0 ] || { echo "skipped: mounting needs root"; exit 0; }
dd if=/dev/zero of="$base/disk" bs=16M count=384 oflag=direct status=none
loop=$(losetup --direct-io=on --find --show "$base/disk")
mkfs.ext4 -q -E nodiscard "$loop"
mkdir "$base/on"
mount -o nodiscard "$loop" "$base/on"
# The loop device goes with its mount.
losetup --detach "$loop"
[ -z "${KEEP:-}" ] || export KEEP=$KEEP/journal
ON=$base/on bench/real.sh "$@"
