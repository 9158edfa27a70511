//! The compatibility matrix, first half: real programs, each run bare and under `cawl-cli run`.
//!
//! Where each program or treatment is tested. Output, exit status and files are compared by `same` and
//! `unchanged`; "all": every byte that the kernel counted was seen; "part": some of it cannot be, for the
//! reason given there. `tracer` is crates/cawl-preload/tests. The processes of `matrix_rough` and PostgreSQL's also
//! write down their own descriptors and environment, which are compared with the rest.
//!
//! | what | test | bytes |
//! |---|---|---|
//! | descriptors and environment | `descriptors_and_environment_are_the_same`, `what_programs_hand_on` | |
//! | bash, fds 3 to 9 and 255; dash | `transparency::bash_with_redirections_…`, `bash_on_descriptor_255`, `dash` | all |
//! | tar, cp -a, coreutils, gcc and ld | `transparency` | all |
//! | rsync | `rsync` | all |
//! | git commit and gc | `transparency::git_is_the_same`, `git_gc` | all |
//! | sqlite3, WAL and rollback | `sqlite_with_wal_and_with_rollback`, `languages::sqlite_is_the_same` | all; WAL's index is mapped |
//! | PostgreSQL initdb, pgbench | `postgresql`, with the server's descriptors and environment | 10 MiB at least, no drops |
//! | Redis with AOF | `redis_with_an_append_only_file`, with the server's descriptors | all |
//! | python: pools by fork, spawn, forkserver; subprocess | `python_in_many_processes`, `languages` | all (`languages`) |
//! | node streams | `node_streams`, `languages::node_is_the_same` | all |
//! | Java streams, channels, mappings | `java` | all of java's, and by file |
//! | musl under traced programs | `doctor::another_libc_started_by_traced_programs` | none, told |
//! | address, thread, leak and undefined behaviour sanitizers | `sanitizers` | all; the thread sanitizer's own calls are not seen |
//! | signals, limits, descriptors, umask, environment's order at the start | `inherited` | |
//! | Go, static programs: named as untraced | `a_go_program_…`, `the_doctor_knows_…` | |
//! | closefrom as openssh has it, close_range, all closed, dup2 over ours | `matrix_rough::all_descriptors_…`, tracer `processes` | all |
//! | jemalloc and tcmalloc | `matrix_rough::other_allocators` | all |
//! | double fork, vforks, 500 forks, 50 images by exec | `matrix_rough` | all |
//! | ulimit -n 16, setrlimit in mid-run | `matrix_rough::a_limit_of_sixteen_…` | all |
//! | seccomp, chroot, becoming someone else | `matrix_rough::a_filter_…`, `another_root`, `another_user` | part, told |
//! | a setuid program of an ordinary user: named as untraced | `doctor::a_setuid_program_…` | none, told |
//! | threads cancelled, SIGPROF at 10 kHz | `matrix_rough` | part, counted |
//! | 200 threads, a million files opened and closed | `matrix_rough` | all |
//! | _exit, abort, quick_exit with pending output | tracer `stdio::ends_without_a_flush_…` | all |
//! | dlopen with constructors, dlclose | `matrix_rough::libraries_that_come_and_go` | all |
//! | posix_spawn and exec with an empty environment | tracer `every`, `processes` | all |
//! | every hook, once | tracer `every` | all |
//! | a million calls: memory, leaks | tracer `memory`, `matrix_rough::the_tracers_memory_…`, `no_leak_by_valgrind`, `sanitizers` | |

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::util::{Dir, Running, find, python, same, same_but, size, skipped, unchanged};

fn empty(_: &Path) {}

fn lines(folder: &Path) {
    let text: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    fs::write(folder.join("in"), text).expect("a new file");
}

/// What a child sees of its parent's descriptors and environment.
#[test]
fn descriptors_and_environment_are_the_same() {
    let dir = Dir::new();
    let script = "exec 3<in 9>nine; ls -l /proc/self/fd | awk '{ print $9, $10, $11 }' | sed 's/:.*//; s,/proc/.*,,'; \
                  env | grep -v '^LD_PRELOAD=\\|^CAWL_' | sort";
    unchanged(&dir, lines, &["--no-children"], &["sh", "-c", script], &[]).0.success();
    // Traced itself, a child has one descriptor more: the tracer's, far away.
    let script = "exec 3<in 9>nine; for fd in /proc/$$/fd/*; do n=${fd##*/}; [ $n -ge 900 ] || echo $n; done";
    unchanged(&dir, lines, &[], &["dash", "-c", script], &[]).0.success();
}

/// Notes down the descriptors of whoever started it, but the tracer's, which is a socket far above, and its own
/// environment, which it has from there. Many learn from a pipe that a program was started; they are looked at when they
/// have closed it: as they wait for the child, which a kernel without /proc/PID/wchan does not tell (then it is believed
/// after a while), or say so. Threads of Java's own open and close files meanwhile, so which
/// number its end of a pipe gets is a matter of chance there.
const LOOK: &str = r#"
    case $2 in
        told) read -r go ;;
        waits) until case $doing in *wait*) true ;; *) false ;; esac; do
                   read -r doing < /proc/$PPID/wchan || doing=${doing:-none}
                   looks=$((looks + 1)); [ $looks -lt 200000 ] || doing=waits
               done ;;
    esac
    unset doing looks
    { echo "$1"; ls -l /proc/$PPID/fd | sed -n 's/.* \([0-9]*\) -> \([^:]*\).*/\1 \2/p' | sort -n | awk -v of="$1" '$1 < 900 || $2 != "socket" { if (of == "java" && $1 > 2) $1 = "-"; print }'
      env | grep -v '^LD_PRELOAD=\|^CAWL_\|^_=' | sort; } >> seen
"#;

/// Programs that can be told to start another one: they show it the same descriptors and environment, traced or not.
#[test]
fn what_programs_hand_on() {
    let java = "public class L { public static void main(String[] a) throws Exception {
        var p = new ProcessBuilder(\"sh\", \"look\", \"java\", \"told\").redirectOutput(ProcessBuilder.Redirect.INHERIT)
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        p.getOutputStream().write(10); p.getOutputStream().flush(); System.exit(p.waitFor()); } }";
    let prepare = |folder: &Path| {
        lines(folder);
        fs::write(folder.join("look"), LOOK).expect("a new file");
        fs::write(folder.join("rsh"), "sh look rsync; shift; exec \"$@\"").expect("a new file");
        fs::write(folder.join("wrap"), "sh look gcc; exec \"$@\"").expect("a new file");
        fs::write(folder.join("Makefile"), "all:\n\t@sh look make\n").expect("a new file");
        fs::write(folder.join("a.c"), "int main(void) { return 0; }\n").expect("a new file");
        fs::write(folder.join("L.java"), java).expect("a new file");
    };
    let python = python().map(|path| path.display().to_string()).unwrap_or_default();
    let python =
        format!("{python} -I -c \"import os; os.spawnlp(os.P_WAIT, 'sh', 'sh', 'look', 'python', 'waits')\"");
    let cases = [
        ("tar", "tar -cf out --mtime=@0 --checkpoint=1 --checkpoint-action=exec='sh look tar waits' in"),
        ("rsync", "rsync -e 'sh rsh' in host:$PWD/out"),
        ("git", "git -c alias.look='!sh look git waits' look"),
        (
            "sqlite3",
            "sqlite3 -batch db 'create table t(a);' '.shell sh look sqlite3 waits' 'insert into t values(1);'",
        ),
        ("python3", &python),
        (
            "perl",
            "perl -e 'open(F, \">out\"); print F 1; system(\"sh\", \"look\", \"perl\", \"waits\") == 0 or die'",
        ),
        (
            "node",
            "node -e 'const c = require(\"child_process\").spawn(\"sh\", [\"look\", \"node\", \"told\"], {stdio: [\"pipe\", 1, 2]}); \
             c.on(\"spawn\", () => c.stdin.write(\"\\n\"))'",
        ),
        ("javac", "java -Xshare:off -XX:-UsePerfData L.java"),
        ("gcc", "gcc -c -wrapper sh,wrap a.c -o out"),
        ("make", "make -s"),
        ("awk", "awk 'BEGIN { print 1 > \"out\"; exit system(\"sh look awk waits\") }'"),
        ("find", "find in -exec sh look find waits ';'"),
        ("xargs", "echo xargs waits | xargs sh look"),
        ("split", "split -n 2 --filter='cat > out; sh look split' in"),
        ("timeout", "timeout 60 sh look timeout"),
        ("bash", "exec 7> out; sh look bash waits; echo seven >&7"),
    ];
    for (program, script) in cases {
        if find(program).is_none() {
            skipped(&format!("{program} is not installed"));
            continue;
        }
        let dir = Dir::new();
        // What is compared with the untraced run is the file `seen`.
        let shell = if program == "bash" { "bash" } else { "sh" };
        let (finished, _) = unchanged(&dir, prepare, &[], &[shell, "-c", script], &[]);
        finished.success();
        let seen = fs::read_to_string(dir.work().join("seen")).expect("somebody looked");
        assert!(seen.contains("\n0 ") && seen.contains("PATH="), "{program}: {seen}");
    }
}

#[test]
fn dash() {
    if find("dash").is_none() {
        return;
    }
    let dir = Dir::new();
    let script = "exec 3>three 4>>four; echo 3 >&3; (echo 4 >&4); while read -r line; do echo \"$line\"; done < in > out; \
                  cat <<E >&4\nhere\nE\nset -- *; echo $#; trap 'echo bye' EXIT; exit 3";
    same(&dir, lines, &["dash", "-c", script]).0.code(3);
}

#[test]
fn bash_on_descriptor_255() {
    if find("bash").is_none() {
        return;
    }
    // A script's own text is on 255.
    let script = |folder: &Path| {
        fs::write(
            folder.join("script"),
            "ls -l /proc/$$/fd/255 >/dev/null && echo here\nexec 200>two\necho 200 >&200\n",
        )
        .expect("a new file");
    };
    let dir = Dir::new();
    same(&dir, script, &["bash", "script"]).0.success();
}

#[test]
fn rsync() {
    if find("rsync").is_none() {
        return;
    }
    let dir = Dir::new();
    let script = "mkdir from && cp in from/a && rsync -a --checksum from/ to && echo more >> from/a && \
                  rsync -a --inplace --no-whole-file from/ to && cmp from/a to/a && rm -r from";
    same(&dir, lines, &["sh", "-ec", script]).0.success();
}

#[test]
fn git_gc() {
    if find("git").is_none() {
        return;
    }
    let script = "
        export GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000' GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
        git init --quiet .; git config user.name n; git config user.email n@example.org
        git config pack.threads 1
        for n in 1 2 3 4; do echo $n >> in; git add in; git commit --quiet -m $n; done
        git gc --quiet --prune=now; git fsck; git log --format=%H; git count-objects | cut -d, -f1
        rm -rf .git";
    let dir = Dir::new();
    same(&dir, lines, &["sh", "-ec", script]).0.success();
}

#[test]
fn sqlite_with_wal_and_with_rollback() {
    if find("sqlite3").is_none() {
        return;
    }
    for mode in ["wal", "delete", "truncate"] {
        let dir = Dir::new();
        let sql = format!(
            "pragma journal_mode={mode}; create table t(a, b); \
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) \
             insert into t select i, hex(i) from n; update t set b = b || 'x' where a % 7 = 0; \
             delete from t where a % 3 = 0; vacuum; select count(*), sum(length(b)) from t; pragma integrity_check;"
        );
        same(&dir, empty, &["sqlite3", "-batch", "db", &sql]).0.success();
    }
}

/// The folder of PostgreSQL's programs.
pub fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions.flatten().map(|entry| entry.path().join("bin")).find(|bin| bin.join("initdb").exists())
}

/// What is the same in any two databases of the same history: names of files, rows, the server's descriptors and
/// environment. Names that tell the time, and numbers of sockets and places of shared memory, are left out.
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
    let (finished, report) = unchanged(&dir, empty, &[], &["sh", "-c", &script], &[]);
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
    let (finished, report) = same(&dir, empty, &["sh", "-c", script]);
    assert!(finished.success().stdout.ends_with("ended 0\n"));
    assert!(report.bytes() > 0);
}

#[test]
fn python_in_many_processes() {
    let Some(python) = python() else { return };
    let python = python.to_str().expect("a readable path");
    for method in ["fork", "spawn", "forkserver"] {
        let dir = Dir::new();
        let program = format!(
            "import multiprocessing as m, os
def work(n):
    with open(f'out{{n}}', 'w') as f: f.write('x' * n * 1000)
    return n
if __name__ == '__main__':
    m.set_start_method('{method}')
    with m.Pool(3) as pool: print(sorted(pool.map(work, range(12))))
"
        );
        let prepare = |folder: &Path| fs::write(folder.join("work.py"), &program).expect("a new file");
        unchanged(&dir, prepare, &[], &[python, "-I", "-B", "work.py"], &[]).0.success();
    }
    let dir = Dir::new();
    let program = "
import subprocess, os, sys
for close in (True, False):
    print(subprocess.run(['sh', '-c', 'echo a child; echo more > child; exit 4'], close_fds=close, capture_output=True))
r, w = os.pipe()
p = subprocess.Popen(['sh', '-c', f'echo passed >&{w}'], pass_fds=[w]); p.wait(); os.close(w)
print(os.read(r, 100), os.listdir('/proc/self/fd')[:3])
subprocess.run(['sh', '-c', 'echo bare > bare'], env={}, check=True)
os.closerange(3, 1 << 16)
open('after', 'w').write('after all were closed')
";
    same(&dir, empty, &[python, "-I", "-c", program]).0.success();
}

#[test]
fn node_streams() {
    if find("node").is_none() {
        return;
    }
    let dir = Dir::new();
    let program = "
        const fs = require('fs');
        const out = fs.createWriteStream('stream');
        for (let n = 0; n < 5000; n++) out.write(`line ${n}\\n`);
        out.end(() => { fs.writeFileSync('sync', 'x'.repeat(100000)); fs.appendFileSync('sync', 'y');
            fs.createReadStream('stream').pipe(fs.createWriteStream('copy')).on('finish', () => console.log('done')); });
        fs.promises.writeFile('promised', Buffer.alloc(70000, 1));";
    let (finished, report) = unchanged(&dir, empty, &[], &["node", "-e", program], &[]);
    finished.success();
    assert_eq!(report.file_bytes("sync"), 100_001);
}

#[test]
fn java() {
    let (Some(_), Some(_)) = (find("java"), find("javac")) else { return };
    let dir = Dir::new();
    let source = |folder: &Path| {
        let text = "import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*;
            public class W { public static void main(String[] a) throws Exception {
              try (FileOutputStream f = new FileOutputStream(\"stream\")) { for (int n = 0; n < 500; n++) f.write(new byte[100]); }
              try (FileChannel c = FileChannel.open(Path.of(\"channel\"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                c.write(ByteBuffer.allocateDirect(5000)); c.write(ByteBuffer.allocate(300), 9000); c.force(true); }
              try (RandomAccessFile f = new RandomAccessFile(\"mapped\", \"rw\")) {
                MappedByteBuffer m = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 65536);
                for (int n = 0; n < 65536; n++) m.put(n, (byte) n); m.force(); }
              System.out.println(\"done\"); } }";
        fs::write(folder.join("W.java"), text).expect("a new file");
    };
    let script = "javac -d . W.java && java -Xshare:off -XX:-UsePerfData W && rm W.class";
    let (finished, report) = unchanged(&dir, source, &[], &["sh", "-c", script], &[]);
    finished.success();
    let of_java =
        |session: &&serde_json::Value| session["program"].as_str().is_some_and(|name| name == "java");
    let sessions: Vec<_> = report.sessions().iter().filter(of_java).collect();
    assert!(
        !sessions.is_empty() && sessions.iter().all(|one| one["wchar_bytes"] == one["seen_bytes"]),
        "{sessions:#?}"
    );
    assert_eq!((report.file_bytes("stream"), report.file_bytes("channel")), (50_000, 5300));
}

#[test]
fn a_go_program_is_named_as_not_traced() {
    if find("go").is_none() {
        return;
    }
    let dir = Dir::new();
    let source = dir.path().join("main.go");
    let text = "package main\nimport \"os\"\nfunc main() { f, _ := os.Create(\"out\"); f.WriteString(\"by go\\n\"); f.Close() }\n";
    fs::write(&source, text).expect("a new file");
    let program = dir.path().join("by-go");
    let mut build = dir.command("go");
    build.env("CGO_ENABLED", "0").env("GO111MODULE", "off").args(["build", "-o"]).args([&program, &source]);
    Running::start(build).finish().success();
    let name = program.to_str().expect("a readable path");
    for command in [vec![name], vec!["sh", "-c", &format!("{name}; true")]] {
        let (finished, report) = unchanged(&dir, empty, &[], &command, &[]);
        finished.success();
        let notes = report["notes"].to_string();
        assert!(notes.contains("is a Go program") && notes.contains(name), "{notes}");
        fs::remove_file(dir.work().join("out")).expect("it was written");
    }
    let mut doctor = dir.cawl(&["doctor", "--json"]);
    doctor.arg(&program);
    assert!(Running::start(doctor).finish().code(1).stdout.contains("is a Go program"));
}

#[test]
fn the_doctor_knows_static_and_missing_programs() {
    let dir = Dir::new();
    let source = dir.path().join("main.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("a new file");
    for (flags, code, word) in [
        (&["-static"][..], 1, "statically linked"),
        (&["-static-pie"], 1, "statically linked"),
        (&[], 0, "will be traced"),
    ] {
        let program = dir.path().join("program");
        let mut compile = dir.command("cc");
        compile.args(flags).arg("-o").args([&program, &source]);
        if !Running::start(compile).finish().status.success() {
            skipped(&format!("this compiler cannot do {flags:?}"));
            continue;
        }
        let mut doctor = dir.cawl(&["doctor"]);
        doctor.arg(&program);
        let finished = Running::start(doctor).finish().code(code);
        assert!(finished.stdout.contains(word), "{finished:#?}");
    }
    Running::start(dir.cawl(&["doctor", "nonexistent-program"])).finish().code(127);
    Running::start(dir.cawl(&["doctor"])).finish().code(0);
}

#[test]
fn copies_and_pipes() {
    let dir = Dir::new();
    let script = "cp -a in copy && tar --mtime=@0 -cf - in copy | tee archive | md5sum && sort in | uniq | head -1; rm archive";
    unchanged(&dir, lines, &[], &["sh", "-c", script], &["copy"]);
    let dir = Dir::new();
    same_but(&dir, lines, &["sh", "-c", "cp -a in copy; sed -i s/line/row/ copy; tail -1 copy"], &[])
        .0
        .success();
}
