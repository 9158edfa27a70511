//! Shells, coreutils and what developers use.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cawl_kit::{Dir, Report, calls, find, python, size, skipped, unchanged};

use super::{PLAIN, Program, Run::*, Seen, lines};

/// A small tree: folders, an empty file, a link, an executable.
fn project(folder: &Path) {
    fs::create_dir_all(folder.join("tree/deep/er")).expect("new folders");
    for n in 0..30 {
        let text = format!("{n}\n").repeat(n * 300);
        fs::write(folder.join(format!("tree/deep/file{n}")), text).expect("a new file");
    }
    let script = folder.join("tree/deep/er/script");
    fs::write(&script, "#!/bin/sh\necho hello\n").expect("a new file");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    symlink("deep/file3", folder.join("tree/link")).expect("a new link");
}

fn old(folder: &Path) {
    fs::write(folder.join("out"), "what was there\n").expect("a new file");
}

fn source(folder: &Path) {
    let main = "#include <stdio.h>\nint main(void) { printf(\"compiled\\n\"); return 9; }\n";
    fs::write(folder.join("main.c"), main).expect("a new file");
}

/// A hundred calls of 64 KiB, with fsync or without.
fn hundred(_: &Dir, report: &Report) {
    assert_eq!((report.bytes(), report.calls_of("write")), (100 << 16, 100));
}

/// Each call at its offset, and the fsync.
fn synced(dir: &Dir, report: &Report) {
    hundred(dir, report);
    assert_eq!(report.calls_of("fsync"), 1);
    let calls = calls(dir, &dir.trace());
    let to_out =
        calls.iter().filter(|call| call["op"] == "write" && call["path"].as_str().is_some_and(ends_in_out));
    let offsets = to_out.map(|call| call["offset"].as_u64().expect("the offset is known"));
    assert!(offsets.eq((0..100).map(|n| n << 16)));
}

fn ends_in_out(path: &str) -> bool {
    path.ends_with("/out")
}

// dd moves its output file to descriptor 1 by dup2, so each of these follows that as well.
programs! {
    dd { prepare: old, run: Words(&["dd", "if=/dev/zero", "of=out", "bs=64k", "count=100", "status=none"]),
        files: &["out"], check: hundred }
    dd_with_fsync { prepare: old, files: &["out"], check: synced,
        run: Words(&["dd", "if=/dev/zero", "of=out", "bs=64k", "count=100", "status=none", "conv=fsync"]) }
    dd_that_appends { prepare: old, check: hundred,
        run: Words(&["dd", "if=/dev/zero", "of=out", "bs=64k", "count=100", "status=none", "oflag=append", "conv=notrunc"]) }
    dd_that_waits_for_the_disk { prepare: old, files: &["out"], check: hundred,
        run: Words(&["dd", "if=/dev/zero", "of=out", "bs=64k", "count=100", "status=none", "oflag=sync"]) }
    // Some filesystems refuse O_DIRECT; then it is enough that dd says so, traced or not.
    dd_past_the_page_cache { prepare: old,
        run: Sh("dd if=/dev/zero of=out bs=64k count=100 status=none oflag=direct || echo refused") }
    dd_into_a_redirection { prepare: lines,
        run: Sh("dd bs=1000 seek=3 status=none conv=notrunc < in > out"),
        check: |dir, report| assert_eq!(report.file_bytes("out"), size(dir, "in")) }
    cp { prepare: lines, run: Words(&["cp", "--reflink=never", "in", "out"]), files: &["out"] }
    // The copy may share its blocks with the original; then nothing is written.
    cp_that_may_share { prepare: lines, run: Words(&["cp", "in", "out"]),
        check: |dir, report| assert!([0, size(dir, "out")].contains(&report.bytes()), "{report:#?}") }
    cp_of_a_tree { prepare: project, run: Words(&["cp", "-R", "--preserve=mode,links", "tree", "copy"]) }
    tar { needs: &["tar"], prepare: project, files: &["out.tar"],
        run: Words(&["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", "out.tar", "tree"]) }
    tar_through_pipes { needs: &["tar", "gzip"], prepare: project,
        run: Sh("mkdir out && tar --mtime=@0 -cf - tree | tee archive | tar -xf - -C out; gzip -n archive; gzip -t archive.gz") }
    small_tools { prepare: lines, run: Sh("
        sort -r -o sorted in
        sed -i s/line/row/ in
        tee one two < in > three
        head -c 100000 /dev/zero > zeros
        split -b 50000 -d in part
        truncate -s 12345 in
        cat one two three >> all
        mv all moved
        ln moved linked; rm moved
        sync linked
        shred -n0 -z zeros
        printf '%s\\n' a b c | xargs -I@ sh -c 'echo @ > file@'
        awk '{ print $2 > \"awk\" $2 % 3 }' sorted
        seq 1000 | head -500 | tail -3; md5sum one; echo done >&2"), says: "500\n" }
    dash { needs: &["dash"], prepare: lines, code: 3, says: "bye\n", run: Words(&["dash", "-c",
        "exec 3>three 4>>four; echo 3 >&3; (echo 4 >&4); while read -r line; do echo \"$line\"; done < in > out; \
         cat <<E >&4\nhere\nE\nset -- *; echo $#; trap 'echo bye' EXIT; exit 3"]) }
    // The text after << goes through a pipe, or a temporary file of its own if it is long.
    bash_with_redirections_on_descriptors_3_to_9 { needs: &["bash"], prepare: lines, code: 7, says: "out\n",
        files: &["three", "four", "five", "six", "nine", "redirected", "appended"], run: Bash(r#"
        exec 3>three 4>>four 5<>five 6>six
        echo one >&3
        printf '%05d\n' {1..3000} >&4
        echo five >&5
        exec 7>&3; echo seven >&7; exec 3>&-; echo again >&7
        exec 8<in; read -r line <&8; echo "$line" >&6
        { echo grouped; (echo nested) >&6; } 9>nine >&9
        (echo subshell >&6; exec 6>&-; echo late >&5)
        cat <<END >&6
here: $(echo substituted)
END
        cat <<< here >&6
        exec 9>&1 >redirected; echo to the file; exec >&9 9>&-
        for n in {1..200}; do echo "$n" >> appended; done
        echo out; echo err >&2
        exit 7"#) }
    // A script's own text is on 255.
    bash_on_descriptor_255 { needs: &["bash"], says: "here", run: Words(&["bash", "script"]), prepare: |folder| {
        let text = "ls -l /proc/$$/fd/255 >/dev/null && echo here\nexec 200>two\necho 200 >&200\n";
        fs::write(folder.join("script"), text).expect("a new file");
    } }
    rsync { needs: &["rsync"], prepare: lines, run: Sh(
        "mkdir from; cp in from/a; rsync -a --checksum from/ to; echo more >> from/a
         rsync -a --inplace --no-whole-file from/ to; cmp from/a to/a; rm -r from") }
    // The index holds inode numbers and times; what it says about contents is compared as output.
    git { needs: &["git"], prepare: project, but: &[".git/index"], run: Sh("
        export GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000' GIT_CONFIG_NOSYSTEM=1
        git -c init.defaultBranch=main init --quiet
        git config user.name nobody; git config user.email nobody@example.org; git config gc.auto 0
        git add tree
        git commit --quiet --message=first
        echo more >> tree/deep/file1
        git commit --quiet --all --message=second
        git log --stat --format=%H; git ls-files --stage; git fsck") }
    git_gc { needs: &["git"], prepare: lines, run: Sh("
        export GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000' GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
        git init --quiet .; git config user.name n; git config user.email n@example.org
        git config pack.threads 1
        for n in 1 2 3 4; do echo $n >> in; git add in; git commit --quiet -m $n; done
        git gc --quiet --prune=now; git fsck; git log --format=%H; git count-objects | cut -d, -f1
        rm -rf .git") }
    compiler { prepare: source, code: 9, says: "compiled\n",
        run: Sh("cc -O1 -c main.c -o main.o && cc main.o -o main && ./main") }
    nothing_written { check: |_, report| {
        assert_eq!((report.bytes(), &report["coverage"]), (0, &serde_json::Value::Null));
    } }
    descriptors_and_environment { prepare: lines, seen: Seen::Part, run: Words(&["dash", "-c",
        // Traced itself, a child has one descriptor more: the tracer's, far away.
        "exec 3<in 9>nine; for fd in /proc/$$/fd/*; do n=${fd##*/}; [ $n -ge 900 ] || echo $n; done"]) }
}

/// Messages that the C library writes by itself.
#[test]
fn messages_of_the_c_library() {
    let dir = Dir::new();
    let script = format!("{} 2> messages", dir.app("message_writer").display());
    let (_, report) = cawl_kit::same(&dir, |_| {}, &["sh", "-c", &script]);
    assert_eq!(report.bytes(), size(&dir, "messages"));
}

/// What an untraced child sees of its parent's descriptors and environment.
#[test]
fn descriptors_and_environment_of_an_untraced_child() {
    let dir = Dir::new();
    let script = "exec 3<in 9>nine; ls -l /proc/self/fd | awk '{ print $9, $10, $11 }' | sed 's/:.*//; s,/proc/.*,,'; \
                  env | grep -v '^LD_PRELOAD=\\|^CAWL_' | sort";
    unchanged(&dir, lines, &["--no-children"], &["sh", "-c", script], &[]).0.success();
}

/// Notes down the descriptors of the process that started it, but the tracer's, which is a socket far above,
/// and its own environment, which it has from there. Many learn from a pipe that a program was started; they
/// are looked at when they have closed it: as they wait for the child, which a kernel without /proc/PID/wchan
/// does not tell (then it is believed after a while), or say so. Threads of Java's own open and close files
/// meanwhile, so which number its end of a pipe gets is a matter of chance there.
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

/// Programs that can be told to start another one: they show it the same descriptors and environment, traced
/// or not.
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
        let seen = fs::read_to_string(dir.work().join("seen")).expect("a started program looked");
        assert!(seen.contains("\n0 ") && seen.contains("PATH="), "{program}: {seen}");
    }
}
