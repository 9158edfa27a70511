//! Databases: what was written, and the server's descriptors and environment.

use std::fs;
use std::path::PathBuf;

use cawl_kit::{Dir, find, same, size, skipped, unchanged};
use nix::unistd::geteuid;

/// The folder of PostgreSQL's programs.
pub fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions.flatten().map(|entry| entry.path().join("bin")).find(|bin| bin.join("initdb").exists())
}

/// What is the same in any two databases of the same history: names of files, rows, the server's descriptors
/// and environment. Names that tell the time, and numbers of sockets and places of shared memory, are left
/// out.
const POSTGRES: &str = r#"
    PATH=BIN:$PATH; D=$PWD/db
    initdb -D $D --no-locale -E UTF8 -A trust > init.log 2>&1; echo initdb $?
    pg_ctl -D $D -w -l log -o "-k $PWD -c listen_addresses= -c fsync=on -c autovacuum=off" start > /dev/null; echo start $?
    pgbench -h $PWD -i -s 1 -q postgres > /dev/null 2>&1; echo fill $?
    pgbench -h $PWD -n -c 2 -t 50 --random-seed=7 postgres 2>&1 | sed '/latency\|tps\|initial connection/d'
    cat > look <<'END'
        # Descriptors of process $1 and what they lead to, but the tracer's, which is a socket far above; and its environment.
        ls -l /proc/$1/fd | sed -n 's/.* \([0-9]*\) -> \([^:]*\).*/\1 \2/p' | sort -n | awk '$1 < 900 || $2 != "socket"'
        tr -s '\0' '\n' < /proc/$1/environ | grep -v '^LD_PRELOAD=\|^CAWL_\|^PG_GRANDPARENT_PID=' | sort
END
    psql -h $PWD -tA postgres <<'END'
        select 'accounts', count(*), sum(abalance), md5(string_agg(aid || ' ' || abalance, ',' order by aid)) from pgbench_accounts;
        select 'tellers', md5(string_agg(tid || ' ' || tbalance, ',' order by tid)) from pgbench_tellers;
        select 'branches', sum(bbalance) from pgbench_branches;
        select 'history', count(*), md5(string_agg(tid || ' ' || aid || ' ' || delta, ',' order by tid, aid, delta)) from pgbench_history;
        select pg_relation_filepath('pgbench_accounts');
        \copy (select aid, abalance from pgbench_accounts order by aid) to 'copied'
        select pg_backend_pid() as pid \gset
        \setenv BACKEND :pid
        \! echo backend; sh look $BACKEND
END
    echo psql $?; echo server; sh look $(head -1 db/postmaster.pid)
    pg_ctl -D $D -w -m fast stop > /dev/null; echo stop $?
    find db -type f | grep -v '/pg_wal/\|/pg_stat\|_fsm$\|_vm$\|/pg_internal.init$' | sort > files
    pg_controldata -D $D | grep 'cluster state'
    rm -rf db log init.log
"#;

#[test]
fn postgresql() {
    let Some(bin) = postgres() else { return skipped("postgresql is not installed") };
    // PostgreSQL does not run as root: then everything here is someone else's.
    let dir = if geteuid().is_root() { Dir::of("postgres") } else { Some(Dir::new()) };
    let Some(dir) = dir else { return };
    let script = POSTGRES.replace("BIN", &bin.display().to_string());
    let (finished, report) = unchanged(&dir, |_| {}, &[], &["sh", "-c", &script], &[]);
    let finished = finished.success();
    assert_eq!(finished.stderr, "");
    for text in ["initdb 0\n", "100/100", "accounts|100000|", "psql 0\n", "stop 0\n", "shut down\n"] {
        assert!(finished.stdout.contains(text), "no {text} in {finished:#?}");
    }
    // Its inode may have been that of a file which is gone, whose bytes are in the same row.
    assert!(report.file_bytes("copied") >= size(&dir, "copied"), "{} bytes", report.file_bytes("copied"));
    assert!(report.bytes() > 10 << 20, "{} bytes", report.bytes());
    assert_eq!(report["drops"], 0);
}

#[test]
fn redis_with_an_append_only_file() {
    if find("redis-server").is_none() {
        return;
    }
    let script = "
        redis-server --port 0 --unixsocket $PWD/s --appendonly yes --appendfsync always --save '' --daemonize no \
            --dir $PWD --logfile log & server=$!
        until redis-cli -s s ping 2>/dev/null | grep -q PONG; do kill -0 $server || exit 9; done
        for n in 1 2 3 4 5 6 7 8 9; do redis-cli -s s set key$n value$n; done
        # The server's descriptors, but for sockets, as clients' are closed at some time. It writes its title
        # over its environment.
        ls -l /proc/$server/fd | sed -n 's/.* \\([0-9]*\\) -> \\([^:]*\\).*/\\1 \\2/p' | sort -n | grep -v ' socket$' > fds
        redis-cli -s s bgrewriteaof; redis-cli -s s get key3
        redis-cli -s s shutdown nosave; wait $server; echo ended $?; rm -rf log appendonlydir s";
    let dir = Dir::new();
    let (finished, report) = same(&dir, |_| {}, &["sh", "-c", script]);
    assert!(finished.success().stdout.ends_with("ended 0\n"));
    assert!(report.bytes() > 0);
}
