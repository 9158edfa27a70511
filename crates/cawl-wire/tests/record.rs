//! Whatever calls a thread makes, the daemon reads out of its ring what was put there, to the last field.

use std::cell::RefCell;

use cawl_wire::ring::{
    Begun, CELL_LEN, CHUNK_CELLS, CHUNK_LEN, Call, CoalescedCalls, Expected, Follower, HEAD_AT,
    LONGEST_CELLS, MODULES, Memory, NAME_CELLS, NAME_HEAD, PIECE_HEAD, Position, RingError, RingHeader,
    SHAPE, SHORT, STACK, Taker, WHOLE_CELLS, end, name_cells, name_head, piece_cells, piece_head, whole,
};
use cawl_wire::stack::{INTERPRETER_BYTES, STACK_BYTES, StackRecord};
use cawl_wire::{Anchor, Event, FileId, FileKind, FileRecord, MAX_BYTES, Op, UNKNOWN_OFFSET, flag};
use proptest::prelude::*;

/// A file whose calls are coalescible.
const SUMMED: u64 = 4;

const HEADER: RingHeader = RingHeader { slots: 1, chunks: 16 };

/// The shared memory, in the process's own.
struct Shared(RefCell<Vec<u8>>);

impl Memory for Shared {
    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        out.copy_from_slice(&self.0.borrow()[at as usize..][..out.len()]);
        true
    }

    fn write(&self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }
}

impl Shared {
    fn new() -> Shared {
        Shared(RefCell::new(vec![0; HEADER.total() as usize]))
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.0.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// A thread, as the tracer's is.
struct Thread<'a> {
    memory: &'a Shared,
    position: Position,
    begun: Begun,
    free: Vec<u16>,
    index: u16,
    before: Option<(Event, Expected)>,
}

impl Thread<'_> {
    fn new(memory: &Shared) -> Thread<'_> {
        let position = Position { chunk: 0, cell: CHUNK_CELLS };
        let free = (0..HEADER.chunks as u16).rev().collect();
        Thread { memory, position, begun: Begun::START, free, index: 0, before: None }
    }

    fn make_room(&mut self) {
        if !SHAPE.ends_at(self.position.cell) {
            return;
        }
        let mut head = [0; 8];
        self.memory.read(HEADER.control(0) + HEAD_AT as u64, &mut head);
        let head = Position::unpack(u64::from_le_bytes(head));
        while self.begun.is_oldest_read(head) {
            let mut index = [0; 2];
            self.memory.read(HEADER.order(0, self.begun.oldest), &mut index);
            self.free.push(u16::from_le_bytes(index));
            self.begun.oldest += 1;
        }
        let next = self.begun.next;
        self.index = self.free.pop().filter(|_| self.begun.may_begin(SHAPE)).expect("room");
        self.memory.put(HEADER.order(0, next), &self.index.to_le_bytes());
        self.position = Position { chunk: next, cell: 0 };
        self.begun.next += 1;
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        let at = HEADER.chunk(self.index.into()) + u64::from(self.position.cell) * CELL_LEN as u64;
        self.memory.put(at, bytes);
        self.position.cell += (bytes.len() / CELL_LEN) as u32;
    }

    /// Returns true if the event was told short.
    fn put(&mut self, event: &Event) -> bool {
        self.make_room();
        let stream = event.has(flag::STREAM_KNOWN);
        let call = Call {
            start: event.start,
            duration: event.duration,
            offset: event.offset,
            requested: event.requested,
            returned: event.returned,
            pending: stream.then_some((event.pending_before, event.pending_after)),
        };
        let short = self.before.filter(|(before, _)| alike(before, event)).and_then(|(_, expected)| {
            let words = expected.shorten(self.position.chunk, &call)?;
            Some((words, expected.next(event.start, event.requested as u32, stream)))
        });
        if let Some((words, expected)) = short {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.put_bytes(&bytes);
            self.before = Some((*event, expected));
            return true;
        }
        self.put_bytes(&whole(self.position.chunk, &event.encode()));
        self.before = Some((*event, Expected::after(event)));
        false
    }

    /// A name, in another chunk if the longest would not fit.
    fn name(&mut self, file: &FileRecord<'_>) {
        self.make_room();
        if self.position.cell + NAME_CELLS + WHOLE_CELLS > CHUNK_CELLS {
            self.end_chunk();
            self.make_room();
        }
        let mut record = vec![0; NAME_CELLS as usize * CELL_LEN];
        let length = file.encode(&mut record[NAME_HEAD..]).expect("room") as u16;
        record[..NAME_HEAD].copy_from_slice(&name_head(self.position.chunk, length));
        self.put_bytes(&record[..name_cells(length) as usize * CELL_LEN]);
    }

    fn piece(&mut self, code: u8, body: &[u8]) {
        self.make_room();
        if self.position.cell + LONGEST_CELLS + WHOLE_CELLS > CHUNK_CELLS {
            self.end_chunk();
            self.make_room();
        }
        let cells = piece_cells(body.len() as u16);
        let mut record = piece_head(self.position.chunk, code, body.len() as u16).to_vec();
        assert_eq!(record.len(), PIECE_HEAD);
        record.extend(body);
        record.resize(cells as usize * CELL_LEN, 0);
        self.put_bytes(&record);
    }

    fn end_chunk(&mut self) {
        self.put_bytes(&end(self.position.chunk));
        self.position.cell = CHUNK_CELLS;
    }

    fn mark(&mut self, anchor: &Anchor) {
        self.make_room();
        self.put_bytes(&whole(self.position.chunk, &anchor.encode()));
    }
}

/// Equal in all that a short record says nothing about.
fn alike(one: &Event, other: &Event) -> bool {
    let rest = |event: &Event| Event {
        start: 0,
        duration: 0,
        offset: 0,
        requested: 0,
        returned: 0,
        pending_before: if event.has(flag::STREAM_KNOWN) { 0 } else { event.pending_before },
        pending_after: if event.has(flag::STREAM_KNOWN) { 0 } else { event.pending_after },
        ..*event
    };
    rest(one) == rest(other)
}

/// What was read. Calls to one of the two files are coalescible, if any are.
#[derive(Debug, Default)]
struct Found {
    events: Vec<Event>,
    coalesced: Vec<CoalescedCalls>,
    /// Inode numbers and paths, and how many events came before.
    files: Vec<(u64, Vec<u8>, usize)>,
    damaged: usize,
    anchors: usize,
    /// Instruction pointer, stack and interpreter's frames.
    stacks: Vec<(u64, Vec<u8>, Vec<u8>)>,
    modules: Vec<u8>,
    most: usize,
    coalesces: bool,
}

impl Taker for Found {
    fn room(&self) -> usize {
        self.most.saturating_sub(self.events.len() + self.coalesced.len())
    }

    fn is_coalescible(&self, event: &Event) -> bool {
        self.coalesces && event.ino == SUMMED
    }

    fn event(&mut self, event: &Event) {
        assert!(self.room() > 0);
        self.events.push(*event);
    }

    fn anchor(&mut self, _anchor: Anchor) {
        self.anchors += 1;
    }

    fn damaged(&mut self) {
        self.damaged += 1;
    }

    fn file(&mut self, file: &FileRecord<'_>) {
        self.files.push((file.file.ino, file.path.to_vec(), self.events.len()));
    }

    fn coalesced(&mut self, calls: &CoalescedCalls) {
        assert!(self.room() > 0);
        self.coalesced.push(*calls);
    }

    fn stack(&mut self, stack: &StackRecord<'_>) -> u32 {
        self.stacks.push((stack.ip, stack.stack.to_vec(), stack.interpreter.to_vec()));
        self.stacks.len() as u32
    }

    fn modules(&mut self, lines: &[u8]) {
        self.modules.extend(lines);
    }
}

/// Reads up to `tail`, in pieces: of so many cells, with room for so many events.
fn read_all(
    memory: &Shared,
    follower: &mut Follower,
    tail: Position,
    (cells, room): (usize, usize),
    found: &mut Found,
) {
    let mut cells = vec![[0; CELL_LEN]; cells];
    loop {
        found.most = found.events.len() + found.coalesced.len() + room;
        let read = follower.read(memory, HEADER, tail, &mut cells, found).expect("records");
        follower.release(memory, HEADER);
        if read == 0 {
            assert!(follower.is_at(tail));
            return;
        }
    }
}

/// A call that mostly goes on as the last one did, and now and then does not.
#[derive(Clone, Debug)]
struct Step {
    gap: u64,
    duration: u64,
    requested: u64,
    odd: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length =
        prop_oneof![8 => 0u64..5000, 1 => any::<u32>().prop_map(u64::from), 1 => 0..=MAX_BYTES as u64];
    let gap = prop_oneof![9 => 0u64..100_000, 1 => any::<u64>()];
    let duration = prop_oneof![9 => 0u64..100_000, 1 => any::<u64>()];
    let step = (gap, duration, length, 0..24u8).prop_map(|(gap, duration, requested, odd)| Step {
        gap,
        duration,
        requested,
        odd,
    });
    prop::collection::vec(step, 0..300)
}

/// The calls that these steps make: of a stream, or of a descriptor.
fn calls(steps: &[Step], stream: bool, unknown: bool) -> Vec<Event> {
    let mut event = Event::new(if stream { Op::StreamWrite } else { Op::Write });
    (event.dev, event.ino, event.fd, event.pid, event.tid) = (3, SUMMED, 5, 6, 7);
    (event.kind, event.flags) = (FileKind::Regular, flag::WRITABLE);
    event.offset = if unknown { UNKNOWN_OFFSET } else { 1000 };
    if stream {
        (event.flags, event.buffer) = (event.flags | flag::STREAM_KNOWN, 4096);
    }
    let mut all = Vec::new();
    for step in steps {
        let expected = Expected::after(&event);
        (event.offset, event.pending_before) = (expected.offset, expected.pending);
        event.start = event.start.wrapping_add(step.gap);
        (event.duration, event.requested) = (step.duration, step.requested);
        (event.returned, event.errno) = (step.requested as i64, 0);
        if stream {
            event.pending_after = event.pending_before.wrapping_add(step.requested as u32);
        }
        match step.odd {
            0 => (event.returned, event.errno) = (-1, 28),
            1 => event.returned = (step.requested / 2) as i64,
            2 => event.offset = event.offset.wrapping_add(step.gap),
            3 => event.fd += 1,
            4 => event.start = event.start.wrapping_sub(200_000),
            5 => event.pending_after = 17,
            6 => event.aux = step.gap as u32,
            7 if step.gap.is_multiple_of(2) => event.birth ^= 1,
            7 => event.ino ^= 1,
            8 => event.offset = UNKNOWN_OFFSET,
            9 => event.buffer += 1,
            10 => event.tid ^= 1,
            _ => {}
        }
        all.push(event);
    }
    all
}

/// Chunks are mapped and emptied one by one, so they lie at whole pages, also of 64 KiB.
#[test]
fn chunks_lie_at_whole_pages() {
    for slots in [1, 7, 256, cawl_wire::ring::MAX_SLOTS] {
        let header = RingHeader { slots, chunks: 3 };
        assert!((0..3).all(|chunk| header.chunk(chunk).is_multiple_of(64 << 10)));
        assert!(header.chunk(0) >= header.order(slots, 0));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        steps in steps(),
        stream: bool,
        unknown: bool,
        coalesces: bool,
        cells in 6usize..90,
        room in 1usize..90,
        looks in 1usize..60,
    ) {
        let memory = Shared::new();
        let mut thread = Thread::new(&memory);
        let mut follower = Follower::new(0);
        let calls = calls(&steps, stream, unknown);
        let mut found = Found { coalesces, ..Found::default() };
        for (number, event) in calls.iter().enumerate() {
            if number % 50 == 7 {
                thread.mark(&Anchor { ticks: event.start, nanos: 1 });
            }
            thread.put(event);
            if number % looks == 0 {
                read_all(&memory, &mut follower, thread.position, (cells, room), &mut found);
            }
        }
        if !calls.is_empty() {
            read_all(&memory, &mut follower, thread.position, (cells, room), &mut found);
        }
        prop_assert_eq!((found.damaged, found.anchors), (0, (calls.len() + 42) / 50));
        if !coalesces {
            prop_assert_eq!(&found.events, &calls);
        }
        // Coalesced calls come to the same.
        let mut told = found.events.iter();
        let mut coalesced = found.coalesced.iter();
        let mut next = told.next();
        let mut at = 0;
        while let Some(call) = calls.get(at) {
            if next == Some(call) {
                (next, at) = (told.next(), at + 1);
                continue;
            }
            let sum = coalesced.next().expect("the call is told or coalesced");
            let added = &calls[at..at + sum.calls as usize];
            prop_assert!(added.iter().all(|call| alike(call, &sum.like) && call.ino == SUMMED));
            prop_assert_eq!(added.iter().map(|call| call.requested).sum::<u64>(), sum.bytes);
            prop_assert!(added.iter().all(|call| call.returned as u64 == call.requested));
            prop_assert!(!stream || added.iter().all(|call| call.flushed() == Some(0)));
            prop_assert_eq!((added[0].start, added[added.len() - 1].start), (sum.first, sum.last));
            prop_assert_eq!(added.iter().map(Event::end).max(), Some(sum.end));
            prop_assert_eq!(added.iter().map(|call| call.duration).sum::<u64>(), sum.duration);
            at += added.len();
        }
        prop_assert!(next.is_none() && coalesced.next().is_none());
    }

    /// Names stand between the calls as they were put there, also where one does not fit into its chunk.
    #[test]
    fn names_are_read_where_they_stand(
        steps in steps(),
        names in prop::collection::vec((0..400usize, 0..=FileRecord::PATH, any::<u64>()), 0..30),
        ends in 1usize..90,
        cells in NAME_CELLS as usize..400,
        room in 1usize..90,
    ) {
        let memory = Shared::new();
        let mut thread = Thread::new(&memory);
        let mut follower = Follower::new(0);
        let calls = calls(&steps, false, false);
        let mut found = Found::default();
        let mut expected = Vec::new();
        for (number, event) in calls.iter().enumerate() {
            for (_, length, ino) in names.iter().filter(|(at, ..)| *at == number) {
                let path = vec![b'x'; *length];
                let file = FileId::new(5, *ino);
                thread.name(&FileRecord { file, renamed: false, size: 1, block: 2, mode: 3, path: &path });
                expected.push((*ino, path, number));
            }
            thread.put(event);
            if number % ends == 0 {
                if !SHAPE.ends_at(thread.position.cell) {
                    thread.end_chunk();
                }
                read_all(&memory, &mut follower, thread.position, (cells, room), &mut found);
            }
        }
        if !calls.is_empty() {
            read_all(&memory, &mut follower, thread.position, (cells, room), &mut found);
        }
        prop_assert_eq!(&found.events, &calls);
        prop_assert_eq!(&found.files, &expected);
        prop_assert_eq!(found.damaged, 0);
    }

    /// A stack belongs to the call behind it, if it is that call's, and to no other.
    #[test]
    fn stacks_are_read_with_their_calls(
        steps in steps(),
        stacks in prop::collection::vec((0..300usize, 0..=STACK_BYTES, 0..=INTERPRETER_BYTES, any::<bool>()), 0..40),
        cells in LONGEST_CELLS as usize..2000,
        room in 1usize..90,
        looks in 1usize..60,
    ) {
        let memory = Shared::new();
        let mut thread = Thread::new(&memory);
        let mut follower = Follower::new(0);
        let calls = calls(&steps, false, false);
        let mut found = Found::default();
        let (mut expected, mut wanted) = (Vec::new(), Vec::new());
        for (number, event) in calls.iter().enumerate() {
            let mut of_this = 0;
            for (_, length, more, is_its) in stacks.iter().filter(|(at, ..)| *at == number) {
                let start = if *is_its { event.start } else { event.start.wrapping_add(1) };
                let ip = expected.len() as u64 + 7;
                let (stack, interpreter) = (vec![b's'; *length], vec![b'i'; *more]);
                let mut body = StackRecord::head(start, [ip, 2, 3, 4], *length as u64).concat();
                body.extend(stack.iter().chain(&interpreter));
                thread.piece(STACK, &body);
                thread.piece(MODULES, b"line\n");
                expected.push((ip, stack, interpreter));
                of_this = if *is_its { expected.len() as u32 } else { 0 };
                // The next one is told whole.
                thread.before = None;
            }
            thread.put(event);
            wanted.push(Event { stack: of_this, ..*event });
            if number % looks == 0 {
                read_all(&memory, &mut follower, thread.position, (cells, room), &mut found);
            }
        }
        if !calls.is_empty() {
            read_all(&memory, &mut follower, thread.position, (cells, room), &mut found);
        }
        prop_assert_eq!(&found.events, &wanted);
        prop_assert_eq!(found.modules.len(), 5 * expected.len());
        prop_assert_eq!(&found.stacks, &expected);
        prop_assert_eq!(found.damaged, 0);
    }

    /// Whatever lengths a stack claims: one within its bounds, or none.
    #[test]
    fn a_stack_of_any_length_is_damaged_or_within_bounds(
        claimed in prop_oneof![0..10_000u64, any::<u64>()],
        length in 0..14_000usize,
        cut in 0..StackRecord::HEAD,
    ) {
        let mut body = StackRecord::head(1, [2, 3, 4, 5], claimed).concat();
        prop_assert_eq!(StackRecord::decode(&body[..cut]), None);
        body.resize(StackRecord::HEAD + length, 7);
        let found = StackRecord::decode(&body);
        let more = (length as u64).checked_sub(claimed).filter(|more| *more <= INTERPRETER_BYTES as u64);
        prop_assert_eq!(found.is_some(), more.is_some() && claimed <= STACK_BYTES as u64);
        if let Some(stack) = found {
            prop_assert_eq!((stack.stack.len() as u64, stack.interpreter.len() as u64), (claimed, more.unwrap()));
        }
    }

    /// Random bytes as records: an error or events, never a panic, and an end.
    #[test]
    fn nonsense_is_read_to_an_end(words in prop::collection::vec((0..8u8, any::<u32>()), 0..400), cell in 0..500u32) {
        let memory = Shared::new();
        for (place, (kind, word)) in words.iter().enumerate() {
            let head = u64::from_le_bytes(name_head(1, *word as u16));
            let piece = |code| u64::from_le_bytes(piece_head(1, code, (*word % 700) as u16)) >> 32;
            let word = match kind { 0 => 1, 6 => piece(STACK) as u32, 7 => piece(MODULES) as u32, 1 => SHORT | 1, 2 => (head >> 32) as u32, 3 => end(1)[4].into(), _ => *word };
            memory.put(HEADER.chunk(0) + 4 * place as u64, &word.to_le_bytes());
        }
        let mut follower = Follower::new(0);
        let mut cells = [[0; CELL_LEN]; 300];
        loop {
            let mut found = Found { most: 50, coalesces: cell % 2 == 0, ..Found::default() };
            let read = follower.read(&memory, HEADER, Position { chunk: 1, cell }, &mut cells, &mut found);
            if !read.is_ok_and(|count| count > 0) {
                break;
            }
        }
    }
}

/// Calls of a kind take a cell each, over the ends of chunks too.
#[test]
fn calls_alike_take_one_cell_each() {
    const COUNT: usize = 40_000;
    for stream in [false, true] {
        let memory = Shared::new();
        let mut thread = Thread::new(&memory);
        let mut follower = Follower::new(0);
        let step = Step { gap: 90, duration: 30, requested: 16, odd: 255 };
        let calls = calls(&vec![step; COUNT], stream, false);
        let mut found = Found::default();
        let mut short = 0;
        for (number, event) in calls.iter().enumerate() {
            short += usize::from(thread.put(event));
            if number % 10_000 == 9_999 {
                read_all(&memory, &mut follower, thread.position, (4096, 682), &mut found);
            }
        }
        assert_eq!(short, COUNT - 1);
        assert!(thread.position.chunk as usize == 1 + COUNT * CELL_LEN / CHUNK_LEN, "{:?}", thread.position);
        assert!(found.events == calls);
    }
}

#[test]
fn a_damaged_record_is_told_and_nothing_continues_it() {
    let memory = Shared::new();
    let mut damaged = Event::new(Op::Write).encode();
    damaged[88] = 254;
    let records = [whole(1, &Event::new(Op::Write).encode()), whole(1, &damaged)].concat();
    memory.put(HEADER.chunk(0), &records);
    let mut follower = Follower::new(0);
    let mut found = Found { most: 50, ..Found::default() };
    let mut read = |cell| {
        let mut cells = [[0; CELL_LEN]; 50];
        follower.read(&memory, HEADER, Position { chunk: 1, cell }, &mut cells, &mut found)
    };
    assert_eq!(read(2 * WHOLE_CELLS), Ok(2 * WHOLE_CELLS));
    memory.put(HEADER.chunk(0) + records.len() as u64, &(SHORT | 1).to_le_bytes());
    assert_eq!(read(2 * WHOLE_CELLS + 1), Err(RingError::Stamp));
    assert_eq!((found.events.len(), found.damaged), (1, 1));
}

#[test]
fn what_goes_on_from_nothing_or_breaks_off_is_refused() {
    let memory = Shared::new();
    let read = |cell| {
        let mut cells = [[0; CELL_LEN]; 50];
        let mut found = Found { most: 50, ..Found::default() };
        Follower::new(0).read(&memory, HEADER, Position { chunk: 1, cell }, &mut cells, &mut found)
    };
    memory.put(HEADER.chunk(0), &(SHORT | 1).to_le_bytes());
    assert_eq!(read(1), Err(RingError::Stamp), "short, and the first");
    memory.put(HEADER.chunk(0), &whole(1, &Event::new(Op::Write).encode()));
    assert_eq!(read(WHOLE_CELLS - 1), Err(RingError::Stamp), "longer than the tail says");
    assert_eq!(read(WHOLE_CELLS), Ok(WHOLE_CELLS));
    memory.put(HEADER.chunk(0), &whole(2, &Event::new(Op::Write).encode()));
    assert_eq!(read(WHOLE_CELLS), Err(RingError::Stamp), "of another chunk");
}

/// A reader believes no length, no bound and no sequence number, and takes any bytes for a path.
#[test]
fn hostile_names_are_refused_or_damaged() {
    let memory = Shared::new();
    let read = |cell| {
        let mut cells = [[0; CELL_LEN]; 300];
        let mut found = Found { most: 50, ..Found::default() };
        let read =
            Follower::new(0).read(&memory, HEADER, Position { chunk: 1, cell }, &mut cells, &mut found);
        read.map(|cells| (cells, found.files, found.damaged))
    };
    let put = |chunk: u32, length: u16, path: u16, text: &[u8]| {
        let mut record = name_head(chunk, length).to_vec();
        record.extend([0; 40]);
        record.extend(path.to_le_bytes());
        record.extend(text);
        memory.put(HEADER.chunk(0), &record);
    };
    put(1, 44, 2, b"\xff\xfe");
    assert_eq!(read(4), Ok((4, vec![(0, b"\xff\xfe".to_vec(), 0)], 0)), "not UTF-8");
    assert_eq!(read(3), Err(RingError::Stamp), "longer than the tail says");
    put(1, 44, 3, b"ab");
    assert_eq!(read(4), Ok((4, vec![], 1)), "a path longer than its record");
    put(1, 10, 0, b"");
    assert_eq!(read(2), Ok((2, vec![], 1)), "no whole file record");
    put(1, u16::MAX, 0, b"");
    assert_eq!(read(400), Err(RingError::Stamp), "longer than any name");
    put(2, 44, 2, b"ab");
    assert_eq!(read(4), Err(RingError::Stamp), "of another chunk");
    memory.put(HEADER.chunk(0), &end(1));
    let mut follower = Follower::new(0);
    let mut read = |cell| {
        let mut cells = [[0; CELL_LEN]; 300];
        let tail = Position { chunk: 1, cell };
        follower.read(&memory, HEADER, tail, &mut cells, &mut Found { most: 50, ..Found::default() })
    };
    assert!(read(9).is_ok());
    assert_eq!(read(9), Err(RingError::Tail), "the thread ended the chunk and is still in it");
}
