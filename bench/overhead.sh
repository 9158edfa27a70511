#!/usr/bin/env bash
# The cost of tracing: the same work untraced, with the floor shim (floor.c), under cawl with each transport,
# and under the other tools that are installed, in turn, ROUNDS times.
# Usage: bench/overhead.sh [ROUNDS] [PEER_ROUNDS]    Tables go to stdout; medians of the rounds.
# CAWL_CLI=FILE: measure this cawl-cli instead of building one. DFTRACER=DIR: the folder of
# `pip install --target DIR dftracer`. MICRO_ONLY=1: calls, no programs.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7} peer_rounds=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli
cc -O2 -pthread -o "$work/overhead" bench/overhead.c
cc -O2 -shared -fPIC -o "$work/floor.so" bench/floor.c -ldl
cawl=${CAWL_CLI:-$PWD/target/release/cawl-cli}
bench=$PWD/bench
cd "$work"
: >results && : >skipped

tools=(untraced floor ring socket)
peers=()
if command -v strace >/dev/null; then
    peers+=(strace)
    strace -f --seccomp-bpf -e trace=write -o /dev/null true 2>/dev/null && peers+=(strace-bpf)
else
    echo strace >>skipped
fi
if command -v perf >/dev/null && perf trace -o /dev/null true 2>/dev/null; then peers+=(perf-trace); else echo "perf trace" >>skipped; fi
if command -v uftrace >/dev/null; then peers+=(uftrace); else echo uftrace >>skipped; fi
# LTTng does not trace calls by itself: lttng.c calls a tracepoint.
if command -v lttng >/dev/null && command -v babeltrace2 >/dev/null &&
    cc -O2 -shared -fPIC -I"$bench" -o lttng.so "$bench/lttng.c" -llttng-ust -ldl 2>/dev/null; then
    export LTTNG_HOME=$work
    lttng-sessiond --no-kernel >/dev/null 2>&1 &
    sessiond=$!
    trap 'kill $sessiond 2>/dev/null || true; wait $sessiond 2>/dev/null || true; rm -rf "$work"' EXIT
    until lttng --no-sessiond list >/dev/null 2>&1; do kill -0 $sessiond; done
    peers+=(lttng)
else
    echo "lttng (lttng-tools, liblttng-ust-dev, babeltrace2)" >>skipped
fi
dftracer=${DFTRACER:-}/dftracer/lib64
if [ -e "$dftracer/libdftracer_preload.so" ]; then peers+=(dftracer); else echo "dftracer (set DFTRACER)" >>skipped; fi
# Its runtime is neither a Debian package nor in the PyPI package of that name.
echo "darshan (its runtime has to be built from source)" >>skipped

# Runs a command under a tool; `drops` and `calls` are the tool's counts of its record.
under() {
    local tool=$1; shift
    drops=- calls=-
    case $tool in
        untraced) "$@" ;;
        floor) LD_PRELOAD=$work/floor.so "$@" ;;
        ring | socket)
            CAWL_TRANSPORT=$tool "$cawl" run --report report.json -- "$@"
            drops=$(sed -n 's/^  "drops": \([0-9]*\),$/\1/p' report.json)
            calls=$(sed -n 's/^  "calls": \([0-9]*\),$/\1/p' report.json)
            ;;
        strace) strace -f -e trace=write,pwrite64,writev -o strace.out "$@"; calls=$(grep -cE '(write|pwrite64|writev)\(' strace.out) ;;
        strace-bpf) strace -f --seccomp-bpf -e trace=write,pwrite64,writev -o strace.out "$@"; calls=$(grep -cE '(write|pwrite64|writev)\(' strace.out) ;;
        uftrace)
            rm -rf uftrace.data
            uftrace record --force -d uftrace.data "$@"
            calls=$(uftrace report -d uftrace.data 2>/dev/null | awk '$NF ~ /^(write|fwrite|fputc)$/ { n += $5 } END { print n + 0 }')
            ;;
        lttng)
            rm -rf lttng.data
            {
                lttng create bench --output="$work/lttng.data"
                lttng enable-channel -u bench --subbuf-size=4M --num-subbuf=4
                lttng enable-event -u -c bench 'cawl_bench:*'
                lttng add-context -u -c bench -t vtid
                lttng start
            } >/dev/null
            LD_PRELOAD=$work/lttng.so "$@"
            lttng stop >/dev/null 2>&1
            lttng destroy bench >/dev/null 2>&1
            calls=$(babeltrace2 lttng.data 2>/dev/null | grep -c cawl_bench || true)
            ;;
        dftracer)
            rm -rf dftracer.data && mkdir dftracer.data
            DFTRACER_ENABLE=1 DFTRACER_INIT=PRELOAD DFTRACER_DATA_DIR=all DFTRACER_TRACE_COMPRESSION=0 \
                DFTRACER_LOG_FILE=$work/dftracer.data/trace LD_LIBRARY_PATH=$dftracer \
                LD_PRELOAD=$dftracer/libdftracer_preload.so "$@"
            calls=$(cat dftracer.data/* 2>/dev/null | grep -c '"name":"\(write\|fwrite\|fputc\)"' || true)
            ;;
        perf-trace) perf trace -e 'write,pwrite64,writev' -o perf.out "$@"; calls=$(grep -c 'write' perf.out) ;;
    esac
}

micro() { # CASE TOOL BATCHES
    # Only the program's own line of the tool's output counts.
    under "$2" ./overhead "$1" file "$3" >said
    grep -E '^[0-9.]+ [0-9.]+ [0-9]+$' said >out
    read -r median mean made <out
    echo "micro $1 $2 $median $mean $made $calls $drops" >>results
}

macro() { # CASE TOOL
    local command
    case $1 in
        dd-4k) command=(dd if=/dev/zero of=file bs=4k count=40000 conv=notrunc status=none) ;;
        dd-64k) command=(dd if=/dev/zero of=file bs=64k count=4000 conv=notrunc status=none) ;;
        sqlite-inserts) rm -f db; command=(sqlite3 db ".read inserts.sql") ;;
        sqlite-commits) rm -f db; command=(sqlite3 db ".read commits.sql") ;;
        tar) command=(tar cf file tree) ;;
        start-up) command=(true) ;;
    esac
    under "$2" ./overhead exec out "${command[@]}" >said
    read -r took memory <out
    echo "macro $1 $2 $took $memory 0 $calls $drops" >>results
}

{
    echo 'PRAGMA synchronous=OFF; CREATE TABLE t(a INTEGER, b TEXT);'
    echo 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100000) INSERT INTO t SELECT i, hex(randomblob(50)) FROM n;'
} >inserts.sql
{
    echo 'CREATE TABLE t(a INTEGER, b TEXT);'
    for i in $(seq 100); do echo "INSERT INTO t VALUES($i, 'some text of a row');"; done
} >commits.sql
mkdir tree && for i in $(seq 3000); do echo "file $i" >"tree/$i"; done

# MICROS="CASE…" measures others.
read -ra micros <<<"${MICROS:-write-1B-null write-4K-file fwrite-16B fputc write-1B-4-threads read-4K-file pread-1B-file read-1B-pipe fread-4K-file fgets-40B-file getc-file open-close-file}"
macros=(start-up dd-4k dd-64k tar)
if command -v sqlite3 >/dev/null; then macros+=(sqlite-inserts sqlite-commits); else echo sqlite3 >>skipped; fi
for round in $(seq "$rounds"); do
    for tool in "${tools[@]}"; do
        for name in "${micros[@]}"; do micro "$name" "$tool" 400; done
        [ -z "${MICRO_ONLY:-}" ] || continue
        for name in "${macros[@]}"; do macro "$name" "$tool"; done
        for _ in 1 2 3 4; do macro start-up "$tool"; done
    done
    [ "$round" -le "$peer_rounds" ] || continue
    for tool in "${peers[@]}"; do
        micro write-1B-null "$tool" 20
        # A file, because some tools leave /dev/null out; library calls only for tools that see them.
        micro write-4K-file "$tool" 10
        case $tool in uftrace | lttng | dftracer) micro fwrite-16B "$tool" 20 && micro fputc "$tool" 20 ;; esac
        micro write-1B-4-threads "$tool" 10
        [ -z "${MICRO_ONLY:-}" ] || continue
        for name in dd-4k dd-64k; do macro "$name" "$tool"; done
    done
done

# Kind, heading of the value.
table() {
    awk -v kind="$1" -v tools="${tools[*]} ${peers[*]}" '
        function median(key, column,   n, i, j, t, v) {
            n = split(values[key, column], v, " ")
            for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] + 0 < v[j-1] + 0; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t }
            low = v[1]; high = v[n]
            return v[int((n + 1) / 2)]
        }
        $1 == kind {
            key = $2 SUBSEP $3
            if (!($2 in seen)) { seen[$2] = 1; order[++count] = $2 }
            values[key, 4] = values[key, 4] " " $4; values[key, 5] = values[key, 5] " " $5
            made[key] += $6; if ($7 != "-") calls[key] += $7; told[key] = $7; if ($8 != "-") drops[key] += $8; runs[key]++
        }
        END {
            n = split(tools, tool, " ")
            for (c = 1; c <= count; c++) {
                bare = median(order[c] SUBSEP "untraced", 4); bare_least = low
                for (t = 1; t <= n; t++) {
                    key = order[c] SUBSEP tool[t]
                    if (!(key in runs)) continue
                    value = median(key, 4); least = low; range = low "–" high; second = median(key, 5)
                    printf "| %s | %s | %.1f | %+.1f | %+.1f | %s | %s | %s | %s |\n", order[c], tool[t], value, value - bare, least - bare_least, range, second, \
                        (told[key] == "-" ? "–" : calls[key] / runs[key] (made[key] ? " of " made[key] / runs[key] : "")), (key in drops ? drops[key] : "–")
                }
            }
        }' results
}

echo "$(date -u +%F) $(uname -sr), $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1-3 /proc/loadavg), $rounds rounds"
echo
echo '| case | tool | ns a call, median | added | added, least of rounds | range over rounds | mean | recorded a run | drops in all |'
echo '|---|---|---|---|---|---|---|---|---|'
table micro
echo
echo '| case | tool | µs a run, median | added | added, least of rounds | range over rounds | peak memory, KB | recorded a run | drops in all |'
echo '|---|---|---|---|---|---|---|---|---|'
table macro
echo
sed 's/^/skipped: /' skipped
