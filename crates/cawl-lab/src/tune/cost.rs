//! What a cell costs: the calls of its writers by model `kernel`, in open loop.

use cawl_core::{CostModel, HostProfile, Kernel, Nanos, OpenLoop, Time};
use cawl_wire::{Event, FileKind, Op};

use super::act::{Act, acts};
use super::pattern::{Order, Workload};
use super::setting::{Setting, Way};

/// When writers made a call before the first one that counts, in ns.
const BEFORE: u64 = 10_000;
/// When that one begins.
const BEGIN: Time = Time(1_000_000_000);

/// The time from the first call to the end of the last one, on a machine on which nothing is dirty, whose
/// memory is warm and whose page cache has nothing of the files.
pub fn cost(profile: &HostProfile, workload: &Workload, setting: &Setting) -> Nanos {
    let mut profile = profile.clone();
    profile.kernel.limits = setting.limits.unwrap_or(profile.kernel.limits);
    let mut model = Kernel::new(&profile);
    model.supply(Some(false));
    let mut writers: Vec<_> =
        (0..workload.writers).map(|writer| (writer, acts(*workload, *setting, writer))).collect();
    for writer in 0..workload.writers {
        let mut open = event(Op::Open, writer, setting);
        open.requested = workload.size();
        model.step(&open);
        // It comes from other calls: what the first write after a pause costs in addition, a stream's first
        // call, which only fills the buffer, would not.
        let mut before = event(Op::StreamFlush, writer, setting);
        before.start = BEGIN.0 - BEFORE;
        model.step(&before);
    }
    let mut open_loop = OpenLoop::of(Box::new(model), BEGIN);
    let mut longest = Nanos::ZERO;
    // The writer that is behind goes on.
    while let Some(at) = (0..writers.len()).min_by_key(|at| open_loop.now(thread_of(writers[*at].0))) {
        let (writer, acts) = &mut writers[at];
        let Some(act) = acts.next() else {
            longest = longest.max(open_loop.elapsed(thread_of(*writer)));
            drop(writers.swap_remove(at));
            continue;
        };
        open_loop.step(called(act, *writer, workload.order, setting));
    }
    longest
}

/// The thread of a writer.
fn thread_of(writer: u32) -> u32 {
    writer + 1
}

/// A call on a writer's file.
fn event(op: Op, writer: u32, setting: &Setting) -> Event {
    let mut event = Event::new(op);
    (event.pid, event.tid, event.fd) = (thread_of(writer), thread_of(writer), 3);
    (event.dev, event.ino, event.kind) = (1, u64::from(writer) + 1, FileKind::Regular);
    event.flags = setting.access.flags();
    event
}

/// An act as a call.
fn called(act: Act, writer: u32, order: Order, setting: &Setting) -> Event {
    let op = match act {
        Act::Write { .. } if order == Order::Random => Op::Pwrite,
        Act::Write { .. } => Op::Write,
        Act::Put { .. } => Op::StreamWrite,
        Act::Flush => Op::StreamFlush,
        Act::Sync => Op::Fsync,
        Act::Close => Op::StreamClose,
    };
    let mut call = event(op, writer, setting);
    if let Way::Stream(buffer) = setting.way {
        call.buffer = u32::try_from(buffer).unwrap_or(u32::MAX);
    }
    if let Act::Write { offset, bytes } | Act::Put { offset, bytes } = act {
        (call.offset, call.requested, call.returned) = (offset, bytes, bytes as i64);
    }
    call
}
