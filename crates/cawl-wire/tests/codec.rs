//! Every message survives a round trip, and no bytes at all make the readers panic.

use cawl_wire::{
    Anchor, EVENT_LEN, Ended, Event, FileId, FileKind, FileRecord, Goodbye, HEADER_LEN, Header, Hello, Kind,
    MAX_BYTES, Op, Rank, RankVariable, Usage, Wchar, WireError, flag,
};
use proptest::prelude::*;

fn event() -> impl Strategy<Value = Event> {
    let words = (any::<[u64; 5]>(), any::<i64>());
    let small = (any::<[u32; 10]>(), any::<i32>(), 0..Op::ALL.len(), 0..8u8, any::<u16>());
    (words, small).prop_map(|((w, returned), (s, fd, op, kind, errno))| Event {
        start: w[0],
        duration: w[1],
        dev: s[7].into(),
        ino: w[2],
        birth: s[8],
        offset: w[3],
        requested: w[4],
        returned,
        pid: s[0],
        tid: s[1],
        fd,
        flags: s[2],
        pending_before: s[3],
        pending_after: s[4],
        buffer: s[5],
        aux: s[6],
        stack: s[9],
        op: Op::ALL[op],
        kind: FileKind::from_code(kind).unwrap(),
        errno,
    })
}

proptest! {
    #[test]
    fn event_round_trip(event in event()) {
        prop_assert_eq!(Event::decode(&event.encode()), event.is_possible().then_some(event));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut record = [0u8; EVENT_LEN];
        let mut header = [0u8; HEADER_LEN];
        for (to, from) in record.iter_mut().zip(&bytes) { *to = *from; }
        for (to, from) in header.iter_mut().zip(&bytes) { *to = *from; }
        if let Some(event) = Event::decode(&record) {
            // Reserved bytes may differ; what was understood must be stable.
            prop_assert_eq!(Event::decode(&event.encode()), Some(event));
        }
        let _ = (Header::decode(&header), Hello::decode(&bytes), FileRecord::decode(&bytes), Goodbye::decode(&bytes));
    }

    #[test]
    fn text_messages_round_trip(
        pid: u32, run: u64, wchar in 0..u64::MAX,
        program in prop::collection::vec(any::<u8>(), 0..64),
        arguments in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut out = [0u8; 512];
        let hello = Hello { pid, ppid: 2, uid: 3, run, started: 4, wchar: Wchar { process: Some(wchar), thread: None }, usage: Usage { user: 1, system: run, others: 3, voluntary: wchar, involuntary: 5, first_ran: 6, first_delayed: run }, rank: (pid % 3 == 0).then_some(Rank { variable: RankVariable::Pmi, number: pid }), ring: run % 2 == 0, ticks: (pid % 2 == 0).then_some([Anchor { ticks: 1, nanos: run }; 2]), program: &program, arguments: &arguments };
        let len = hello.encode(&mut out).unwrap();
        prop_assert_eq!(Hello::decode(&out[..len]), Ok(hello));
        prop_assert!(Hello::decode(&out[..len - 1]).is_err());
        let file = FileRecord { file: FileId { dev: run, ino: 9, birth: pid }, renamed: pid % 3 == 0, size: 1, block: 2, mode: pid, path: &program };
        let len = file.encode(&mut out).unwrap();
        prop_assert_eq!(FileRecord::decode(&out[..len]), Ok(file));
    }
}

#[test]
fn op_codes_and_names_are_unique() {
    for (i, a) in Op::ALL.iter().enumerate() {
        assert_eq!(Op::from_code(*a as u8), Some(*a));
        for b in &Op::ALL[i + 1..] {
            assert_ne!(*a as u8, *b as u8);
            assert_ne!(a.name(), b.name());
        }
    }
    assert_eq!(Op::from_code(0), None);
}

#[test]
fn a_call_of_more_bytes_than_any_moves_is_damage() {
    let decoded = |op, returned| Event::decode(&Event { returned, ..Event::new(op) }.encode()).is_some();
    for op in [Op::Write, Op::StreamWrite, Op::CopyRange, Op::MmapWrite, Op::Read] {
        assert!(decoded(op, MAX_BYTES) && decoded(op, -1), "{op:?}");
        assert!(!decoded(op, MAX_BYTES + 1) && !decoded(op, i64::MAX), "{op:?}");
    }
    // These return a place or a number of their own.
    assert!(decoded(Op::Seek, i64::MAX) && decoded(Op::Fork, i64::MAX));
}

#[test]
fn goodbye_round_trip() {
    let mut out = [0u8; 128];
    for ended in [Ended::Exit, Ended::QuickExit, Ended::Exec, Ended::Abort, Ended::Crowded] {
        let goodbye = Goodbye {
            ended,
            at: 1,
            wchar: Wchar { process: Some(2), thread: Some(1) },
            usage: Usage {
                user: 5,
                system: 6,
                others: 7,
                voluntary: 8,
                involuntary: u64::MAX,
                first_ran: 9,
                first_delayed: 10,
            },
            pending: 3,
            unseen: 4,
            past: 5,
        };
        let len = goodbye.encode(&mut out).unwrap();
        assert_eq!(Goodbye::decode(&out[..len]), Ok(goodbye));
    }
    assert!(
        Goodbye {
            ended: Ended::Exit,
            at: 0,
            wchar: Wchar::default(),
            usage: Usage::default(),
            pending: 0,
            unseen: 0,
            past: 0
        }
        .encode(&mut out[..8])
        .is_none()
    );
}

#[test]
fn header_names_what_is_wrong() {
    let good = Header { kind: Kind::Events, len: 2 * EVENT_LEN as u32, dropped: 7 };
    assert_eq!(Header::decode(&good.encode()), Ok(good));

    let mut other = good.encode();
    other[0] = b'X';
    assert_eq!(Header::decode(&other), Err(WireError::Magic));
    let mut other = good.encode();
    other[4] += 1;
    assert_eq!(Header::decode(&other), Err(WireError::Version(cawl_wire::VERSION + 1)));
    let mut other = good.encode();
    other[6] = 99;
    assert_eq!(Header::decode(&other), Err(WireError::Kind(99)));
    assert_eq!(
        Header::decode(&Header { len: 95, ..good }.encode()),
        Err(WireError::Length(95)),
        "a batch holds whole events only"
    );
    assert_eq!(Header::decode(&Header { len: 96 * 341, ..good }.encode()), Err(WireError::Length(96 * 341)));
}

#[test]
fn flushed_bytes_come_from_the_pending_counts() {
    let mut event = Event::new(Op::StreamWrite);
    (event.pending_before, event.returned, event.pending_after) = (100, 5000, 1004);
    assert_eq!(event.flushed(), None, "nothing is known until the C library was asked");
    event.flags = flag::STREAM_KNOWN;
    assert_eq!(event.flushed(), Some(4096));
    event.op = Op::StreamFlush;
    (event.returned, event.pending_after) = (0, 0);
    assert_eq!(event.flushed(), Some(100));
}

#[test]
fn ranks_are_read_from_the_environment() {
    let rank = |text: &str| Rank::of_variable(text.as_bytes()).map(|rank| (rank.variable, rank.number));
    assert_eq!(rank("OMPI_COMM_WORLD_RANK=0"), Some((RankVariable::Ompi, 0)));
    assert_eq!(rank("PMIX_RANK=7"), Some((RankVariable::Pmix, 7)));
    assert_eq!(rank("PMI_RANK=4095"), Some((RankVariable::Pmi, 4095)));
    assert_eq!(rank("SLURM_PROCID=12"), Some((RankVariable::Slurm, 12)));
    for other in ["PMI_RANKS=1", "PMI_RANK=", "PMI_RANK=x", "PMI_RANK=-1", "SLURM_LOCALID=1", "PATH=/", ""] {
        assert_eq!(rank(other), None, "{other}");
    }
    assert!(RankVariable::ALL.is_sorted());
}
