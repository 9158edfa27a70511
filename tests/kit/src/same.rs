//! A program does under the tracer what it does without.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::{Dir, Finished, Report, Running};

/// Everything below a folder that a program could have changed.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let meta = fs::symlink_metadata(&path).expect("it was just listed");
            let content = if meta.is_symlink() {
                fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            } else if meta.is_file() {
                fs::read(&path).expect("a readable file")
            } else {
                Vec::new()
            };
            let name = path.strip_prefix(folder).expect("it lies there").to_owned();
            found.insert(name, (meta.permissions().mode(), content));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Runs the program in a folder that `prepare` filled, once alone and once under `cawl-cli run`: output,
/// exit status and every file must be the same, and every byte written must have been seen.
pub fn same<S: AsRef<OsStr>>(dir: &Dir, prepare: impl Fn(&Path), program: &[S]) -> (Finished, Report) {
    same_but(dir, prepare, program, &[])
}

/// As [`same`], but for the contents of these files, which are never the same twice.
pub fn same_but<S: AsRef<OsStr>>(
    dir: &Dir,
    prepare: impl Fn(&Path),
    program: &[S],
    but: &[&str],
) -> (Finished, Report) {
    let (finished, report) = unchanged(dir, prepare, &[], program, but);
    report.all_seen();
    (finished, report)
}

/// As [`same_but`], where not every byte need be seen; with these options of `run`.
pub fn unchanged<S: AsRef<OsStr>>(
    dir: &Dir,
    prepare: impl Fn(&Path),
    options: &[&str],
    program: &[S],
    but: &[&str],
) -> (Finished, Report) {
    // Both runs happen at the same place, because programs may write their paths into files.
    let look = || {
        let mut tree = tree(&dir.work());
        for name in but {
            tree.entry(name.into()).and_modify(|(_, content)| content.clear());
        }
        tree
    };
    prepare(&dir.work());
    let mut alone = dir.command(&program[0]);
    alone.args(&program[1..]);
    let alone = (Running::start(alone).finish(), look());
    dir.clear();
    prepare(&dir.work());
    let (finished, report) = dir.run(options, program);
    let traced = (finished, look());

    assert_eq!(alone.0, traced.0, "output or exit status changed (left: alone, right: traced)");
    let names = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&alone.1), names(&traced.1), "files differ (left: alone, right: traced)");
    for (name, entry) in &alone.1 {
        let other = &traced.1[name];
        let texts =
            [&entry.1, &other.1].map(|content| String::from_utf8_lossy(&content[..content.len().min(4096)]));
        assert!(
            other == entry,
            "{} is not the same: alone\n{}\ntraced\n{}",
            name.display(),
            texts[0],
            texts[1]
        );
    }
    (traced.0, report)
}

/// Size of a file in the working folder.
pub fn size(dir: &Dir, name: &str) -> u64 {
    fs::metadata(dir.work().join(name)).unwrap_or_else(|error| panic!("{name}: {error}")).len()
}
