#!/usr/bin/env bash
# Errors of `run` for real programs: each program ROUNDS times in turn, with one profile made before the first
# (nothing is saved).
# Usage: bench/real.sh [ROUNDS] [PROGRAM…]    Tables go to stdout; 3 rounds of all installed programs.
# tar-small and sqlite-small run only if they are named: small ones, to keep their traces.
# WHAT=writers|readers|names|others: programs that write; programs that read, each warm (its files are in the page cache)
# and cold (they are dropped from it; names and inodes stay); programs that make, rename, cut off and remove files
# or store through mappings (bench/names.py); others: benchmarks, stores and archivers on which no law grew.
# bench/names.sh runs the last two on two filesystems.
# CAWL_CLI=FILE: measure this cawl-cli instead of building one. ON=DIR: write here (default: a folder under
# /var/tmp).
# PROFILE=quick|first: made by `calibrate --quick`, or by the first meeting of a `run`. KEEP=DIR: keep traces,
# reports and the profile there. VIA=kernel: by probes in the kernel. Nothing else should run at the same time.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
shift || true
[ -n "${CAWL_CLI:-}" ] || cargo build --release -q -p cawl-cli
cawl=$(realpath "${CAWL_CLI:-target/release/cawl-cli}")
table=$PWD/bench/real.py
names=$PWD/bench/names.py
sources=$PWD
work=$(mktemp -d "${ON:-/var/tmp}/cawl-real-XXXXXX")
trap 'rm -rf "$work"' EXIT
keep=${KEEP:-$work/kept}
mkdir -p "$keep" "$work/data" "$work/ready"
keep=$(realpath "$keep")
export XDG_DATA_HOME=$keep/data LC_ALL=C
cd "$work"

pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1 || true)
# Only installed programs, in the order of the table.
declare -A needs=(
    [tar]=tar [rsync]=rsync [cp]=cp [git]=git [sqlite-bulk]=sqlite3 [sqlite-commits]=sqlite3 [sqlite-wal]=sqlite3
    [redis]=redis-server [pgbench]="$pg/pgbench" [mariadb]=mariadbd [cargo]=cargo
    [cat]=cat [cp-r]=cp [tar-c]=tar [sqlite-index]=sqlite3 [sqlite-scan]=sqlite3 [pgbench-S]="$pg/pgbench"
    [rm]=rm [checkout]=git [clean]=cargo [tar-over]=tar
    [sysbench-seq]=sysbench [sysbench-random]=sysbench [sysbench-mixed]=sysbench [bonnie]=bonnie++ [dbench]=dbench
    [postmark]=postmark [fs-mark]=fs_mark [tokyo]=tcbtest [kyoto]=kctreetest [rocksdb]=db_bench
    [rocksdb-sync]=db_bench [stress]=stress-ng [7z]=7z [squashfs]=mksquashfs [borg]=borg [mdb-load]=mdb_load
    [tar-small]=tar [sqlite-small]=sqlite3 [git-log]=git [git-status]=git [fio-seq]=fio [fio-random]=fio [fio-over]=fio
)
readers=(cat cp-r tar-c sqlite-index sqlite-scan pgbench-S git-log git-status)
case ${WHAT:-writers} in
    writers) all=(dd-1g dd-1m dd-4k dd-dsync tar rsync cp git sqlite-bulk sqlite-commits sqlite-wal redis pgbench mariadb cargo
        fio-seq fio-random fio-over) ;;
    readers) all=("${readers[@]/%/-cold}" "${readers[@]/%/-warm}") ;;
    names) all=(rm checkout clean maildir tar-over churn again move lmdb mapped cp) ;;
    others) all=(sysbench-seq sysbench-random sysbench-mixed bonnie dbench postmark fs-mark tokyo kyoto rocksdb
        rocksdb-sync stress 7z squashfs borg mdb-load) ;;
esac
[ $# = 0 ] || all+=(tar-small sqlite-small)
programs=()
for name in "${all[@]}"; do
    kind=${name%-cold} && kind=${kind%-warm}
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* && " $* " != *" $kind "* ]]; then continue; fi
    if command -v "${needs[$kind]:-dd}" >/dev/null; then programs+=("$name"); else echo "skipped: $name (not installed)"; fi
done

# A user for servers that refuse to run as root.
as() { if [ "$(id -u)" = 0 ]; then echo "setpriv --reuid $1 --regid $1 --clear-groups"; fi; }

# The files that a program needs; made once, before the measurement.
prepare() {
    case $1 in
        tar | rsync | git | cp-r-* | tar-c-* | 7z | squashfs | borg)
            [ -d ready/tree ] || {
                mkdir -p ready/tree
                # Ten thousand small files of known sizes.
                (cd ready/tree && for d in $(seq 100); do
                    mkdir "$d"
                    for f in $(seq 100); do head -c $((f * f * 4)) /dev/urandom >"$d/$f"; done
                done)
                tar cf ready/tree.tar -C ready tree
            } ;;&
        git)
            [ -d ready/git ] || {
                git init -q ready/git 2>/dev/null
                cp -r ready/tree ready/git/
                git -C ready/git add . && git -C ready/git -c user.name=n -c user.email=e commit -qm files
            } ;;
        mdb-load)
            { printf 'VERSION=3\nformat=print\ntype=btree\nmapsize=1073741824\nHEADER=END\n'
              for i in $(seq 100000 149999); do printf ' key%s\n %0200d\n' $i $i; done
              echo DATA=END; } >ready/dump ;;
        rm | tar-over)
            [ -d ready/files ] || {
                mkdir ready/files && python3 "$names" tree ready/files 200 100 && tar cf ready/files.tar -C ready files
            } ;;
        checkout)
            [ -d ready/two ] || {
                git init -q ready/two 2>/dev/null
                for tree in 1 2; do
                    python3 "$names" tree ready/two 100 100
                    git -C ready/two add . && git -C ready/two -c user.name=n -c user.email=e commit -qm files
                    git -C ready/two branch "tree-$tree"
                done
            } ;;
        clean)
            [ -d ready/target ] || cargo build -q --offline --manifest-path "$sources/Cargo.toml" -p cawl-wire --target-dir ready/target ;;
        tar-small)
            mkdir -p ready/small
            for f in $(seq 300); do head -c $((f * f / 4)) /dev/urandom >ready/small/$f; done
            tar cf ready/small.tar -C ready small ;;
        sqlite-small)
            { echo 'CREATE TABLE t(a INTEGER, b TEXT);'; for i in $(seq 100); do echo "INSERT INTO t VALUES($i, 'some text of a row');"; done; } >ready/small.sql ;;
        cp | cat-*) [ -e ready/big ] || head -c 1G /dev/zero >ready/big ;;
        sqlite-bulk)
            echo 'PRAGMA synchronous=NORMAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<400000) INSERT INTO t SELECT i, hex(randomblob(50)) FROM n;' >ready/bulk.sql ;;
        sqlite-commits)
            { echo 'CREATE TABLE t(a INTEGER, b TEXT);'; for i in $(seq 1500); do echo "INSERT INTO t VALUES($i, 'some text of a row');"; done; } >ready/commits.sql ;;
        sqlite-wal)
            { echo 'PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER, b TEXT);'
              for i in $(seq 2500); do echo "INSERT INTO t VALUES($i, hex(randomblob(400)));"; done; } >ready/wal.sql ;;
        sqlite-index* | sqlite-scan*)
            # 200 MB with its index.
            [ -f ready/table.db ] || sqlite3 ready/table.db 'CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c INTEGER);
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<800000)
                INSERT INTO t SELECT i, hex(randomblob(110)), abs(random()) % 1000000000 FROM n; CREATE INDEX i ON t(c);'
            for i in $(seq 3000); do echo "SELECT b FROM t WHERE c >= $((RANDOM * 32768 % 1000000000 + RANDOM)) ORDER BY c LIMIT 3;"; done >ready/index.sql ;;
        git-log* | git-status*)
            [ -d ready/source ] || git clone -q --no-local "$sources" ready/source ;;
        pgbench*)
            [ -d ready/pg ] || {
                mkdir ready/pg && chmod 755 "$work" ready && { [ "$(id -u)" != 0 ] || chown postgres ready/pg; }
                $(as postgres) "$pg/initdb" -A trust -U postgres -D "$work/ready/pg" >/dev/null
                echo "unix_socket_directories = '$work/ready/pg'
listen_addresses = ''" >>ready/pg/postgresql.conf
                $(as postgres) "$pg/pg_ctl" -D "$work/ready/pg" -w -l "$work/ready/pg/log" start >/dev/null
                "$pg/pgbench" -h "$work/ready/pg" -U postgres -i -s 5 postgres >/dev/null 2>&1
                $(as postgres) "$pg/pg_ctl" -D "$work/ready/pg" -w stop >/dev/null
            } ;;
        mariadb)
            [ -d ready/maria ] || {
                mkdir ready/maria && chmod 755 "$work" ready && { [ "$(id -u)" != 0 ] || chown mysql ready/maria; }
                mariadb-install-db --user=mysql --datadir="$work/ready/maria" --auth-root-authentication-method=normal >/dev/null 2>&1
            } ;;
    esac
}

# The program's command, in `command`, where it runs, in `here`, and a clean folder for it.
clean() {
    here=.
    # What was made of many files stays until the end: an ext4 without a journal passes over each inode that was
    # deleted within the last minutes when it looks for a free one.
    [ ! -d out ] || [ "$(find out -type f | wc -l)" -lt 100 ] || mv out "$(mktemp -u kept-XXXXXX)"
    rm -rf out && mkdir out
    case $1 in
        dd-1g) command=(dd if=/dev/zero of=out/file bs=1M count=1024 conv=fsync) ;;
        dd-1m) command=(dd if=/dev/zero of=out/file bs=1M count=1024) ;;
        dd-4k) command=(dd if=/dev/zero of=out/file bs=4k count=262144) ;;
        dd-dsync) command=(dd if=/dev/zero of=out/file bs=64k count=2000 oflag=dsync) ;;
        tar) command=(tar xf ready/tree.tar -C out) ;;
        tar-small) command=(tar xf ready/small.tar -C out) ;;
        sqlite-small) command=(sqlite3 out/db ".read ready/small.sql") ;;
        rsync) command=(rsync -a ready/tree/ out/tree/) ;;
        cp) command=(cp ready/big out/big) ;;
        cat-*) command=(cat ready/big) data=(ready/big) ;;
        cp-r-*) command=(cp -r ready/tree out/tree) data=(ready/tree) ;;
        tar-c-*) command=(tar cf out/tar -C ready tree) data=(ready/tree) ;;
        sqlite-index-*) command=(sqlite3 ready/table.db ".read ready/index.sql") data=(ready/table.db) ;;
        sqlite-scan-*) command=(sqlite3 ready/table.db "SELECT sum(length(b)) FROM t") data=(ready/table.db) ;;
        pgbench-S-*) data=(ready/pg)
            command=(bash -c "$(as postgres) '$pg/pg_ctl' -D '$work/ready/pg' -w -l '$work/ready/pg/log' start >/dev/null
            '$pg/pgbench' -S -n -h '$work/ready/pg' -U postgres -c 2 -T 5 postgres >/dev/null 2>&1
            $(as postgres) '$pg/pg_ctl' -D '$work/ready/pg' -w stop >/dev/null") ;;
        git-log-*) command=(git -C ready/source log -p -n 400) data=(ready/source) ;;
        git-status-*) command=(git -C ready/source status) data=(ready/source) ;;
        git) command=(git clone -q --no-local ready/git out/git) ;;
        sqlite-bulk) command=(sqlite3 out/db ".read ready/bulk.sql") ;;
        sqlite-commits) command=(sqlite3 out/db ".read ready/commits.sql") ;;
        sqlite-wal) command=(sqlite3 out/db ".read ready/wal.sql") ;;
        redis) command=(bash -c 'redis-server --port 0 --unixsocket "$PWD/out/sock" --dir "$PWD/out" --appendonly yes --appendfsync everysec --save "" >out/log &
            until redis-cli -s out/sock ping >/dev/null 2>&1; do :; done
            redis-benchmark -s out/sock -q -n 200000 -r 100000 -d 200 -t set >/dev/null
            redis-cli -s out/sock shutdown nosave; wait') ;;
        pgbench) command=(bash -c "$(as postgres) '$pg/pg_ctl' -D '$work/ready/pg' -w -l '$work/ready/pg/log' start >/dev/null
            '$pg/pgbench' -n -h '$work/ready/pg' -U postgres -c 2 -T 8 postgres >/dev/null 2>&1
            $(as postgres) '$pg/pg_ctl' -D '$work/ready/pg' -w stop >/dev/null") ;;
        mariadb)
            { echo 'DROP DATABASE IF EXISTS b; CREATE DATABASE b; USE b; CREATE TABLE t(a INT PRIMARY KEY, b TEXT);'
              for i in $(seq 1500); do echo "INSERT INTO t VALUES($i, REPEAT('x', 200));"; done; } >out/sql
            command=(bash -c "mariadbd --no-defaults --user=mysql --datadir='$work/ready/maria' --socket='$work/ready/maria/sock' --skip-networking >out/log 2>&1 &
            until mariadb-admin --no-defaults -u root -S '$work/ready/maria/sock' ping >/dev/null 2>&1; do :; done
            mariadb --no-defaults -u root -S '$work/ready/maria/sock' <out/sql
            mariadb-admin --no-defaults -u root -S '$work/ready/maria/sock' shutdown; wait") ;;
        fio-seq) command=(fio --name=seq --filename=out/file --rw=write --bs=64k --size=512m --ioengine=psync --end_fsync=1) ;;
        fio-random) command=(fio --name=random --filename=out/file --rw=randwrite --bs=4k --size=128m --ioengine=psync) ;;
        fio-over)
            head -c 64M /dev/zero >out/file
            command=(fio --name=over --filename=out/file --rw=randwrite --bs=4k --size=64m --io_size=32m --ioengine=psync --fdatasync=32) ;;
        rm) cp -r ready/files out/files && command=(rm -rf out/files) ;;
        checkout) other=$([ "${other:-1}" = 1 ] && echo 2 || echo 1) && git -C ready/two checkout -q "tree-$((3 - other))" &&
            command=(git -C ready/two checkout -q "tree-$other") ;;
        clean) cp -r ready/target out/target && command=(cargo clean -q --manifest-path "$sources/Cargo.toml" --target-dir out/target) ;;
        tar-over) tar xf ready/files.tar -C out && command=(tar xf ready/files.tar -C out) ;;
        maildir | churn | again | move | lmdb | mapped) command=(python3 "$names" "$1" out) ;;
        sysbench-seq) command=(sysbench fileio --file-num=4 --file-total-size=512M prepare) here=out ;;
        sysbench-random | sysbench-mixed)
            local mode=(--file-test-mode=rndwr --events=8000)
            [ "$1" = sysbench-random ] || mode=(--file-test-mode=rndrw --threads=2 --file-fsync-all=on --events=4000)
            (cd out && sysbench fileio --file-num=16 --file-total-size=256M prepare >/dev/null)
            command=(sysbench fileio --file-num=16 --file-total-size=256M "${mode[@]}" --time=0 --rand-seed=1 run) here=out ;;
        bonnie) command=(bonnie++ -d out -s 256 -r 128 -n 1 -f -q -u root) ;;
        dbench) command=(dbench -D out -t 3 1) ;;
        postmark)
            printf 'set location out\nset number 500\nset transactions 2000\nset size 500 20000\nset seed 7\nrun\nquit\n' >ready/postmark
            command=(bash -c 'postmark <ready/postmark') ;;
        fs-mark) command=(fs_mark -d out -n 300 -s 16384 -S 1 -t 1 -l out/log) ;;
        tokyo) command=(tcbtest write out/casket 300000) ;;
        kyoto) command=(kctreetest order -rnd out/casket.kct 200000) ;;
        rocksdb) command=(db_bench --db=out --benchmarks=fillrandom,compact --num=200000 --seed=1) ;;
        rocksdb-sync) command=(db_bench --db=out --benchmarks=fillsync --num=1500 --seed=1) ;;
        stress) command=(stress-ng --hdd 1 --hdd-ops 8000 --hdd-bytes 256M --temp-path out) ;;
        7z) command=(7z a -mx0 out/tree.7z ready/tree) ;;
        squashfs) command=(mksquashfs ready/tree out/image -noD -noF -noI -quiet -no-progress) ;;
        borg)
            export BORG_BASE_DIR=$work/ready/borg BORG_RELOCATED_REPO_ACCESS_IS_OK=yes BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes
            rm -rf ready/borg && borg init -e none out/archive 2>/dev/null
            command=(borg create --compression none out/archive::1 ready/tree) ;;
        mdb-load) command=(mdb_load -f ready/dump -n out/db) ;;
        cargo) command=(cargo build -q --offline --manifest-path "$sources/Cargo.toml" -p cawl-wire --target-dir out/target) ;;
    esac
    sync -f .
}

# Has files in the page cache, or drops them from it: after sync, so that their pages are clean.
cache() {
    find "${@:2}" -type f -print0 | python3 -c '
import os, sys
for name in sys.stdin.buffer.read().split(b"\0")[:-1]:
    file = os.open(name, os.O_RDONLY)
    if sys.argv[1] == "cold":
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    else:
        while os.read(file, 1 << 20):
            pass
    os.close(file)' "$1"
}

if [ "${PROFILE:-quick}" = quick ]; then
    "$cawl" calibrate --quick . >"$keep/calibrate.txt" 2>&1
fi
for name in "${programs[@]}"; do prepare "$name"; done
for round in $(seq "$rounds"); do
    for name in "${programs[@]}"; do
        clean "$name"
        # Files that are read are in the page cache, as in usual operation.
        case $name in
            tar) cat ready/tree.tar >/dev/null ;;
            tar-small) cat ready/small.tar >/dev/null ;;
            cp) cat ready/big >/dev/null ;;
            *-cold) cache cold "${data[@]}" ;;
            *-warm) cache warm "${data[@]}" ;;
        esac
        trace=()
        [ -z "${KEEP:-}" ] || trace=(--trace "$keep/$name-$round.cawl")
        [ ! -e "$keep/$name-$round.cawl" ] || rm "$keep/$name-$round.cawl"
        (cd "$here" && "$cawl" run --via "${VIA:-auto}" --no-save "${trace[@]}" --report "$keep/$name-$round.json" -- "${command[@]}" >/dev/null 2>>"$keep/log") ||
            echo "failed: $name, round $round"
    done
done
echo "$(date -u +%F) $(uname -sr), $(nproc) × $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1-3 /proc/loadavg), $rounds rounds, profile ${PROFILE:-quick}"
# What of a run's errors is the goal, and what is still within the limits.
case ${WHAT:-writers} in
    writers) goals=(5 10 15 12 30) ;;
    readers) goals=(8 10 20 8 20) ;;
    names | others) goals=(8 10 20 8 20) ;;
esac
python3 "$table" "$keep" "${goals[@]}" "${programs[@]}"
