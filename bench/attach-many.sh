#!/usr/bin/env bash
# Attaches to a program under load and leaves it, ROUNDS times; each tenth time the follower is killed. The program must
# not notice, and nothing may be left: no program, map or link in the kernel, no descriptor. Needs root and bpftool.
# Usage: bench/attach-many.sh [ROUNDS]    CAWL_CLI=FILE: use this one instead of building it.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-1000}
work=$(mktemp -d)
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli
cawl=${CAWL_CLI:-$PWD/target/release/cawl-cli}
cc -O2 -pthread -o "$work/victim" bench/attach-many.c
cd "$work"
ours=()
trap 'for pid in "${ours[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
./victim file >did & victim=$!; ours=("$victim")
descriptors() { find "/proc/$victim/fd" -mindepth 1 2>/dev/null | wc -l; }
sleep 0.5
before=$(descriptors) failed=0 dropped=0 seen=0
began=$(date +%s%N)
for round in $(seq "$rounds"); do
    rm -f said report.json; mkfifo said
    start=$(date +%s%N)
    "$cawl" attach "$victim" --for 20ms --no-save --report report.json 2>said & follower=$!
    ours=("$victim" "$follower")
    exec 8<said
    read -r line <&8 || true
    echo $((($(date +%s%N) - start) / 1000000)) >>took
    case $line in
        "attached to"*) ;;
        *) failed=$((failed + 1)); echo "round $round: $line" >&2 ;;
    esac
    # What it holds in the kernel, by numbers that are not given again.
    cat "/proc/$follower/fdinfo/"* 2>/dev/null | awk '/^(prog|map|link)_id:/ { print $1 $2 }' >>held || true
    is_killed=$((round % 10 == 0))
    [ "$is_killed" -eq 0 ] || kill -9 "$follower" 2>/dev/null || true
    cat <&8 >/dev/null; exec 8<&-
    { wait "$follower" || [ "$is_killed" -eq 1 ] || failed=$((failed + 1)); } 2>/dev/null
    if [ -s report.json ]; then
        figures='import json; report = json.load(open("report.json")); print(report["calls"], report["drops"])'
        read -r calls drops < <(python3 -c "$figures")
        seen=$((seen + calls)) dropped=$((dropped + drops))
    fi
    if [ $((round % 100)) -eq 0 ]; then echo "round $round of $rounds, load $(cut -d' ' -f1 /proc/loadavg)" >&2; fi
done
span=$((($(date +%s%N) - began) / 1000000000))
after=$(descriptors)
kill "$victim"; wait "$victim"; ours=()
# The kernel frees them a moment later.
sleep 2
left=0
for kind in prog map link; do
    bpftool "$kind" show | sed -n 's/^\([0-9]*\):.*/'$kind'_id:\1/p' | sort -u >there
    left=$((left + $(sort -u held | comm -12 - there | wc -l)))
done
read -r calls bytes counted interrupted less processes <did
sort -n took >sorted
median=$(sed -n "$(((rounds + 1) / 2))p" sorted) longest=$(tail -1 sorted)
echo "$rounds rounds in $span s, $failed failed; attached after $median ms (median, longest $longest); of the program $calls" \
    "calls, $bytes bytes, $counted by the kernel, $interrupted interrupted, $less incomplete, $processes processes;" \
    "$seen calls seen, $dropped dropped; of $(sort -u held | wc -l) objects in the kernel $left left; descriptors" \
    "$before before, $after after"
[ "$((failed + left + interrupted + less))" -eq 0 ] && [ "$bytes" -eq "$counted" ] && [ "$before" -eq "$after" ]
