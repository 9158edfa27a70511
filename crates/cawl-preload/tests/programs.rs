//! Real programs: what they print and write is what they do untraced, and every byte is seen.

mod support;

use std::path::Path;
use support::{Session, assert_complete, compare, installed};

/// Runs a shell script under bash both ways and checks that all was seen.
#[track_caller]
fn script(text: &str) -> Vec<Session> {
    let sessions = compare("/bin/bash".as_ref(), &["-c", text], |_| {});
    assert_complete(&sessions);
    sessions
}

#[track_caller]
fn python(program: &str, options: &[&str]) -> Vec<Session> {
    let python = which("python3");
    let mut arguments = options.to_vec();
    arguments.extend(["-c", program]);
    let sessions = compare(&python, &arguments, |_| {});
    assert_complete(&sessions);
    sessions
}

/// The interpreter itself, not a shim of a version manager in front of it.
fn which(program: &str) -> std::path::PathBuf {
    if Path::new("/usr/bin").join(program).exists() {
        return Path::new("/usr/bin").join(program);
    }
    let found = std::process::Command::new(program)
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .expect("python3");
    String::from_utf8(found.stdout).expect("path").trim().into()
}

#[test]
fn dd_and_its_duplicated_descriptor() {
    let sessions = script("dd if=/dev/zero of=out bs=4k count=300 conv=fsync status=none");
    let dd = sessions.iter().find(|session| session.program == "dd").expect("dd");
    let to_out = dd.about("/out");
    let offsets: Vec<u64> =
        to_out.iter().filter(|event| support::bytes(event) > 0).map(|event| event.offset).collect();
    assert_eq!(offsets, (0..300).map(|i| i * 4096).collect::<Vec<u64>>());
    assert!(to_out.iter().any(|event| event.op == cawl_wire::Op::Fsync));
}

#[test]
fn coreutils() {
    script(
        "seq 100000 > a; cp a b; cat a b > c; mv b d; sort -r c > e; tee f g < a > h; split -b 50000 a; rm d",
    );
    script(
        "seq 1000 | head -500 | tail -3; printf '%s\\n' x y z; echo done >&2; truncate -s 1M t; shred -n0 -z t",
    );
}

#[test]
fn shell_redirections() {
    script(
        "exec 3>a 4>>b 5<>c 9>d; echo three >&3; echo four >&4; echo five >&5; echo nine >&9; \
         exec 3>&-; for i in 1 2 3; do echo $i >&9; done; { echo x; echo y >&2; } > e 2>f; \
         (echo sub >&4); cat <<< here > g; echo $(echo nested) >> g",
    );
}

#[test]
fn archives() {
    script(
        "mkdir t; for i in 1 2 3 4 5; do seq $i 5000 > t/$i; done; tar cf t.tar --mtime=@0 --owner=0 --group=0 t; mkdir u; tar xf t.tar -C u; gzip -nk t.tar; gzip -t t.tar.gz",
    );
}

#[test]
fn python_in_its_ways_of_writing() {
    if !installed("python3") {
        return;
    }
    let writes = "
import os, sys
with open('text', 'w') as f:
    for i in range(5000): f.write(f'{i}\\n')
with open('raw', 'wb', buffering=0) as f:
    for i in range(50): f.write(b'x' * 100)
with open('both', 'w+b') as f:
    f.write(b'0' * 10000); f.seek(5); f.write(b'1'); f.truncate(9000); os.fsync(f.fileno())
fd = os.open('fd', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(fd, b'abc'); os.pwrite(fd, b'd', 0); os.writev(fd, [b'e', b'f']); os.close(fd)
print('printed'); print('error', file=sys.stderr)
";
    python(writes, &["-I"]);
    python(writes, &["-I", "-u"]);
    python(
        "
import subprocess, os
print(subprocess.check_output(['echo', 'a child']).decode(), end='', flush=True)
subprocess.run('echo shell > out', shell=True, check=True)
subprocess.run(['sh', '-c', 'echo clean > clean'], env={}, close_fds=True, check=True)
p = subprocess.Popen(['cat'], stdin=subprocess.PIPE); p.communicate(b'x' * 100000)
pid = os.fork()
if pid == 0:
    open('forked', 'w').write('child'); os._exit(0)
os.waitpid(pid, 0)
",
        &["-I"],
    );
    python(
        "
import multiprocessing as m
def work(i):
    open(f'f{i}', 'w').write('x' * i * 1000)
    return i
if __name__ == '__main__':
    m.set_start_method('fork')
    ps = [m.Process(target=work, args=(i,)) for i in range(4)]
    [p.start() for p in ps]; [p.join() for p in ps]
",
        &["-I"],
    );
}

#[test]
fn sqlite_through_python() {
    if !installed("python3") {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let program = format!(
            "
import sqlite3
c = sqlite3.connect('db'); c.execute('PRAGMA journal_mode={mode}')
c.execute('CREATE TABLE t(a, b)')
for i in range(50):
    c.execute('INSERT INTO t VALUES(?, ?)', (i, 'x' * 500)); c.commit()
c.close()
"
        );
        let sessions = compare(&which("python3"), &["-I", "-c", &program], |_| {});
        sessions.iter().for_each(Session::assert_intact);
    }
}

#[test]
fn git() {
    if !installed("git") {
        return;
    }
    let sessions = compare(
        "/bin/bash".as_ref(),
        &[
            "-c",
            "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE=@0+0000 GIT_COMMITTER_DATE=@0+0000 \
             GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; \
             git init -q . && seq 1000 > a && git add a && git commit -qm one && seq 2000 > a && \
             git commit -qam two && git log --oneline | wc -l && git fsck; rm .git/index",
        ],
        |_| {},
    );
    assert_complete(&sessions);
}

#[test]
fn a_compiler() {
    let prepare = |at: &Path| std::fs::write(at.join("a.c"), "int main(void) { return 0; }\n").expect("a.c");
    let sessions =
        compare("/bin/bash".as_ref(), &["-c", "gcc -O2 -c a.c -o a.o && gcc a.o -o a && ./a"], prepare);
    sessions.iter().for_each(Session::assert_intact);
}
