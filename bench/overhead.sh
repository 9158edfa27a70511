#!/usr/bin/env bash
# Cost added to each intercepted call: the same program untraced and under `cawl-cli run`, in turn.
# Usage: bench/overhead.sh [ROUNDS]    Prints a table in ns per call (median of the rounds).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-9}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --release -q -p cawl-cli
cc -O2 -o "$work/overhead" bench/overhead.c
cawl=target/release/cawl-cli

median() { sort -g | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }

printf '%-14s %10s %10s %10s %8s\n' case untraced traced added drops
for name in write-1B-null write-4K-file fwrite-16B fputc; do
    : >"$work/bare" && : >"$work/traced" && : >"$work/drops"
    for _ in $(seq "$rounds"); do
        "$work/overhead" "$name" "$work/file" >>"$work/bare"
        "$cawl" run --report "$work/report.json" -- "$work/overhead" "$name" "$work/file" >>"$work/traced"
        sed -n 's/^  "drops": \([0-9]*\),$/\1/p' "$work/report.json" >>"$work/drops"
    done
    bare=$(median <"$work/bare") traced=$(median <"$work/traced")
    printf '%-14s %10s %10s %10s %8s\n' "$name" "$bare" "$traced" \
        "$(awk "BEGIN {printf \"%.1f\", $traced - $bare}")" "$(awk '{s+=$1} END {print s}' "$work/drops")"
done
