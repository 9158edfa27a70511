//! Language runtimes and compiled programs: each has a way of its own to write, and none may notice the
//! tracer or escape it.

use std::fs;
use std::path::Path;

use crate::util::{Dir, Finished, Report, find, python, same, size};

fn empty(_: &Path) {}

/// A script in Python, from a file: multiprocessing wants to read it again.
fn python_is_the_same(dir: &Dir, options: &[&str], script: &str) -> Option<(Finished, Report)> {
    let python = python()?;
    let prepare = |folder: &Path| fs::write(folder.join("script.py"), script).expect("a new file");
    let mut command = vec![python.to_str().expect("python lies at a readable path"), "-B"];
    command.extend(options);
    command.push("script.py");
    let (finished, report) = same(dir, prepare, &command);
    Some((finished.success(), report))
}

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

#[test]
fn python_is_the_same_buffered() {
    let dir = Dir::new();
    let Some((_, report)) = python_is_the_same(&dir, &[], PYTHON_FILES) else { return };
    for name in ["buffered", "binary", "append"] {
        assert_eq!(report.file_bytes(name), size(&dir, name), "{name}");
    }
    assert_eq!((report.calls_of("fsync"), report.calls_of("fdatasync")), (1, 1));
}

#[test]
fn python_is_the_same_unbuffered() {
    python_is_the_same(&Dir::new(), &["-u"], PYTHON_FILES);
}

#[test]
fn python_starting_programs_is_the_same() {
    // subprocess closes every descriptor that it does not know, the tracer's among them.
    const SCRIPT: &str = r#"
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
os.execvp("sh", ["sh", "-c", "echo last > last"])
"#;
    let dir = Dir::new();
    let Some((_, report)) = python_is_the_same(&dir, &[], SCRIPT) else { return };
    let files = ["sh", "printf", "by-child", "sorted", "clean", "system", "popen", "closed", "last"];
    assert_eq!(report.bytes(), files.iter().map(|name| size(&dir, name)).sum::<u64>());
}

#[test]
fn python_multiprocessing_is_the_same() {
    const SCRIPT: &str = r#"
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
    let Some(python) = python() else { return };
    let dir = Dir::new();
    let prepare = |folder: &Path| fs::write(folder.join("script.py"), SCRIPT).expect("a new file");
    // Its servers outlive the script by a moment; whoever reads their output sees them all end.
    let script = format!("{} -B script.py | cat", python.display());
    let (finished, report) = same(&dir, prepare, &["sh", "-c", &script]);
    finished.success();
    let parts: u64 = (0..12).map(|n| size(&dir, &format!("part{n}"))).sum();
    // Besides, Python tries out its folder for temporary files.
    let seen: u64 = (0..12).map(|n| report.file_bytes(&format!("part{n}"))).sum();
    assert_eq!(seen, 3 * parts);
}

/// Bytes that sqlite writes, fsyncs that it asks for.
fn sqlite(synchronous: &str) -> Option<u64> {
    const SCRIPT: &str = r#"
import sqlite3
db = sqlite3.connect("base.db")
db.execute("PRAGMA synchronous=SYNC")
db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
for batch in range(8):
    with db:
        db.executemany("INSERT INTO t VALUES (?, ?)", [(batch * 100 + n, "x" * n) for n in range(100)])
with db:
    db.execute("DELETE FROM t WHERE n % 3 = 0")
db.execute("VACUUM")
print(db.execute("SELECT count(*), sum(length(text)) FROM t").fetchall())
"#;
    let dir = Dir::new();
    let script = SCRIPT.replace("SYNC", synchronous);
    let (_, report) = python_is_the_same(&dir, &[], &script)?;
    assert!(report.bytes() >= size(&dir, "base.db"), "{report:#?}");
    Some(report.calls_of("fsync") + report.calls_of("fdatasync"))
}

#[test]
fn sqlite_is_the_same() {
    let Some(syncs) = sqlite("full") else { return };
    assert!(syncs > 8, "{syncs} syncs for more than 8 transactions");
}

#[test]
fn sqlite_without_synchronous_is_the_same() {
    let Some(syncs) = sqlite("off") else { return };
    assert_eq!(syncs, 0);
}

#[test]
fn perl_is_the_same() {
    const SCRIPT: &str = r#"
        open(my $out, '>', 'out') or die; print $out "line $_\n" for 1 .. 5000;
        open(my $raw, '+>', 'raw') or die; syswrite($raw, 'x' x 10000); sysseek($raw, 5, 0); syswrite($raw, 'y');
        open(my $add, '>>', 'out') or die; close($out); print $add "added\n"; close($add);
        system('echo system > system'); my $told = `echo told`; print $told;
        if (!fork()) { open(my $f, '>', 'child'); print $f 'child'; exit(0) } wait();
        print STDERR "err\n"; exit 4;
    "#;
    if find("perl").is_none() {
        return;
    }
    let dir = Dir::new();
    let (finished, report) = same(&dir, empty, &["perl", "-e", SCRIPT]);
    finished.code(4);
    assert_eq!(report.file_bytes("out"), size(&dir, "out"));
    assert_eq!(report.file_bytes("raw"), size(&dir, "raw") + 1);
}

#[test]
fn node_is_the_same() {
    const SCRIPT: &str = r#"
        const fs = require('fs');
        fs.writeFileSync('sync', 'x'.repeat(300000));
        fs.appendFileSync('sync', 'appended');
        const fd = fs.openSync('at', 'w');
        fs.writeSync(fd, 'placed', 100); fs.fsyncSync(fd); fs.closeSync(fd);
        const stream = fs.createWriteStream('stream');
        for (let n = 0; n < 1000; n++) stream.write(`line ${n}\n`);
        stream.end(() => fs.promises.writeFile('promised', 'y'.repeat(100000)).then(() => {
            require('child_process').execFileSync('sh', ['-c', 'echo child > child']);
            console.log('out'); console.error('err'); process.exitCode = 6;
        }));
    "#;
    if find("node").is_none() {
        return;
    }
    let dir = Dir::new();
    let (finished, report) = same(&dir, empty, &["node", "-e", SCRIPT]);
    finished.code(6);
    for name in ["sync", "stream", "promised", "child"] {
        assert_eq!(report.file_bytes(name), size(&dir, name), "{name}");
    }
}

#[test]
fn a_cpp_ofstream_program_is_the_same() {
    let dir = Dir::new();
    let program = dir.app("ofstream_writer");
    let (finished, report) = same(&dir, empty, &[&program]);
    finished.success();
    assert_eq!(report.file_bytes("small"), size(&dir, "small"));
    assert_eq!(report.file_bytes("large"), size(&dir, "large") + 4);
    assert_eq!(report.file_bytes("appended"), size(&dir, "appended"));
}

#[test]
fn a_program_with_threads_is_the_same() {
    let dir = Dir::new();
    let program = dir.app("thread_writer");
    let (finished, report) = same(&dir, empty, &[&program]);
    finished.success();
    assert_eq!(report.file_bytes("common"), size(&dir, "common"));
    assert_eq!((report.calls_of("write"), report.calls_of("pwrite")), (4000, 4000));
}

#[test]
fn a_program_whose_first_thread_writes_nothing_is_the_same() {
    let dir = Dir::new();
    let program = dir.app("worker_writer");
    let (finished, report) = same(&dir, empty, &[&program]);
    finished.success();
    assert_eq!(report.bytes(), size(&dir, "worker"));
}

#[test]
fn a_program_that_forks_and_writes_is_the_same() {
    let dir = Dir::new();
    let program = dir.app("fork_writer");
    let (finished, report) = same(&dir, empty, &[&program]);
    finished.success();
    assert_eq!(report.sessions().len(), 21, "a session for each process");
    assert_eq!(report.bytes(), size(&dir, "shared") + size(&dir, "stream"));
}
