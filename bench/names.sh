#!/usr/bin/env bash
# WHAT=names bench/real.sh (or WHAT=others) on two filesystems: this machine's own, and an ext4 with a journal in a file of it,
# which is mounted as root. Usage and variables: bench/real.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(mktemp -d "${ON:-/var/tmp}/cawl-names-XXXXXX")
trap '! mountpoint -q "$base/on" || umount "$base/on"; rm -rf --one-file-system "$base"' EXIT
export WHAT=${WHAT:-names}
echo "## $(stat -f -c %T "$base")"
ON=$base bench/real.sh "$@"
echo "## ext4 with a journal, in a file"
[ "$(id -u)" = 0 ] || { echo "skipped: mounting needs root"; exit 0; }
truncate -s 8G "$base/disk"
mkfs.ext4 -q "$base/disk"
mkdir "$base/on"
# The loop device goes with its mount.
mount -o loop "$base/disk" "$base/on"
[ -z "${KEEP:-}" ] || export KEEP=$KEEP/journal
ON=$base/on bench/real.sh "$@"
