//! Language runtimes and compiled programs: each has a way of its own to write, and none may notice the
//! tracer or escape it.

use std::fs;
use std::path::Path;

use cawl_kit::{Dir, Report, python, same, size};

use super::{PLAIN, Program, Run::*, Seen};

/// Prints, buffered and unbuffered files, and the os module.
const PYTHON_FILES: &str = r#"
import os, sys
left_open = open("buffered", "w")
for n in range(20000):
    left_open.write(f"line {n}\n")
with open("binary", "wb", buffering=0) as file:
    for n in range(100):
        file.write(bytes([n]) * 777)
with open("append", "a+") as file:
    file.write("end\n"); file.seek(0); file.write("still the end\n"); file.truncate()
fd = os.open("raw", os.O_WRONLY | os.O_CREAT)
os.write(fd, b"0123456789")
os.pwrite(fd, b"abc", 100)
os.writev(fd, [b"one", b"two", b"three"])
os.lseek(fd, 50, os.SEEK_SET)
os.write(fd, b"fifty")
other = os.dup(fd)
os.write(other, b"dup")
os.ftruncate(fd, 120)
os.fsync(fd); os.fdatasync(other)
source = os.open("script.py", os.O_RDONLY)
os.sendfile(fd, source, 0, 300)
for n in range(5):
    print("out", n)
    print("err", n, file=sys.stderr)
"#;

/// subprocess closes every descriptor that it does not know, the tracer's among them.
const PYTHON_PROGRAMS: &str = r#"
import os, subprocess
subprocess.run(["sh", "-c", "echo $0 > sh; exit 0", "argument"], check=True)
subprocess.run("printf %1000d 1 > printf", shell=True, check=True, close_fds=False)
with open("by-child", "w") as file:
    subprocess.run(["echo", "through a descriptor"], stdout=file, check=True)
    file.write("and by the parent\n")
done = subprocess.run(["sort"], input=b"b\na\n", stdout=subprocess.PIPE, env={}, check=True)
open("sorted", "wb").write(done.stdout)
subprocess.run(["sh", "-c", "echo clean > clean"], env={"PATH": os.environ["PATH"]}, check=True)
os.system("echo system > system")
with os.popen("cat > popen", "w") as pipe:
    pipe.write("popen\n")
if os.fork() == 0:
    os.closerange(3, 5000)
    fd = os.open("closed", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"after closing everything\n")
    os._exit(0)
os.wait()
r, w = os.pipe()
subprocess.Popen(["sh", "-c", f"echo passed >&{w}"], pass_fds=[w]).wait(); os.close(w)
print(os.read(r, 100), flush=True)
os.execvp("sh", ["sh", "-c", "echo last > last"])
"#;

const PYTHON_POOLS: &str = r#"
import multiprocessing
def work(n):
    with open(f"part{n}", "w") as file:
        file.write(f"{n}\n" * 5000)
    return n * n
if __name__ == "__main__":
    for method in ["fork", "spawn", "forkserver"]:
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, sum(pool.map(work, range(12), chunksize=2)))
            pool.close()
            pool.join()
"#;

const PERL: &str = r#"
        open(my $out, '>', 'out') or die; print $out "line $_\n" for 1 .. 5000;
        open(my $raw, '+>', 'raw') or die; syswrite($raw, 'x' x 10000); sysseek($raw, 5, 0); syswrite($raw, 'y');
        open(my $add, '>>', 'out') or die; close($out); print $add "added\n"; close($add);
        system('echo system > system'); my $told = `echo told`; print $told;
        if (!fork()) { open(my $f, '>', 'child'); print $f 'child'; exit(0) } wait();
        print STDERR "err\n"; exit 4;
    "#;

const NODE: &str = r#"
        const fs = require('fs');
        fs.writeFileSync('sync', 'x'.repeat(300000));
        fs.appendFileSync('sync', 'appended');
        const fd = fs.openSync('at', 'w');
        fs.writeSync(fd, 'placed', 100); fs.fsyncSync(fd); fs.closeSync(fd);
        const stream = fs.createWriteStream('stream');
        for (let n = 0; n < 1000; n++) stream.write(`line ${n}\n`);
        stream.end(() => fs.promises.writeFile('promised', 'y'.repeat(100000)).then(() => {
            fs.createReadStream('stream').pipe(fs.createWriteStream('copy'));
            require('child_process').execFileSync('sh', ['-c', 'echo child > child']);
            console.log('out'); console.error('err'); process.exitCode = 6;
        }));
    "#;

const SQL: &str = "create table t(a, b); \
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) \
    insert into t select i, hex(i) from n; update t set b = b || 'x' where a % 7 = 0; \
    delete from t where a % 3 = 0; vacuum; select count(*), sum(length(b)) from t; pragma integrity_check;";

/// Eight transactions; not synchronous if Python is told to optimize, by which a row says so.
const PYTHON_SQLITE: &str = r#"
import sqlite3, sys
db = sqlite3.connect("base.db")
db.execute("PRAGMA synchronous=" + ("off" if sys.flags.optimize else "full"))
db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
for batch in range(8):
    with db:
        db.executemany("INSERT INTO t VALUES (?, ?)", [(batch * 100 + n, "x" * n) for n in range(100)])
with db:
    db.execute("DELETE FROM t WHERE n % 3 = 0")
db.execute("VACUUM")
print(db.execute("SELECT count(*), sum(length(text)) FROM t").fetchall())
"#;

const JAVA: &str = "import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*;
            public class W { public static void main(String[] a) throws Exception {
              try (FileOutputStream f = new FileOutputStream(\"stream\")) { for (int n = 0; n < 500; n++) f.write(new byte[100]); }
              try (FileChannel c = FileChannel.open(Path.of(\"channel\"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                c.write(ByteBuffer.allocateDirect(5000)); c.write(ByteBuffer.allocate(300), 9000); c.force(true); }
              try (RandomAccessFile f = new RandomAccessFile(\"mapped\", \"rw\")) {
                MappedByteBuffer m = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 65536);
                for (int n = 0; n < 65536; n++) m.put(n, (byte) n); m.force(); }
              System.out.println(\"done\"); } }";

fn source_of_java(folder: &Path) {
    fs::write(folder.join("W.java"), JAVA).expect("a new file");
}

/// Of the programs that a script starts: all of java's own calls.
fn all_of_java(_: &Dir, report: &Report) {
    let of_java = |session: &&serde_json::Value| session["program"] == "java";
    let sessions: Vec<_> = report.sessions().iter().filter(of_java).collect();
    let all = sessions.iter().all(|one| one["wchar_bytes"] == one["seen_bytes"]);
    assert!(!sessions.is_empty() && all, "{sessions:#?}");
    assert_eq!((report.file_bytes("stream"), report.file_bytes("channel")), (50_000, 5300));
}

programs! {
    python_buffered { run: Python(&[], PYTHON_FILES), files: &["buffered", "binary", "append"],
        check: |_, report| assert_eq!((report.calls_of("fsync"), report.calls_of("fdatasync")), (1, 1)) }
    python_unbuffered { run: Python(&["-u"], PYTHON_FILES) }
    python_that_starts_programs { run: Python(&[], PYTHON_PROGRAMS), says: "passed", files: &[
        "sh", "printf", "by-child", "sorted", "clean", "system", "popen", "closed", "last"] }
    perl { needs: &["perl"], run: Words(&["perl", "-e", PERL]), code: 4, files: &["out"],
        check: |dir, report| assert_eq!(report.file_bytes("raw"), size(dir, "raw") + 1) }
    node { needs: &["node"], run: Words(&["node", "-e", NODE]), code: 6,
        files: &["sync", "stream", "copy", "promised", "child"] }
    // The compiler's own threads end with the process.
    java { needs: &["java", "javac"], prepare: source_of_java, seen: Seen::Part, check: all_of_java,
        run: Sh("javac -d . W.java && java -Xshare:off -XX:-UsePerfData W && rm W.class") }
    cpp_ofstream { run: App("ofstream_writer", &[]), files: &["small", "appended"],
        check: |dir, report| assert_eq!(report.file_bytes("large"), size(dir, "large") + 4) }
    threads { run: App("thread_writer", &[]), files: &["common"],
        check: |_, report| assert_eq!((report.calls_of("write"), report.calls_of("pwrite")), (4000, 4000)) }
    first_thread_writes_nothing { run: App("worker_writer", &[]), files: &["worker"] }
    // A session for each process.
    forks_that_write { run: App("fork_writer", &[]), check: |dir, report| {
        assert_eq!(report.sessions().len(), 21);
        assert_eq!(report.bytes(), size(dir, "shared") + size(dir, "stream"));
    } }
    sqlite_with_wal { needs: &["sqlite3"], run: Words(&["sqlite3", "-batch", "db", "pragma journal_mode=wal;", SQL]) }
    sqlite_with_rollback { needs: &["sqlite3"], run: Words(&["sqlite3", "-batch", "db", "pragma journal_mode=delete;", SQL]) }
    sqlite_with_truncate { needs: &["sqlite3"], run: Words(&["sqlite3", "-batch", "db", "pragma journal_mode=truncate;", SQL]) }
    sqlite_in_python { run: Python(&[], PYTHON_SQLITE), check: |dir, report| {
        let syncs = report.calls_of("fsync") + report.calls_of("fdatasync");
        assert!(syncs > 8, "{syncs} syncs for more than 8 transactions");
        assert!(report.bytes() >= size(dir, "base.db"), "{report:#?}");
    } }
    sqlite_in_python_without_synchronous { run: Python(&["-O"], PYTHON_SQLITE),
        check: |_, report| assert_eq!(report.calls_of("fsync") + report.calls_of("fdatasync"), 0) }
}

/// Pools by fork, spawn and forkserver, whose servers outlive the script by a moment; they have all
/// ended when their output does.
#[test]
fn python_pools() {
    let Some(python) = python() else { return };
    let dir = Dir::new();
    let prepare = |folder: &Path| fs::write(folder.join("script.py"), PYTHON_POOLS).expect("a new file");
    let script = format!("{} -B script.py | cat", python.display());
    let (finished, report) = same(&dir, prepare, &["sh", "-c", &script]);
    finished.success();
    let sum = |of: &dyn Fn(&str) -> u64| (0..12).map(|n| of(&format!("part{n}"))).sum::<u64>();
    assert_eq!(sum(&|name| report.file_bytes(name)), 3 * sum(&|name| size(&dir, name)));
}
