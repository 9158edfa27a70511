#!/usr/bin/env bash
# The cost of starting a traced program (start.c), with the ring and with the socket.
# Usage: bench/start.sh [ROUNDS]    Tables go to stdout; medians of the rounds.
# CAWL_CLI=FILE: measure this cawl-cli instead of building one.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli
cawl=${CAWL_CLI:-$PWD/target/release/cawl-cli}
cc -O2 -static -o "$work/start" bench/start.c
cc -O2 -o "$work/self" bench/start.c
cd "$work"
echo "$(date -u +%F) $(uname -sr), $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1-3 /proc/loadavg), ${1:-200} rounds"
for transport in ring socket; do
    printf '\n%s:\n\n' "$transport"
    CAWL_TRANSPORT=$transport "$cawl" run --report report.json -- ./start "${1:-200}" "$work/self"
    echo
    echo "$(sed -n 's/^  "drops": \([0-9]*\),$/\1/p' report.json) drops, $(grep -c '"ended": "' report.json) process images traced"
done
