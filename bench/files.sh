#!/usr/bin/env bash
# What tracing adds to a new file (open, write, close), to an unlink and to a process: FILES files on tmpfs, PROCESSES ×
# /bin/true from a shell. Untraced, by ring, by socket and, if it is installed, under strace, in turn; the lowest of the
# rounds.
# Usage: bench/files.sh [ROUNDS] [FILES] [PROCESSES]    The table goes to stdout.
# CAWL_CLI=FILE: measure this cawl-cli instead of building one.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} files=${2:-20000} processes=${3:-1500}
work=$(mktemp -d /dev/shm/cawl-files-XXXXXX)
trap 'rm -rf "$work"' EXIT
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli
cawl=${CAWL_CLI:-$PWD/target/release/cawl-cli}
cc -O2 -o "$work/files" bench/files.c
cat >"$work/processes" <<'END'
i=0 start=$(date +%s%N)
while [ $i -lt "$1" ]; do /bin/true; i=$((i + 1)); done
end=$(date +%s%N)
echo "$(((end - start) / i / 1000))" >"$2"
END
cd "$work"
mkdir files.d
ways=(untraced ring socket)
command -v strace >/dev/null && ways+=(strace)

under() {
    local way=$1; shift
    case $way in
        untraced) "$@" ;;
        ring | socket) CAWL_TRANSPORT=$way "$cawl" run --report "$work/report.json" -- "$@" 2>/dev/null ;;
        strace) strace -f -o /dev/null "$@" ;;
    esac
}

for round in $(seq "$rounds"); do
    for way in "${ways[@]}"; do
        # strace is slow enough to be told apart by fewer.
        f=$files p=$processes
        [ "$way" = strace ] && f=$((files / 10)) p=$((processes / 10))
        (cd files.d && under "$way" "$work/files" "$f" "$work/result")
        under "$way" sh "$work/processes" "$p" "$work/result2"
        echo "$way $(cat result) $(cat result2)" >>all
    done
done

echo "$(date -u +%F) $(uname -sr), $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1-3 /proc/loadavg), lowest of $rounds rounds, in µs"
echo
echo "| | new file | unlink | process |"
echo "|---|---|---|---|"
for way in "${ways[@]}"; do
    awk -v way="$way" '$1 == way { for (i = 2; i <= 4; i++) if (!seen || $i < low[i]) low[i] = $i; seen = 1 }
        END { printf "| %s | %.1f | %.1f | %.0f |\n", way, low[2], low[3], low[4] }' all
done
