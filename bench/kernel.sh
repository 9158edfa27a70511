#!/usr/bin/env bash
# What a call costs under the kernel's probes, and under other tools: getppid, which nobody records, and pwrite of a
# byte. All in turn, ROUNDS times; the least of each, in ns a call. Needs root.
# Usage: bench/kernel.sh [ROUNDS]    CAWL_CLI=FILE: measure this one instead of building it.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
work=$(mktemp -d)
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli
cawl=${CAWL_CLI:-$PWD/target/release/cawl-cli}
cc -O2 -o "$work/loop" bench/kernel.c
cd "$work"
ours=()
trap 'for pid in "${ours[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
# The program and what watches it share no processor, where there are two.
pin=() aside=()
if [ "$(nproc)" -gt 1 ]; then pin=(taskset -c 1) aside=(taskset -c 0); fi
calls() { case $1 in strace | perf-trace) echo 1000 ;; *) echo 20000 ;; esac; }

# The probes follow it once they were loaded: there is no word of it where stderr is no terminal.
attached() {
    for _ in $(seq 300); do
        if [ "$(find "/proc/$1/fd" -lname '*bpf_link*' 2>/dev/null | wc -l)" -ge 5 ]; then sleep 0.5; return; fi
        sleep 0.1
    done
}

# Starts a watcher in the background, and waits until it says the word (to its file of output).
watch() {
    local word=$1; shift
    "${aside[@]}" "$@" >watcher.out 2>&1 &
    watcher=$!; ours+=("$watcher")
    until grep -q "$word" watcher.out; do
        kill -0 "$watcher" 2>/dev/null || return 1
        sleep 0.1
    done
    sleep 0.5
}
rest() { kill "$watcher" 2>/dev/null || true; wait "$watcher" 2>/dev/null || true; ours=(); }

# One round of a loop under a tool; prints ns a call.
measure() {
    local tool=$1 kind=$2 n
    n=$(calls "$tool")
    # Short rounds: one of them is undisturbed.
    local loop=("${pin[@]}" ./loop "$kind" "$n" 20 file)
    case $tool in
        plain) "${loop[@]}" ;;
        other)
            sleep 600 & local other=$!; ours+=("$other")
            "${aside[@]}" "$cawl" attach "$other" --no-save --report other.json 2>/dev/null &
            watcher=$!; ours+=("$watcher"); attached "$watcher"
            "${loop[@]}"; rest; kill "$other"; wait "$other" 2>/dev/null || true
            ;;
        followed)
            mkfifo go; "${loop[@]}" follow <go >took 2>pid & local program=$!; ours+=("$program")
            exec 8>go
            until [ -s pid ]; do sleep 0.05; done
            "${aside[@]}" "$cawl" attach "$(cat pid)" --no-save --report followed.json 8>&- 2>/dev/null &
            watcher=$!; attached "$watcher"
            exec 8>&-; wait "$program"; cat took; wait "$watcher"; rm go pid took; ours=()
            python3 -c "import json; r = json.load(open('followed.json')); print('drops', r['drops'], 'of', r['calls'] + r['drops'])" >&2
            ;;
        preload) "$cawl" run --no-save --report preload.json -- "${loop[@]}" ;;
        strace) strace -f -o strace.out "${loop[@]}" ;;
        perf-trace) perf trace -o perf.out "${loop[@]}" ;;
        bpftrace)
            watch Attaching bpftrace -e 'tracepoint:syscalls:sys_enter_pwrite64 { @start[tid] = nsecs; }
                tracepoint:syscalls:sys_exit_pwrite64 /@start[tid]/ { @took = hist(nsecs - @start[tid]); delete(@start[tid]); }'
            "${loop[@]}"; rest
            ;;
        ext4slower) watch Tracing python3 -u "$(command -v ext4slower-bpfcc)" 10 && "${loop[@]}"; rest ;;
    esac
}

tools=(plain other followed preload)
for tool in strace bpftrace; do command -v $tool >/dev/null && tools+=("$tool"); done
if command -v perf >/dev/null && perf trace -o /dev/null true 2>/dev/null; then tools+=(perf-trace); fi
if command -v ext4slower-bpfcc >/dev/null; then tools+=(ext4slower); fi
: >results
for round in $(seq "$rounds"); do
    for tool in "${tools[@]}"; do
        for kind in getppid pwrite; do
            echo "$kind $tool $(measure "$tool" "$kind" || echo failed)" >>results
        done
    done
    echo "round $round of $rounds, load $(cut -d' ' -f1 /proc/loadavg)" >&2
done
echo "| ns a call | getppid | more | pwrite of 1 B | more |"
echo "|---|---|---|---|---|"
awk -v tools="${tools[*]}" '$3 != "failed" { key = $1 " " $2; if (!(key in least) || $3 < least[key]) least[key] = $3 }
    END { n = split(tools, of, " ")
        for (at = 1; at <= n; at++) {
            a = least["getppid " of[at]]; b = least["pwrite " of[at]]
            if (a) printf "| %s | %.0f | %.0f | %.0f | %.0f |\n", of[at], a, a - least["getppid plain"], b, b - least["pwrite plain"]
        } }' results
