use super::*;
use crate::SkipReason;
use cawl_wire::{Event, Op};

fn import(pattern: &str, lines: &str) -> Result<(Vec<Record>, ImportSummary), ImportError> {
    let mut importer = BpftraceImporter::new(pattern.parse().expect("a pattern"));
    let mut out = Vec::new();
    for line in lines.lines() {
        importer.line(line.as_bytes(), &mut out)?;
    }
    let summary = importer.finish(&mut out)?;
    Ok((out, summary))
}

fn events(pattern: &str, lines: &str) -> Vec<Event> {
    let (records, _) = import(pattern, lines).expect("lines that match");
    let event = |record| if let Record::Event(event) = record { Some(event) } else { None };
    records.into_iter().filter_map(event).collect()
}

const PATTERN: &str = "{start_ns} {pid} {tid} {comm} {op} {fd} {offset} {size} {ret} {duration_us}";

#[test]
fn lines_by_a_pattern() {
    let lines = "Attaching 4 probes...
        5000000000 7 7 a b  write 3 4096 100 100 12.5
        5000020000 7 8 a b  pwrite64 3 8192 100 -28 3
        Lost 3 events
        5000030000 7 7 a b  fsync  3 0 0 0 1000

        @total: 3";
    let told: Vec<_> = events(PATTERN, lines)
        .iter()
        .map(|event| {
            (event.op, event.pid, event.tid, event.offset, event.returned, event.errno, event.duration)
        })
        .collect();
    let expected = [
        (Op::Write, 7, 7, 4096, 100, 0, 12_500),
        (Op::Pwrite, 7, 8, 8192, -1, 28, 3_000),
        (Op::Fsync, 7, 7, u64::MAX, 0, 0, 1_000_000),
    ];
    assert_eq!(told, expected);
    let (records, summary) = import(PATTERN, lines).expect("lines that match");
    let lost = summary.skipped.iter().find(|skipped| skipped.reason == SkipReason::Lost);
    assert_eq!(lost.map(|lost| (lost.lines, lost.first)), Some((3, 4)));
    assert!(
        records.iter().any(|record| matches!(record, Record::Session(session) if session.program == "a b"))
    );
}

#[test]
fn order_units_and_text_are_free() {
    let pattern = "[{end_s}] {op}(fd={fd}, \"{path}\", {_}) = {ret} in {duration_ms}ms";
    let lines = "[7.5] tracepoint:syscalls:sys_exit_openat(fd=-1, \"/tmp/a, \"b\"\", x) = 3 in 0.5ms
        [8.0] sys_exit_write(fd=3, \"\", x) = 10 in 100ms";
    let told: Vec<_> = events(pattern, lines)
        .iter()
        .map(|event| (event.op, event.start, event.duration, event.returned, event.ino))
        .collect();
    assert_eq!(told[0].0, Op::Write);
    assert_eq!((told[0].2, told[0].3), (100_000_000, 10));
    let flags = "{start_us} {op} {path} {flags} {ret}";
    let opened = events(flags, "1 openat /tmp/a 0x241 3\n2 openat /tmp/b 577 4");
    assert_eq!(opened.iter().map(|event| event.op).collect::<Vec<_>>(), [Op::Open, Op::Open]);
}

#[test]
fn a_line_that_does_not_match_is_named_with_its_field() {
    for (line, says) in [
        ("1 7 7 dd write 3 0 many 1 1", "line 1, field 8: {size}: \"many\" is no whole number"),
        ("x 7 7 dd write 3 0 1 1 1", "line 1, field 1: {start_ns}: \"x\" is no time"),
        ("1 7 7 dd write", "line 1, field 5: what follows {op} is not in \"write\""),
        ("1 7 7 dd write 3 0 1 1 1 1", "line 1, field 10: {duration_us}: \"1 1\" is no time"),
        ("1 -7 7 dd write 3 0 1 1 1", "line 1, field 2: {pid}: \"-7\" is no id"),
    ] {
        assert!(
            import(PATTERN, line).expect_err(line).to_string().starts_with(says),
            "{:?}",
            import(PATTERN, line)
        );
    }
    let error = import("<{start_ns}> {op}", "[1] write").expect_err("another text");
    assert_eq!(error.to_string(), "line 1: \"[1] write\" stands in place of \"<\"");
    assert!(import(PATTERN, "").expect_err("nothing").fault.starts_with("of 0 lines none is a call"));
}

#[test]
fn patterns_that_cannot_be() {
    for (pattern, says) in [
        ("{start_ns} {opp}", "field {opp} is not known"),
        ("{start_ns} {pid}", "field {op} is missing"),
        ("{op} {pid}", "field {start_ns} or {end_ns} is missing"),
        ("{start_ns}{op}", "nothing separates {start_ns} from {op}"),
        ("{start_ns} {op} {op}", "field {op} stands twice"),
        ("{start_ns} {op", "has no closing brace"),
    ] {
        let fault = pattern.parse::<Pattern>().expect_err(pattern);
        assert!(fault.contains(says), "{pattern}: {fault}");
    }
}
