//! Sizes as real programs wrote them (strace; GCC 12, CPython 3.6 to 3.13, OpenJDK 17, Go 1.26).

use cawl_wire::{Event, FileKind, Op};

use super::*;

const PAGE: u32 = 4096;

/// Writes of these sizes, one behind the other.
fn fill(op: Op, sizes: impl IntoIterator<Item = u64>) -> Written {
    let mut written = Written::default();
    let mut offset = 0;
    for bytes in sizes {
        written.take(&write(op, offset, bytes));
        offset += bytes;
    }
    written
}

#[derive(Default)]
struct Written {
    fill: Option<Box<Fill>>,
    calls: u64,
    sought: bool,
}

impl Written {
    fn take(&mut self, event: &Event) -> bool {
        self.calls += 1;
        Fill::take(&mut self.fill, event, event.requested)
    }

    fn buffer(&self, language: Option<Language>, block: u32) -> Option<ProgramBuffer> {
        self.fill.as_ref()?.buffer(Seen { language, block, calls: self.calls, sought: self.sought })
    }
}

fn write(op: Op, offset: u64, bytes: u64) -> Event {
    let (kind, fd, pid, tid) = (FileKind::Regular, 3, 7, 7);
    Event { kind, fd, pid, tid, offset, requested: bytes, returned: bytes as i64, ..Event::new(op) }
}

/// Class, size in bytes, and whether that is certain.
fn buffer_of(fill: &Written, language: Option<Language>) -> Option<(String, u64, bool)> {
    fill.buffer(language, PAGE).map(|buffer| (buffer.class.into_owned(), buffer.bytes, buffer.certain))
}

fn repeated(size: u64, count: usize, last: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(size, count).chain([last])
}

#[test]
fn each_library_is_told_by_its_sizes() {
    let cycle = |sizes: &'static [u64]| sizes.iter().copied().cycle().take(40).chain([555]);
    let lines = [8193, 8192, 8194, 8196];
    let buffer = fill(Op::Writev, lines.into_iter().cycle().take(40).chain([555])).buffer(None, PAGE);
    let buffer = buffer.expect("libstdc++ has a shape of its own");
    assert_eq!((buffer.language, buffer.bytes, buffer.certain), (Language::Cpp, 8192, true));
    assert_eq!((buffer.writes, buffer.least, buffer.most, buffer.others), (40, 8192, 8196, 1));
    let python = Some(Language::Python);
    // Up to CPython 3.8 and from 3.13 on a line goes in before the layer is emptied, between these after it.
    for text in [&[8200, 8193, 8197][..], &[8188, 8192, 8190]] {
        let text = fill(Op::Write, cycle(text));
        assert_eq!(buffer_of(&text, python), Some((TEXT.to_owned(), 8192, true)));
    }
    assert_eq!(
        buffer_of(&fill(Op::Write, cycle(&[4090, 4081, 4096])), python),
        Some((BINARY.into(), 4096, true))
    );
    let default = fill(Op::Write, cycle(&[131_000, 131_072, 130_900]));
    assert_eq!(buffer_of(&default, python), Some((BINARY.into(), 131_072, true)));
    // The program chose the size.
    let chosen = fill(Op::Write, cycle(&[65_520, 65_501, 65_472]));
    assert_eq!(buffer_of(&chosen, python), Some((BINARY.into(), 65_536, false)));
    let data = fill(Op::Write, cycle(&[8188, 8192]));
    let (_, bytes, certain) = buffer_of(&data, Some(Language::Java)).expect("pieces of 4 and 8 bytes");
    assert_eq!((bytes, certain), (8192, true));
}

#[test]
fn what_a_program_can_do_itself_is_not_certain() {
    for (language, size) in [(Language::Java, 8192), (Language::Python, 4000), (Language::Go, 4096)] {
        let blocks = fill(Op::Write, repeated(size, 30, 600));
        let buffer = blocks.buffer(Some(language), PAGE).expect("it has the size of a buffer");
        assert!(!buffer.certain && buffer.writes == 30 && buffer.others == 1, "{buffer:?}");
    }
    // A BufferedWriter asks for its position before it writes.
    for (language, certain) in [(Language::Python, true), (Language::Java, false)] {
        let records = Written { sought: true, ..fill(Op::Write, repeated(8190, 30, 600)) };
        assert!(records.buffer(Some(language), PAGE).is_some_and(|buffer| buffer.certain == certain));
    }
    // The last block of a copy is another one, and no more certain for that.
    let copy = fill(Op::Write, repeated(8192, 5, 7000));
    assert!(copy.buffer(Some(Language::Java), PAGE).is_some_and(|buffer| !buffer.certain));
}

#[test]
fn sizes_alone_tell_nothing() {
    for size in [4096, 8192, 65_536, 131_072] {
        let blocks = fill(Op::Write, repeated(size, 100, 600));
        assert_eq!(buffer_of(&blocks, None), None, "dd and cp");
    }
    // No library chooses this size.
    assert_eq!(buffer_of(&fill(Op::Write, repeated(65_536, 100, 600)), Some(Language::Python)), None);
    assert_eq!(buffer_of(&fill(Op::Write, repeated(32_768, 100, 600)), Some(Language::Go)), None, "io.Copy");
    // musl's streams write a buffer of 1 KiB and a piece, too.
    assert_eq!(buffer_of(&fill(Op::Writev, (0..100).map(|n| 1024 + n % 30)), None), None);
    // Go fills its buffer to the end.
    let encoded = fill(Op::Write, (0..100).map(|n| 3500 + n * 6));
    assert_eq!(buffer_of(&encoded, Some(Language::Go)), None);
    for language in [None, Some(Language::Python), Some(Language::Java), Some(Language::Go)] {
        let mixed = (0..300).map(|n| n * 7919 % 20_011 + 1);
        assert_eq!(buffer_of(&fill(Op::Write, mixed.clone()), language), None);
        assert_eq!(buffer_of(&fill(Op::Writev, mixed), language), None);
        let mut pages = Written::default();
        for n in 0..300 {
            let offset = n * 7919 % 1009 * 8192;
            pages.take(&write(if n < 150 { Op::Write } else { Op::Pwrite }, offset, 8192));
        }
        assert_eq!(buffer_of(&pages, language), None, "pages of a database");
        assert_eq!(buffer_of(&fill(Op::Write, repeated(8192, 3, 600)), language), None, "too few");
    }
}

#[test]
fn flushes_are_told_from_full_buffers() {
    let flushed = fill(Op::Write, (0..90).map(|n| if n % 3 < 2 { 4000 } else { 3500 }));
    let buffer = flushed.buffer(Some(Language::Python), PAGE).expect("records of 100 bytes");
    assert!(buffer.is_full(4000) && !buffer.is_full(2000) && !buffer.is_full(9000), "{buffer:?}");
    let steady = fill(Op::Write, repeated(4000, 90, 3500));
    let buffer = steady.buffer(Some(Language::Python), PAGE).expect("records of 100 bytes");
    assert!(buffer.is_full(4000) && buffer.is_full(3990) && !buffer.is_full(3500), "{buffer:?}");
}

/// The sizes are those of one process: another one that fills a buffer begins anew, and most writes to the
/// file must be of it.
#[test]
fn processes_are_told_apart() {
    let mut shared = fill(Op::Write, repeated(8192, 30, 600));
    let by_other = |n: u64, bytes| Event { pid: 8, ..write(Op::Write, n * bytes, bytes) };
    assert!((0..10).all(|n| !shared.take(&by_other(n, 10))));
    assert!(buffer_of(&shared, Some(Language::Java)).is_some());
    for n in 0..30 {
        assert_eq!(shared.take(&by_other(n, 8192)), n == 0);
    }
    assert_eq!(buffer_of(&shared, Some(Language::Java)), None);
    for n in 30..60 {
        shared.take(&by_other(n, 8192));
    }
    assert!(buffer_of(&shared, Some(Language::Java)).is_some());
    assert_eq!(shared.fill.map(|fill| fill.pid), Some(8));
}

#[test]
fn interpreters_are_known_by_name() {
    for (program, language) in [
        ("/usr/bin/python3.11", Some(Language::Python)),
        ("python3.13t", Some(Language::Python)),
        ("python", Some(Language::Python)),
        ("/opt/jdk/bin/java", Some(Language::Java)),
        ("pythonista", None),
        ("javac", None),
        ("dd", None),
        ("", None),
    ] {
        assert_eq!(Language::of_program(program), language, "{program}");
    }
}
