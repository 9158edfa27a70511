#!/usr/bin/env bash
# What tracing adds to a new file (open, write, close), to an unlink, to a process, and to an open and close of a file
# that is there, to write over it or to append, and how long after a program's end its report is there. FILES files on
# tmpfs; PROCESSES × /bin/true from a shell. Untraced and by each tool in turn, PAIRS times; the added time is the median
# of the differences of the pairs.
# Usage: bench/files.sh [PAIRS] [FILES] [PROCESSES]    The table goes to stdout.
# CAWL_CLI=FILE: measure this cawl-cli instead of building one. WAYS="ring socket strace": the tools.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-15} files=${2:-20000} processes=${3:-1500}
work=$(mktemp -d /dev/shm/cawl-files-XXXXXX)
trap 'rm -rf "$work"' EXIT
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli
cawl=${CAWL_CLI:-${CARGO_TARGET_DIR:-$PWD/target}/release/cawl-cli}
cc -O2 -o "$work/files" bench/files.c
# Wall time and the processor time of the shell and of what it started, in µs for each process.
cat >"$work/processes" <<'END'
i=0 start=$(date +%s%N)
while [ $i -lt "$1" ]; do /bin/true; i=$((i + 1)); done
end=$(date +%s%N)
times >"$2.times"
awk -v wall=$((end - start)) -v count="$1" '
    { for (i = 1; i <= 2; i++) { split($i, part, "m"); cpu += 60 * part[1] + part[2] } }
    END { print wall / count / 1e3, cpu * 1e6 / count }' "$2.times" >"$2"
END
cd "$work"
mkdir files.d
ways=(${WAYS:-ring socket})
[ -n "${WAYS:-}" ] || ! command -v strace >/dev/null || ways+=(strace)

under() {
    local way=$1; shift
    case $way in
        untraced) "$@" ;;
        ring | socket) CAWL_TRANSPORT=$way "$cawl" run --report "$work/report.json" -- "$@" 2>/dev/null ;;
        strace) strace -f -o /dev/null "$@" ;;
    esac
}

# New file, unlink, process and both opens, each in wall time and processor time, and the report's delay, in µs.
turn() { # WAY
    local f=$files p=$processes made
    # strace is slow enough to be told apart by fewer.
    if [ "$1" = strace ]; then f=$((files / 10)) p=$((processes / 10)); fi
    (cd files.d && under "$1" "$work/files" "$f" "$work/result")
    made=$(date +%s.%N)
    under "$1" sh processes "$p" result2
    (
        cd files.d
        "$work/files" "$f" "$work/new" make
        for how in over append; do under "$1" "$work/files" "$f" "$work/$how" "$how"; done
        find . -type f -delete
    )
    awk -v made="$made" '{ print $1, $2, $3, $4, $6, $7, $8, $9, $10, $11, (made - $5) * 1e6 }' \
        <<<"$(cat result) $(cat result2) $(cat over) $(cat append)"
}

for _ in $(seq "$pairs"); do
    for way in "${ways[@]}"; do
        bare=$(turn untraced)
        echo "$way $bare $(turn "$way")" >>all
    done
done

echo "$(date -u +%F) $(uname -sr), $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1-3 /proc/loadavg), $pairs pairs, in µs"
echo
echo "| | what | untraced | traced | added (quartiles) | processor time: untraced | traced | added (quartiles) |"
echo "|---|---|---|---|---|---|---|---|"
for way in "${ways[@]}"; do
    awk -v way="$way" -v rows=0 '
        function quantile(q,   i, j, t) {
            for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j-1]; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t }
            return v[int((n - 1) * q + 1.5)]
        }
        function of(a, b,   r) {
            for (n = 0; n < rows; n++) v[n + 1] = (b ? value[n, b] : 0) - (a ? value[n, a] : 0)
            return quantile(.5)
        }
        function cell(a) {
            return sprintf(" %.2f | %.2f | %.2f (%.2f–%.2f) |", of(0, a), of(0, a + 11), of(a, a + 11), quantile(.25), quantile(.75))
        }
        $1 == way { for (i = 2; i <= 23; i++) value[rows, i - 1] = $i + 0; rows++ }
        END {
            split("new file,unlink,process,open to write over,open to append", name, ",")
            for (k = 1; k <= 5; k++) printf "| %s | %s |%s%s\n", way, name[k], cell(2 * k - 1), cell(2 * k)
            printf "| %s | end of the program to end of the tool |%s | | |\n", way, cell(11)
        }' all
done
