//! A copied stack: what the daemon unwinds. It never goes over a socket, nor into a trace.

/// Most bytes of a stack that are copied.
pub const STACK_BYTES: usize = 8 << 10;
/// Most bytes of an interpreter's frames.
pub const INTERPRETER_BYTES: usize = 4 << 10;

/// Registers and stack of a thread within the tracer, after a call of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackRecord<'a> {
    /// When the call began that it is of ([`crate::Event::start`]), in the tracer's clock.
    pub start: u64,
    /// Address of the instruction.
    pub ip: u64,
    /// Stack pointer, where `stack` begins.
    pub sp: u64,
    /// Frame pointer: rbp on x86-64, x29 on AArch64.
    pub fp: u64,
    /// Link register of AArch64, else 0.
    pub lr: u64,
    /// The stack from `sp` on, at most [`STACK_BYTES`].
    pub stack: &'a [u8],
    /// Frames of an interpreter, innermost first ([`InterpreterFrames`]), at most [`INTERPRETER_BYTES`].
    pub interpreter: &'a [u8],
}

impl StackRecord<'_> {
    /// Length of what stands before the stack, in bytes: its numbers, and the length of the stack, of eight
    /// bytes each.
    pub const HEAD: usize = 48;
    /// Length of the longest, in bytes.
    pub const MAX: usize = StackRecord::HEAD + STACK_BYTES + INTERPRETER_BYTES;

    /// What stands before the stack.
    pub fn head(start: u64, [ip, sp, fp, lr]: [u64; 4], stack: u64) -> [[u8; 8]; 6] {
        [start, ip, sp, fp, lr, stack].map(u64::to_le_bytes)
    }

    /// Reads one; None if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<StackRecord<'_>> {
        let (head, rest) = bytes.split_first_chunk::<{ StackRecord::HEAD }>()?;
        let (words, _) = head.as_chunks::<8>();
        let mut numbers = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || numbers.next();
        let (start, ip, sp, fp, lr, length) = (next()?, next()?, next()?, next()?, next()?, next()?);
        let length = usize::try_from(length).ok().filter(|length| *length <= STACK_BYTES)?;
        let (stack, interpreter) = rest.split_at_checked(length)?;
        let fits = interpreter.len() <= INTERPRETER_BYTES;
        fits.then_some(StackRecord { start, ip, sp, fp, lr, stack, interpreter })
    }
}

/// A frame of an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterFrame<'a> {
    /// Line in the file; 0: not known.
    pub line: u32,
    /// The interpreter's function entered it anew: the frames further out are those of another of its frames.
    pub is_entry: bool,
    /// Name of the function, and of its file, as they lie in memory, with the bytes of a character: 1
    /// (Latin-1), 2 or 4.
    pub name: (&'a [u8], u8),
    /// The file.
    pub file: (&'a [u8], u8),
}

/// Reads what an interpreter's frames are: of each the line (u32), 1 if it was entered anew, the bytes of a
/// character of name and file (a byte each), zero, and the lengths of both (u16 each); then both.
#[derive(Clone, Copy, Debug)]
pub struct InterpreterFrames<'a>(pub &'a [u8]);

impl InterpreterFrames<'_> {
    /// Length of what stands before a name, in bytes.
    pub const HEAD: usize = 12;

    /// What stands before a name.
    pub const fn head(line: u32, is_entry: bool, widths: [u8; 2], lengths: [u16; 2]) -> [u8; 12] {
        let [a, b, c, d] = line.to_le_bytes();
        let ([e, f], [g, h]) = (lengths[0].to_le_bytes(), lengths[1].to_le_bytes());
        [a, b, c, d, is_entry as u8, widths[0], widths[1], 0, e, f, g, h]
    }
}

impl<'a> Iterator for InterpreterFrames<'a> {
    type Item = InterpreterFrame<'a>;

    fn next(&mut self) -> Option<InterpreterFrame<'a>> {
        let (head, rest) = self.0.split_first_chunk::<{ InterpreterFrames::HEAD }>()?;
        let [a, b, c, d, entry, name_width, file_width, _, e, f, g, h] = *head;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes([e, f]).into())?;
        let (file, rest) = rest.split_at_checked(u16::from_le_bytes([g, h]).into())?;
        self.0 = rest;
        Some(InterpreterFrame {
            line: u32::from_le_bytes([a, b, c, d]),
            is_entry: entry == 1,
            name: (name, name_width),
            file: (file, file_width),
        })
    }
}

/// Which calls have their stack copied, as a word of the ring's header has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Each call that takes at least as long, in ns; less than a minute.
    pub threshold: u64,
    /// One in so many of the others, at least 1.
    pub one_in: u32,
}

impl Wanted {
    /// The word if none has its stack copied.
    pub const NONE: u64 = 1;
    /// A threshold is less, in ns: 34 s.
    const LONGEST: u64 = 1 << 35;
    /// One in so many is less.
    const FEWEST: u32 = 1 << 28;
    /// In a word that says which.
    const SOME: u64 = 1 << 63;

    /// As a word: the threshold in its upper half, one in so many in the lower.
    pub fn pack(self) -> u64 {
        let threshold = self.threshold.min(Wanted::LONGEST - 1);
        Wanted::SOME | threshold << 28 | u64::from(self.one_in.clamp(1, Wanted::FEWEST - 1))
    }

    /// What a word says; None if none has its stack copied, or if it is not said yet.
    pub fn unpack(word: u64) -> Option<Wanted> {
        let one_in = word as u32 % Wanted::FEWEST;
        let threshold = (word & !Wanted::SOME) >> 28;
        (word & Wanted::SOME != 0 && one_in > 0).then_some(Wanted { threshold, one_in })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_one_word() {
        for wanted in [
            Wanted { threshold: 0, one_in: 1 },
            Wanted { threshold: 1_000_000, one_in: 64 },
            Wanted { threshold: Wanted::LONGEST - 1, one_in: Wanted::FEWEST - 1 },
        ] {
            assert_eq!(Wanted::unpack(wanted.pack()), Some(wanted));
            assert!(wanted.pack() != 0 && wanted.pack() != Wanted::NONE);
        }
        let most = Wanted { threshold: u64::MAX, one_in: u32::MAX };
        let bounded = Wanted { threshold: Wanted::LONGEST - 1, one_in: Wanted::FEWEST - 1 };
        assert_eq!(Wanted::unpack(most.pack()), Some(bounded));
        assert!([0, Wanted::NONE, 1 << 63].into_iter().all(|word| Wanted::unpack(word).is_none()));
    }

    #[test]
    fn an_interpreter_s_frames_are_read_as_far_as_they_are_whole() {
        let mut bytes = [0; 40];
        bytes[..12].copy_from_slice(&InterpreterFrames::head(7, true, [1, 2], [3, 4]));
        bytes[12..19].copy_from_slice(b"abcd\0e\0");
        bytes[19..31].copy_from_slice(&InterpreterFrames::head(0, false, [1, 1], [1, 900]));
        let frame = InterpreterFrame { line: 7, is_entry: true, name: (b"abc", 1), file: (b"d\0e\0", 2) };
        let mut frames = InterpreterFrames(&bytes);
        assert_eq!((frames.next(), frames.next()), (Some(frame), None));
        assert!((0..19).all(|end| InterpreterFrames(&bytes[..end]).next().is_none()));
    }
}
