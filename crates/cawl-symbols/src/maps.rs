//! Lines of /proc/PID/maps.

use std::path::PathBuf;

/// Code that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address, and the one behind the last.
    pub range: std::ops::Range<u64>,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Device of the file, as `st_dev`, and its inode number; zeros without a file.
    pub id: (u64, u64),
    /// The file's path in the process's mount namespace; None of code that was made as the program ran.
    pub path: Option<PathBuf>,
}

/// Reads the lines of code; others, and what is no line, are left out.
pub fn parse(lines: &[u8]) -> impl Iterator<Item = Mapping> {
    lines.split(|byte| *byte == b'\n').filter_map(line)
}

fn line(line: &[u8]) -> Option<Mapping> {
    use std::os::unix::ffi::OsStrExt;
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut word = || words.next().and_then(|word| std::str::from_utf8(word).ok());
    let (first, end) = word()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (range, permissions) = (hex(first)?..hex(end)?, word()?);
    let (offset, device, ino) = (hex(word()?)?, word()?, word()?.parse().ok()?);
    let (major, minor) = device.split_once(':')?;
    let dev = rustix::fs::makedev(u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?);
    let path = words.next().map_or(&b""[..], <[u8]>::trim_ascii_start);
    let path = path.starts_with(b"/").then(|| {
        // The kernel writes a line feed in a path as \012, and no other character so.
        let plain = std::ffi::OsStr::from_bytes(path);
        plain.to_str().map_or_else(|| PathBuf::from(plain), |text| text.replace("\\012", "\n").into())
    });
    let is_code = permissions.as_bytes().get(2) == Some(&b'x') && range.start < range.end;
    is_code.then_some(Mapping { range, offset, id: (dev, ino), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_nonsense_is_not() {
        let text = b"7f00-8000 r-xp 00001000 fe:01 123                  /usr/lib/a b.so\n8000-9000 r--p 0 fe:01 123 /x\n\
            9000-a000 rwxp 00000000 00:00 0 \nnonsense\na000-9000 r-xp 0 0:0 1 /y\n7f-80 r-xp 0\n";
        let found: Vec<Mapping> = parse(text).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].range, 0x7f00..0x8000);
        assert_eq!((found[0].offset, found[0].id), (0x1000, (rustix::fs::makedev(0xfe, 1), 123)));
        assert_eq!(found[0].path.as_deref(), Some("/usr/lib/a b.so".as_ref()));
        assert_eq!((&found[1].path, found[1].id.1), (&None, 0));
    }
}
