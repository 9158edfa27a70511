//! The ring's protocol under every order in which two processors may see each other's stores.
//!
//! The ring here has two chunks of three cells, and records of one cell and of two, some of which, like
//! names, go on in another chunk although this one has room; what decides (`unread`, `Begun`) is the code in
//! use.

use cawl_wire::ring::{Begun, Position, Shape, unread};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const SMALL: Shape = Shape { chunks: 2, cells: 3, longest: 2 };

struct Memory {
    tail: AtomicU64,
    head: AtomicU64,
    order: [AtomicU8; 2],
    /// loom reports any cell that is read while it may be written.
    cells: [[UnsafeCell<(u32, u32)>; 3]; 2],
}

impl Memory {
    fn new() -> Memory {
        Memory {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            order: [AtomicU8::new(0), AtomicU8::new(0)],
            cells: [(); 2].map(|()| [(); 3].map(|()| UnsafeCell::new((0, 0)))),
        }
    }
}

/// In place of a number: no record follows in this chunk.
const END: u32 = u32::MAX;

/// True for a number that stands at the front of a chunk only.
fn is_name(number: u32) -> bool {
    number == 3
}

/// Cells of a number's record.
fn length(number: u32) -> u32 {
    1 + number % 2
}

/// The thread: writes `count` numbers, and returns those that found no room.
fn produce(memory: &Memory, count: u32) -> Vec<u32> {
    let mut position = Position { chunk: 0, cell: SMALL.cells };
    let (mut begun, mut free) = (Begun::START, vec![1, 0]);
    let mut index = 0;
    let mut dropped = Vec::new();
    for number in 0..count {
        let put = |position: &mut Position, index: usize, number: u32| {
            memory.cells[index][position.cell as usize].with_mut(|cell| {
                // SAFETY: loom checks that nobody else has access.
                unsafe { *cell = (position.chunk, number) }
            });
            position.cell += 1;
        };
        if is_name(number) && position.cell > 0 && !SMALL.ends_at(position.cell) {
            put(&mut position, index, END);
            position.cell = SMALL.cells;
            memory.tail.store(position.pack(), Ordering::Release);
        }
        if SMALL.ends_at(position.cell) {
            let head = Position::unpack(memory.head.load(Ordering::Acquire));
            while begun.is_oldest_read(head) {
                free.push(memory.order[begun.oldest as usize % 2].load(Ordering::Relaxed));
                begun.oldest += 1;
            }
            let Some(taken) = begun.may_begin(SMALL).then(|| free.pop()).flatten() else {
                dropped.push(number);
                continue;
            };
            memory.order[begun.next as usize % 2].store(taken, Ordering::Relaxed);
            index = usize::from(taken);
            position = Position { chunk: begun.next, cell: 0 };
            begun.next += 1;
        }
        for _ in 0..length(number) {
            put(&mut position, index, number);
        }
        memory.tail.store(position.pack(), Ordering::Release);
    }
    dropped
}

/// The daemon: one look.
fn consume(memory: &Memory, head: &mut Position, found: &mut Vec<u32>) {
    let tail = Position::unpack(memory.tail.load(Ordering::Acquire));
    loop {
        let unread = unread(*head, tail, SMALL).expect("a true tail");
        if unread.from == unread.to {
            return;
        }
        let index = usize::from(memory.order[unread.chunk as usize % 2].load(Ordering::Relaxed));
        let mut cell = unread.from;
        while cell < unread.to && !SMALL.ends_at(cell) {
            let read = |cell: u32| {
                memory.cells[index][cell as usize].with(|cell| {
                    // SAFETY: loom checks that nobody writes.
                    unsafe { *cell }
                })
            };
            let (stamp, number) = read(cell);
            assert_eq!(stamp, unread.chunk);
            if number == END {
                cell = SMALL.cells;
                break;
            }
            assert!((1..length(number)).all(|more| read(cell + more) == (stamp, number)));
            found.push(number);
            cell += length(number);
        }
        *head = unread.after(cell, SMALL);
        memory.head.store(head.pack(), Ordering::Release);
    }
}

#[test]
fn what_is_written_is_read_once_and_in_order() {
    loom::model(|| {
        const COUNT: u32 = 5;
        let memory = Arc::new(Memory::new());
        let theirs = Arc::clone(&memory);
        let thread = loom::thread::spawn(move || produce(&theirs, COUNT));
        let (mut head, mut found) = (Position::START, Vec::new());
        for _ in 0..2 {
            consume(&memory, &mut head, &mut found);
        }
        let dropped = thread.join().unwrap();
        // The program is gone, its memory is not.
        consume(&memory, &mut head, &mut found);
        let expected: Vec<u32> = (0..COUNT).filter(|number| !dropped.contains(number)).collect();
        assert_eq!(found, expected);
    });
}

/// Whatever a tail says, what is read lies inside the ring, and reading comes to an end.
#[test]
fn no_tail_leads_astray() {
    let some = [0, 1, 2, 3, 510, 511, 512, 513, 1 << 31, u32::MAX - 1, u32::MAX];
    let shape = cawl_wire::ring::SHAPE;
    for chunk in some {
        for cell in some.into_iter().chain([shape.cells - 1, shape.cells, shape.cells + 1]) {
            for begin in some {
                let tail = Position { chunk, cell };
                let mut head = Position { chunk: begin, cell: 0 };
                for _ in 0..=shape.chunks {
                    let Ok(unread) = unread(head, tail, shape) else { break };
                    assert!(unread.from <= unread.to && unread.to <= shape.cells);
                    if unread.from == unread.to {
                        break;
                    }
                    head = unread.after(unread.to, shape);
                }
            }
        }
    }
}
