//! Tools as people use them: under `cawl-cli run` they do what they do without it, and every byte they
//! write is seen.

use std::fs;
use std::path::Path;

use crate::util::{Dir, find, same, same_but, size};

/// Nothing to prepare.
fn empty(_: &Path) {}

/// A file with content that tells places apart.
fn input(folder: &Path) {
    let lines: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    fs::write(folder.join("in"), lines).expect("a new file");
}

/// A small tree: folders, an empty file, a link, an executable.
fn project(folder: &Path) {
    use std::os::unix::fs::{PermissionsExt, symlink};
    fs::create_dir_all(folder.join("tree/deep/er")).expect("new folders");
    for n in 0..30 {
        let text = format!("{n}\n").repeat(n * 300);
        fs::write(folder.join(format!("tree/deep/file{n}")), text).expect("a new file");
    }
    fs::write(folder.join("tree/deep/er/script"), "#!/bin/sh\necho hello\n").expect("a new file");
    fs::set_permissions(folder.join("tree/deep/er/script"), fs::Permissions::from_mode(0o755))
        .expect("the file is ours");
    symlink("deep/file3", folder.join("tree/link")).expect("a new link");
}

/// dd moves its output file to descriptor 1 by dup2, so each of these tests follows that as well.
fn dd(flags: &[&str]) -> Option<()> {
    find("dd")?;
    let dir = Dir::new();
    let mut command = vec!["dd", "if=/dev/zero", "of=out", "bs=64k", "count=100", "status=none"];
    command.extend(flags);
    let old = |folder: &Path| fs::write(folder.join("out"), "what was there\n").expect("a new file");
    let (finished, report) = same(&dir, old, &command);
    // Some filesystems refuse O_DIRECT; then it is enough that dd says so, traced or not.
    if !finished.status.success() && flags.contains(&"oflag=direct") {
        return None;
    }
    finished.success();
    let kept = if flags.contains(&"conv=notrunc") { 15 } else { 0 };
    assert_eq!(report.file_bytes("out"), size(&dir, "out") - kept);
    assert_eq!(report.bytes(), 100 << 16);
    assert_eq!(report.calls_of("write"), 100);
    assert_eq!(report.calls_of("fsync"), u64::from(flags.contains(&"conv=fsync")));
    Some(())
}

#[test]
fn dd_is_the_same() {
    dd(&[]);
}

#[test]
fn dd_with_fsync_is_the_same() {
    dd(&["conv=fsync"]);
}

#[test]
fn dd_that_appends_is_the_same() {
    dd(&["oflag=append", "conv=notrunc"]);
}

#[test]
fn dd_past_the_page_cache_is_the_same() {
    dd(&["oflag=direct"]);
}

#[test]
fn dd_that_waits_for_the_disk_is_the_same() {
    dd(&["oflag=sync"]);
}

#[test]
fn dd_into_a_redirection_is_the_same() {
    if find("dd").is_none() {
        return;
    }
    let dir = Dir::new();
    let script = "dd bs=1000 seek=3 status=none conv=notrunc < in > out";
    let (_, report) = same(&dir, input, &["sh", "-c", script]);
    assert_eq!(report.file_bytes("out"), size(&dir, "in"));
}

#[test]
fn cp_is_the_same() {
    let dir = Dir::new();
    let (_, report) = same(&dir, input, &["cp", "in", "out"]);
    // cp may make the copy share its blocks with the original; then nothing is written.
    assert!([0, size(&dir, "out")].contains(&report.bytes()), "{report:#?}");
    let dir = Dir::new();
    let (_, report) = same(&dir, input, &["cp", "--reflink=never", "in", "out"]);
    assert_eq!(report.bytes(), size(&dir, "out"));
}

#[test]
fn cp_of_a_tree_is_the_same() {
    let dir = Dir::new();
    same(&dir, project, &["cp", "-R", "--preserve=mode,links", "tree", "copy"]);
}

#[test]
fn tar_is_the_same() {
    if find("tar").is_none() {
        return;
    }
    let dir = Dir::new();
    let pack = ["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", "out.tar", "tree"];
    let (_, report) = same(&dir, project, &pack);
    assert_eq!(report.file_bytes("out.tar"), size(&dir, "out.tar"));

    let dir = Dir::new();
    let through_pipes = "mkdir out && tar -cf - tree | cat | tar -xf - -C out";
    same(&dir, project, &["sh", "-c", through_pipes]);
}

#[test]
fn bash_with_redirections_on_descriptors_3_to_9_is_the_same() {
    if find("bash").is_none() {
        return;
    }
    const SCRIPT: &str = r#"
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
        exec 9>&1 >redirected; echo to the file; exec >&9 9>&-
        for n in {1..200}; do echo "$n" >> appended; done
        echo out; echo err >&2
        exit 7
    "#;
    let dir = Dir::new();
    let (finished, report) = same(&dir, input, &["bash", "-c", SCRIPT]);
    let finished = finished.code(7);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    let files = ["three", "four", "five", "six", "nine", "redirected", "appended"];
    let written: u64 = files.iter().map(|name| size(&dir, name)).sum();
    // The text after << goes through a pipe, or a temporary file of its own if it is long.
    assert_eq!(report.bytes(), written);
    for name in files {
        assert_eq!(report.file_bytes(name), size(&dir, name), "{name}");
    }
}

#[test]
fn small_tools_are_the_same() {
    const SCRIPT: &str = "
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
        printf '%s\\n' a b c | xargs -I@ sh -c 'echo @ > file@'
        awk '{ print $2 > \"awk\" $2 % 3 }' sorted
    ";
    let dir = Dir::new();
    same(&dir, input, &["sh", "-ec", SCRIPT]).0.success();
}

#[test]
fn git_is_the_same() {
    if find("git").is_none() {
        return;
    }
    const SCRIPT: &str = "
        export GIT_AUTHOR_DATE='@0 +0000' GIT_COMMITTER_DATE='@0 +0000' GIT_CONFIG_NOSYSTEM=1
        git -c init.defaultBranch=main init --quiet
        git config user.name nobody; git config user.email nobody@example.org; git config gc.auto 0
        git add tree
        git commit --quiet --message=first
        echo more >> tree/deep/file1
        git commit --quiet --all --message=second
        git log --stat --format=%H; git ls-files --stage; git fsck
    ";
    let dir = Dir::new();
    // The index holds inode numbers and times; what it says about contents is compared as output.
    let (finished, _) = same_but(&dir, project, &["sh", "-ec", SCRIPT], &[".git/index"]);
    finished.success();
}

#[test]
fn the_compiler_is_the_same() {
    let dir = Dir::new();
    let source = |folder: &Path| {
        let main = "#include <stdio.h>\nint main(void) { printf(\"compiled\\n\"); return 9; }\n";
        fs::write(folder.join("main.c"), main).expect("a new file");
    };
    let script = "cc -O1 -c main.c -o main.o && cc main.o -o main && ./main";
    let (finished, _) = same(&dir, source, &["sh", "-c", script]);
    assert_eq!(finished.code(9).stdout, "compiled\n");
}

#[test]
fn messages_that_the_c_library_writes_by_itself_are_seen() {
    let dir = Dir::new();
    let program = dir.app("message_writer");
    let script = format!("{} 2> messages", program.display());
    let (_, report) = same(&dir, empty, &["sh", "-c", &script]);
    assert_eq!(report.bytes(), size(&dir, "messages"));
}

#[test]
fn a_program_that_writes_nothing_is_the_same() {
    let dir = Dir::new();
    let (_, report) = same(&dir, empty, &["true"]);
    assert_eq!((report.bytes(), &report["coverage"]), (0, &serde_json::Value::Null));
}
