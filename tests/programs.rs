//! The compatibility matrix: programs as people use them, a row for each. A row is run alone and under
//! `cawl-cli run`: output, exit status and every file are the same, and every byte that the kernel counted
//! was seen, unless the row says `Part` and why.
//!
//! | rows | programs |
//! |---|---|
//! | `tools` | dd, cp, tar, shells, coreutils, git, rsync, compilers, what programs hand on to those they start |
//! | `languages` | Python, sqlite, Perl, node, Java, C++, threads, forks |
//! | `servers` | PostgreSQL, Redis, with their descriptors and environment |
//! | `rough` | programs that treat descriptors, limits, processes, signals and memory roughly |
//! | `sandboxes` | programs under filters of system calls, by those who install them |
//!
//! Elsewhere: sanitizers in `sanitizers`; musl, Go, static and setuid programs, which are named as untraced,
//! in `doctor`; what a program finds at its start in `inherited`; ends with pending output, exec with an
//! empty environment and every hook once in crates/cawl-preload/tests.

use std::fs;
use std::path::Path;

use cawl_kit::{Dir, Report, find, python, size, unchanged};

/// A program, how it is started, and what is expected of it.
#[derive(Clone, Copy)]
struct Program {
    /// What must be installed.
    needs: &'static [&'static str],
    /// Fills the folder that it runs in.
    prepare: fn(&Path),
    run: Run,
    /// Files whose contents are never the same twice.
    but: &'static [&'static str],
    seen: Seen,
    code: i32,
    /// Within its standard output.
    says: &'static str,
    /// Files of which as many bytes were seen as they are long.
    files: &'static [&'static str],
    /// What else the report has to say.
    check: fn(&Dir, &Report),
}

/// What is started.
#[derive(Clone, Copy)]
enum Run {
    /// A program and its arguments.
    Words(&'static [&'static str]),
    /// A script of the shell that ends at the first failure.
    Sh(&'static str),
    Bash(&'static str),
    /// Python with these options and a script, from a file: multiprocessing wants to read it again.
    Python(&'static [&'static str], &'static str),
    /// A program of apps/ with these arguments.
    App(&'static str, &'static [&'static str]),
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    All,
    /// Not all of it can be; the row says why.
    Part,
}

/// A program that ends well and of which nothing else is expected.
const PLAIN: Program = Program {
    needs: &[],
    prepare: |_| {},
    run: Run::Words(&["true"]),
    but: &[],
    seen: Seen::All,
    code: 0,
    says: "",
    files: &[],
    check: |_, _| {},
};

/// A file with content that tells places apart.
fn lines(folder: &Path) {
    let text: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    fs::write(folder.join("in"), text).expect("a new file");
}

impl Program {
    /// Runs it both ways.
    fn is_the_same(&self) {
        let python = match self.run {
            Run::Python(..) => python(),
            _ => None,
        };
        let lacks_python = python.is_none() && matches!(self.run, Run::Python(..));
        if lacks_python || self.needs.iter().any(|program| find(program).is_none()) {
            return;
        }
        let dir = Dir::new();
        let prepare = |folder: &Path| {
            (self.prepare)(folder);
            if let Run::Python(_, script) = self.run {
                fs::write(folder.join("script.py"), script).expect("a new file");
            }
        };
        let path = |path: &Path| path.to_str().expect("a readable path").to_owned();
        let (first, rest): (Vec<String>, &[&str]) = match self.run {
            Run::Words(words) => (Vec::new(), words),
            Run::Sh(script) => (["sh", "-ec", script].map(str::to_owned).to_vec(), &[]),
            Run::Bash(script) => (["bash", "-c", script].map(str::to_owned).to_vec(), &[]),
            Run::Python(options, _) => (vec![path(&python.unwrap_or_default()), "-B".to_owned()], options),
            Run::App(name, arguments) => (vec![path(&dir.app(name))], arguments),
        };
        let mut words: Vec<&str> = first.iter().map(String::as_str).chain(rest.iter().copied()).collect();
        if matches!(self.run, Run::Python(..)) {
            words.push("script.py");
        }
        let (finished, report) = unchanged(&dir, prepare, &[], &words, self.but);
        let finished = finished.code(self.code);
        if self.seen == Seen::All {
            report.all_seen();
        }
        assert!(finished.stdout.contains(self.says), "no {:?} in {finished:#?}", self.says);
        for name in self.files {
            assert_eq!(report.file_bytes(name), size(&dir, name), "{name}");
        }
        (self.check)(&dir, &report);
    }
}

/// A test for each row.
macro_rules! programs {
    ($($(#[$note:meta])* $name:ident { $($field:ident: $value:expr),* $(,)? })*) => {$(
        #[test]
        $(#[$note])*
        fn $name() {
            Program { $($field: $value,)* ..PLAIN }.is_the_same();
        }
    )*};
}

mod languages;
mod rough;
mod sandboxes;
mod servers;
mod tools;

pub use servers::postgres;
