//! The order of a file's calls: in sequence, in strides, or at random.
//!
//! A call is **sequential** if it begins where the thread's latest call on the file ended, or anyone's. Other
//! calls jump, from the beginning of the thread's latest sequence to a new one. Equal jumps are a **stride**,
//! from the third one on; the two before it count then, too. A stride may be negative, or zero: the same
//! place again. All else is **random**. A thread's first call on a file has no order.

use cawl_wire::{Event, Op};

use crate::tally::Tally;

/// Threads that are told apart in a file.
const ACTORS: usize = 8;
/// Equal jumps that make a stride.
const EQUAL: u8 = 3;

/// Calls by their place after the ones before.
#[derive(Clone, Copy, Default)]
pub(super) struct Order {
    pub(super) sequential: u64,
    pub(super) strided: u64,
    pub(super) random: u64,
    /// The most frequent stride, and how many more calls have it than others (Boyer and Moore's majority).
    stride: (i64, u64),
}

impl Order {
    /// The most frequent stride, in bytes.
    pub(super) fn stride(&self) -> Option<i64> {
        (self.strided > 0).then_some(self.stride.0)
    }

    fn strides(&mut self, stride: i64, calls: u64) {
        // The ones before it were taken for random.
        self.random -= (calls - 1).min(self.random);
        self.strided += calls;
        if self.stride.0 == stride || self.stride.1 == 0 {
            self.stride = (stride, self.stride.1 + calls);
        } else {
            self.stride.1 = self.stride.1.saturating_sub(calls);
        }
    }
}

/// The threads that use a file.
#[derive(Default)]
pub(super) struct Actors {
    list: Vec<Actor>,
    /// Which of them made the latest call.
    latest: usize,
    /// Where the latest write and the latest read ended.
    ends: [u64; 2],
    /// Writes of threads that are not told apart any more, and their bytes.
    pub(super) others: Tally,
}

/// A thread that writes a file, or reads it.
pub(super) struct Actor {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) reads: bool,
    pub(super) count: Tally,
    /// Where its latest call ended.
    end: u64,
    /// Where its latest sequence began.
    began: u64,
    /// From the beginning of the sequence before to that.
    jump: i64,
    /// So many equal jumps, up to [`EQUAL`], all in this operation.
    equal: u8,
    op: Op,
    /// No place of it is known.
    is_new: bool,
    /// When it made its latest call, in ns.
    at: u64,
}

impl Actors {
    /// A call of these bytes at `offset`, if that is known.
    #[inline]
    pub(super) fn act(&mut self, event: &Event, bytes: u64, offset: Option<u64>, order: &mut Order) {
        let reads = matches!(event.op, Op::Read | Op::Pread);
        let is = |actor: &Actor| actor.tid == event.tid && actor.pid == event.pid && actor.reads == reads;
        if !self.list.get(self.latest).is_some_and(is) {
            self.latest = self.list.iter().position(is).unwrap_or_else(|| self.meet(event, reads));
        }
        let actor = &mut self.list[self.latest];
        actor.count.add(bytes);
        actor.at = event.start;
        let Some(offset) = offset else { return };
        let end = offset.saturating_add(bytes);
        let last = std::mem::replace(&mut self.ends[usize::from(reads)], end);
        if std::mem::take(&mut actor.is_new) {
            (actor.began, actor.op) = (offset, event.op);
        } else if offset == actor.end || offset == last {
            order.sequential += 1;
            if offset != actor.end {
                actor.began = offset;
            }
        } else {
            let jump = offset.wrapping_sub(actor.began) as i64;
            actor.began = offset;
            if actor.equal > 0 && jump == actor.jump && actor.op == event.op {
                actor.equal = (actor.equal + 1).min(EQUAL + 1);
            } else {
                (actor.jump, actor.equal, actor.op) = (jump, 1, event.op);
            }
            match actor.equal {
                ..EQUAL => order.random += 1,
                EQUAL => order.strides(jump, u64::from(EQUAL)),
                _ => order.strides(jump, 1),
            }
        }
        actor.end = end;
    }

    /// Place of a thread that is met for the first time; the one longest away makes room.
    #[cold]
    fn meet(&mut self, event: &Event, reads: bool) -> usize {
        let &Event { pid, tid, op, start: at, .. } = event;
        let (count, end, began, jump, equal, is_new) = (Tally::default(), 0, 0, 0, 0, true);
        let actor = Actor { pid, tid, reads, count, end, began, jump, equal, op, is_new, at };
        if self.list.len() < ACTORS {
            self.list.reserve_exact(1);
            self.list.push(actor);
            return self.list.len() - 1;
        }
        let longest = (0..ACTORS).min_by_key(|at| self.list[*at].at).unwrap_or(0);
        let left = std::mem::replace(&mut self.list[longest], actor);
        if !left.reads {
            self.others.add_all(left.count);
        }
        longest
    }

    /// The threads that write, those with most bytes first.
    pub(super) fn writers(&self) -> Vec<&Actor> {
        let mut writers: Vec<&Actor> = self.list.iter().filter(|actor| !actor.reads).collect();
        writers.sort_by_key(|actor| (std::cmp::Reverse(actor.count.bytes), actor.tid));
        writers
    }
}
