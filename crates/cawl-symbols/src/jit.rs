//! Code that was made as the program ran, by the map that it writes for perf: CPython since 3.12
//! (PYTHONPERFSUPPORT), Node (--perf-basic-prof), the JVM (-XX:+DumpPerfMapAtExit, jcmd).

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cawl_model::record::Frame;

/// Most bytes and entries of a map.
const MAX: u64 = 64 << 20;
const ENTRIES: usize = 1 << 20;
const LONGEST: usize = 512;

/// A map of /tmp/perf-PID.map.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// First address, length, name; in order.
    entries: Vec<(u64, u64, Box<str>)>,
}

impl PerfMap {
    /// Reads the map of a process, whose number in its own namespace is `inner`, that belongs to this user.
    /// May wait for a filesystem.
    pub fn read(pid: u32, inner: u32, uid: u32) -> Option<PerfMap> {
        let name = format!("tmp/perf-{inner}.map");
        let inside = PathBuf::from(format!("/proc/{pid}/root")).join(&name);
        [inside, Path::new("/").join(&name)].iter().find_map(|path| PerfMap::read_file(path, uid))
    }

    fn read_file(path: &Path, uid: u32) -> Option<PerfMap> {
        use rustix::fs::OFlags;
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || found.uid() != uid {
            return None;
        }
        let mut text = Vec::new();
        file.take(MAX).read_to_end(&mut text).ok()?;
        Some(PerfMap::parse(&text))
    }

    /// Reads its lines: address and length in hexadecimal digits, and a name. Later lines replace earlier
    /// ones.
    pub fn parse(text: &[u8]) -> PerfMap {
        let line = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (address, length) = (number()?, number()?);
            Some((address, length, words.next()?.chars().take(LONGEST).collect()))
        };
        let mut entries: Vec<(u64, u64, Box<str>)> =
            text.split(|byte| *byte == b'\n').filter_map(line).take(ENTRIES).collect();
        entries.sort_by_key(|(address, ..)| *address);
        PerfMap { entries }
    }

    fn entry(&self, address: u64) -> Option<&str> {
        let end = self.entries.partition_point(|(first, ..)| *first <= address);
        let (first, length, name) = self.entries.get(..end)?.last()?;
        (address - first < *length).then_some(name)
    }

    /// What the map has at this address.
    pub fn find(&self, address: u64) -> Option<Frame> {
        self.entry(address).map(named)
    }

    /// True if trampolines of CPython's are among these addresses.
    pub(crate) fn has_trampolines(&self, addresses: Range<u64>) -> bool {
        let first = self.entries.partition_point(|(first, ..)| *first < addresses.start);
        let first = self.entries.get(first).filter(|(first, ..)| addresses.contains(first));
        first.is_some_and(|(.., name)| name.starts_with("py::"))
    }

    /// True if it is a trampoline of CPython's, whose frame is 16 bytes of the stack.
    pub(crate) fn is_trampoline(&self, address: u64) -> bool {
        self.entry(address).is_some_and(|name| name.starts_with("py::"))
    }
}

/// CPython's name of a function has its file (`py::function:/path/file.py`); that of a script of Node's is
/// `JS:*function /path/file.js:line:column`.
fn named(name: &str) -> Frame {
    let of = |function: &str, file: Option<&str>, line: Option<u32>| Frame {
        function: Some(function.to_owned()).filter(|name| !name.is_empty()),
        file: file.map(str::to_owned),
        line,
        ..Frame::default()
    };
    if let Some((function, file)) = name.strip_prefix("py::").and_then(|name| name.split_once(':')) {
        return of(function, Some(file), None);
    }
    if let Some((kind, script)) = name.split_once(':')
        && matches!(kind, "JS" | "LazyCompile" | "Function" | "Script" | "Eval")
    {
        let script = script.trim_start_matches(['*', '~', '^', '+']);
        let (function, place) = script.split_once(' ').unwrap_or((script, ""));
        let mut parts = place.rsplitn(3, ':');
        let (_column, line, file) =
            (parts.next(), parts.next().and_then(|line| line.parse().ok()), parts.next());
        return of(function, file, line);
    }
    of(name, None, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interpreters_are_understood() {
        let map = PerfMap::parse(
            b"7f00 10 py::save:/srv/app.py\n8000 0x20 JS:*flush /srv/a b.js:12:3\n9000 8 java.io.F::w\nnonsense\nffffffffffffffff f x\n",
        );
        let found = map.find(0x7f0f).unwrap();
        assert_eq!((found.function.as_deref(), found.file.as_deref()), (Some("save"), Some("/srv/app.py")));
        let found = map.find(0x801f).unwrap();
        assert_eq!(
            (found.function.as_deref(), found.file.as_deref(), found.line),
            (Some("flush"), Some("/srv/a b.js"), Some(12))
        );
        assert_eq!(map.find(0x9000).unwrap().function.as_deref(), Some("java.io.F::w"));
        assert!(map.find(0x7f10).is_none() && map.find(0).is_none());
        assert!(map.is_trampoline(0x7f00) && !map.is_trampoline(0x9000));
    }
}
