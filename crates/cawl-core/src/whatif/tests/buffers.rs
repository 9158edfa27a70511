//! Buffers of other languages' libraries, larger and smaller ones.

use super::*;

/// A program of this name writes such sizes to file 1, one behind the other; a size of 0 is an fsync.
fn written(program: &str, op: Op, sizes: impl IntoIterator<Item = u64>) -> Trace {
    let mut trace = Trace::default();
    let program = program.to_owned();
    trace.records.push(Record::Session(Session { id: 1, pid: 1, program, ..Session::default() }));
    let mut offset = 0;
    for size in sizes {
        match size {
            0 => trace.sync(1),
            _ => trace.call(op, 1, 1, |event| {
                (event.offset, event.requested, event.returned) = (offset, size, size as i64);
            }),
        }
        offset += size;
    }
    trace.close(1);
    trace
}

/// Sizes of the writes of a trace with this buffer, 0 for a sync. Bytes and places are kept.
fn sizes(trace: &Trace, buffer: u32) -> Vec<u64> {
    let (mut end, mut bytes) = (0, 0);
    let calls = trace.rewritten(Rewrite::Buffer(buffer));
    let made: Vec<u64> = calls.iter().filter(|call| call.op != Op::Close).map(kernel_bytes).collect();
    for call in calls.iter().filter(|call| kernel_bytes(call) > 0) {
        assert_eq!((call.offset, call.requested), (end, kernel_bytes(call)), "a gap");
        end += kernel_bytes(call);
    }
    trace.events().for_each(|event| bytes += kernel_bytes(event));
    assert_eq!(end, bytes);
    assert_eq!(calls.last().map(|call| call.op), Some(Op::Close), "what was held came before");
    made
}

fn repeated(size: u64, count: usize) -> impl Iterator<Item = u64> + Clone {
    std::iter::repeat_n(size, count)
}

#[test]
fn a_larger_buffer_is_written_less_often() {
    let java = written("/usr/bin/java", Op::Write, repeated(8192, 20).chain([600]));
    assert_eq!(sizes(&java, 65_536), [65_536, 65_536, 4 * 8192 + 600]);
    assert_eq!(sizes(&java, 1 << 20), [20 * 8192 + 600]);
    // A program that wrote nothing after the last full buffer.
    let even = written("java", Op::Write, repeated(8192, 12));
    assert_eq!(sizes(&even, 65_536), [65_536, 4 * 8192]);
    // The buffer that it has changes nothing.
    assert_eq!(sizes(&java, 8192), repeated(8192, 20).chain([600]).collect::<Vec<_>>());
    assert_eq!(java.with(&[Rewrite::Buffer(8192)]).changed, [0]);
    assert_eq!(java.with(&[Rewrite::Buffer(65_536)]).changed, [18], "21 calls become 3");
}

#[test]
fn a_smaller_buffer_is_written_more_often() {
    let java = written("java", Op::Write, repeated(8192, 5).chain([3000]));
    let expected: Vec<u64> = repeated(2048, 21).chain([3000 - 2048]).collect();
    assert_eq!(sizes(&java, 2048), expected);
}

#[test]
fn flushes_and_syncs_stay() {
    let batch = || repeated(8192, 3).chain([100, 0]);
    let java = written("java", Op::Write, batch().chain(batch()));
    assert_eq!(sizes(&java, 65_536), [3 * 8192 + 100, 0, 3 * 8192 + 100, 0]);
    // A sync without a flush before it: what was written before it still is.
    let unflushed = written("java", Op::Write, repeated(8192, 3).chain([0]).chain(repeated(8192, 3)));
    assert_eq!(sizes(&unflushed, 65_536), [3 * 8192, 0, 3 * 8192]);
}

/// Pieces go into a buffer whole, and libstdc++ writes the one that has no room with it.
#[test]
fn what_lacks_and_what_exceeds_stays() {
    let lines = [8193, 8192, 8194, 8196].into_iter().cycle().take(20);
    let cpp = sizes(&written("a.out", Op::Writev, lines), 65_536);
    assert!(cpp[..2].iter().all(|size| (65_536..65_541).contains(size)), "{cpp:?}");
    let records = sizes(&written("java", Op::Write, repeated(8100, 20)), 65_536);
    assert_eq!(records[0], 65_536 - 92);
    // Layers of text are handed on whole.
    let text = [8200, 8193, 8197].into_iter().cycle().take(16).chain([500]);
    let text = sizes(&written("python3.13", Op::Write, text), 65_536);
    assert_eq!(text, [8200 + 8193 + 8197 + 8200 + 8193 + 8197 + 8200, 57_373, 8197 + 8200 + 500]);
}

#[test]
fn larger_pieces_pass_the_buffer_by_unless_it_takes_them() {
    let mixed = repeated(8192, 20).chain([100_000]).chain(repeated(8192, 4));
    let java = written("java", Op::Write, mixed);
    assert_eq!(sizes(&java, 65_536), [65_536, 65_536, 32_768, 100_000, 32_768]);
    assert_eq!(sizes(&java, 1 << 20), [24 * 8192 + 100_000]);
}

#[test]
fn other_programs_stay_as_they_are() {
    let blocks = || repeated(8192, 20).chain([600]);
    let dd = written("dd", Op::Write, blocks());
    assert_eq!(sizes(&dd, 65_536), blocks().collect::<Vec<_>>());
    // A stream of the C library beside it still has its buffer.
    let mut both = written("java", Op::Write, blocks());
    both.call(Op::StreamWrite, 2, 2, |event| {
        (event.offset, event.requested, event.returned) = (0, 4096, 4096);
        (event.flags, event.buffer) = (flag::STREAM_KNOWN, 4096);
    });
    let calls = both.rewritten(Rewrite::Buffer(65_536));
    assert_eq!(calls.last().map(|call| (call.op, call.buffer)), Some((Op::StreamWrite, 65_536)));
    assert_eq!(calls.iter().filter(|call| call.op == Op::Write).count(), 3);
}
