use cawl_core::{EndKind, Time};
use cawl_wire::{Event, UNKNOWN_OFFSET, flag};

use super::*;
use crate::testing::import_all;

const HEADER: &str = "start_s,op,offset,size,duration_s\n";

fn import(options: CsvOptions, text: &str) -> Result<(Vec<Record>, ImportSummary), ImportError> {
    import_all(CsvImporter::new(options), &[("", text)]).map(|got| (got.records, got.summary))
}

fn events(text: &str) -> Vec<Event> {
    crate::testing::import(CsvImporter::new(CsvOptions::default()), text).events()
}

fn fault(text: &str) -> (u64, usize, String) {
    crate::testing::fault(CsvImporter::new(CsvOptions::default()), text)
}

#[test]
fn a_row_is_an_event() {
    let (records, summary) =
        import(CsvOptions::default(), &format!("{HEADER}0.300244343,write,4096,8192,0.000001500\n")).unwrap();
    let [Record::Session(session), Record::File(file), Record::Event(event), Record::End(end)] = &records[..]
    else {
        panic!("{records:?}");
    };
    assert_eq!((session.id, session.pid, session.started), (1, 1, Time(300_244_343)));
    assert_eq!((file.ino, file.path.as_str()), (1, "file"));
    assert_eq!((event.start, event.duration, event.op), (300_244_343, 1_500, Op::Write));
    assert_eq!((event.offset, event.requested, event.returned), (4096, 8192, 8192));
    assert_eq!((event.pid, event.tid, event.fd, event.ino), (1, 1, 3, 1));
    assert_eq!((event.kind, event.flags), (FileKind::Regular, flag::WRITABLE));
    assert_eq!((end.id, end.at, end.how), (1, Time(300_245_843), EndKind::Exit));
    assert_eq!((summary.calls, summary.bytes, summary.files, summary.sessions), (1, 8192, 1, 1));
}

#[test]
fn every_operation() {
    let rows = "1,open,,0,0\n2,write,,10,0\n3,write,,5,0\n4,pwrite,100,7,0\n5,lseek,3,,0\n6,fwrite,,2,0\n7,fflush,,,0\n\
                8,fsync,99,,0\n9,fdatasync,,,0\n10,truncate,4,,0\n11,truncate,,6,0\n12,read,0,4,0\n13,fclose,,,0\n\
                14,close,,,0\n15,unlink,,,0\n16,open,,0,0\n";
    let events = events(&format!("{HEADER}{rows}"));
    let offsets: Vec<_> = events.iter().map(|event| event.offset).collect();
    let no = UNKNOWN_OFFSET;
    assert_eq!(offsets, [no, 0, 10, 100, 3, 3, no, no, no, 4, 6, 0, no, no, no, no]);
    assert_eq!(events[0].returned, 3);
    assert_eq!(events[6].op, Op::StreamFlush);
    assert!(!events[5].has(flag::STREAM_KNOWN));
    assert_eq!((events[14].ino, events[14].fd), (1, -1));
    assert_eq!(events[15].ino, 2, "an open after unlink makes a new file");
}

#[test]
fn columns_in_any_order_with_byte_order_mark_and_crlf() {
    let text = "\u{feff}path,tid,size,op,start_s,pid,flags,duration_s,offset\r\n\r\n\
                \"a,\"\"b\",8,1,write,1e-05,7,O_SYNC|O_DIRECT,1,0\r\n c,,1,write,2,7,,1,0\r\n";
    let (records, summary) = import(CsvOptions::default(), text).unwrap();
    let paths = records
        .iter()
        .filter_map(|record| if let Record::File(facts) = record { Some(facts.path.as_str()) } else { None });
    assert_eq!(paths.collect::<Vec<_>>(), ["a,\"b", " c"]);
    let events = events(text);
    assert_eq!((events[0].start, events[0].pid, events[0].tid), (10_000, 7, 8));
    assert_eq!(events[0].flags, flag::WRITABLE | flag::SYNC | flag::DIRECT);
    assert_eq!((events[1].tid, events[1].fd, events[1].flags), (7, 4, flag::WRITABLE));
    assert_eq!(summary.lines, 4);
}

#[test]
fn options_fill_what_the_table_leaves_open() {
    let options = CsvOptions { flags: flag::DSYNC, path: "out".into(), ..CsvOptions::default() };
    let (records, _) = import(options, &format!("{HEADER}0,write,0,1,1\n")).unwrap();
    let (Record::File(file), Record::Event(event)) = (&records[1], &records[2]) else {
        panic!("{records:?}")
    };
    assert_eq!(file.path, "out");
    assert_eq!((event.pid, event.tid, event.flags), (1, 1, flag::WRITABLE | flag::DSYNC));
}

#[test]
fn rows_are_taken_by_their_starts() {
    // Two files one after the other, as other programs print them; an empty offset goes on from the call
    // before.
    let rows = "0,write,0,5,0.1,a\n2,write,,6,0.1,a\n1,write,0,7,0.1,b\n2,write,,8,0.1,b\n";
    let text = format!("start_s,op,offset,size,duration_s,path\n{rows}");
    let (_, summary) = import(CsvOptions::default(), &text).unwrap();
    let events = events(&text);
    let events: Vec<_> = events.iter().map(|of| (of.start / 1_000_000_000, of.offset, of.returned)).collect();
    assert_eq!(events, [(0, 0, 5), (1, 0, 7), (2, 5, 6), (2, 7, 8)]);
    assert_eq!((summary.sorted, summary.out_of_order), (1, 0));
}

#[test]
fn faults_say_where_and_what() {
    let row = |row: &str| fault(&format!("{HEADER}0,write,0,1,0\n{row}\n"));
    let is = |(line, field, told): (u64, usize, String), place: (u64, usize), fault: &str| {
        assert_eq!((line, field), place, "{told}");
        assert!(told.contains(fault), "{told}");
    };
    is(fault(""), (0, 0), "must name the columns start_s,op,offset,size,duration_s");
    is(
        fault("op,offset,size,duration_s\n"),
        (1, 0),
        "has no column start_s; the first line must name the columns start_s,op,",
    );
    is(fault("start_s,op,offset,size,duration_s,color,x\n"), (1, 6), "unknown columns \"color\", \"x\";");
    // Tables of other programs, and with other separators: what is required is named first.
    for foreign in
        ["start_s;op;offset;size;duration_s", "0,write,0,10,0.1", "fio version 3 iolog", "Start_s,Op"]
    {
        is(fault(foreign), (1, 1), "the first line must name the columns start_s,op,offset,size,duration_s");
    }
    is(fault("start_s,op,op,size,duration_s\n"), (1, 3), "column op is there twice");
    is(row("1,write,0,1"), (3, 0), "has 4 fields where the header has 5");
    is(row("1,wrote,0,1,0"), (3, 2), "operation \"wrote\"");
    is(row("-1,write,0,1,0"), (3, 1), "start_s is \"-1\", but times are not negative");
    is(row("1,write,0,1,x"), (3, 5), "duration_s is \"x\", not a decimal number");
    is(row("1e30,write,0,1,0"), (3, 1), "start_s is \"1e30\", over 584 years");
    is(row("1,write,0,4K,0"), (3, 4), "size is \"4K\", not a whole number from 0 to 1099511627776;");
    is(row("1,read,0,1099511627777,0"), (3, 4), "size is \"1099511627777\", not a whole number");
    is(row("1,write,0,,0"), (3, 4), "size is empty, but a write needs it");
    is(row("1,pwrite,,5,0"), (3, 3), "offset is empty, but a pwrite needs it");
    assert_eq!(row("1,\"write,0,1,0").2, QUOTE);
    assert_eq!(
        row("1,wrote,0,1,0").2,
        "operation \"wrote\" is not known; use open, write, pwrite, fwrite, fflush, fclose, lseek, fsync, \
         fdatasync, close, read, truncate or unlink"
    );
}

#[test]
fn an_open_quote_does_not_swallow_the_rest() {
    let mut text = format!("{HEADER}0,write,0,1,0\n0,\"write,0,1,0\n");
    for _ in 0..10_000 {
        text.push_str("0,write,0,1,0\n");
    }
    let error = import(CsvOptions::default(), &text).unwrap_err();
    assert_eq!((error.line, error.fault), (3, QUOTE.to_owned()));
}

#[test]
fn a_table_of_an_export_is_read() {
    let text = "start_ns,duration_ns,op,pid,tid,program,path,kind,offset,size,bytes,errno,flags,estimated,state,\
                predicted_ns,dirty,cause,copy_ns\n\
                5000000001,7,write,9,10,dd,\"a,b\",regular,0,4096,4096,,O_SYNC,false,sync,9,4096,copy,7\n\
                5000000009,7,dup,9,10,dd,,,,,0,,,false,,,,,\n\
                5000000010,7,rename,9,10,dd,x,,,,0,,,false,,,,,\n\
                5000000020,7,writev,9,10,dd,p,pipe,,5,5,,,false,,,,,\n";
    let (records, summary) = import(CsvOptions::default(), text).unwrap();
    let events = events(text);
    assert_eq!(events.len(), 2);
    assert_eq!((events[0].start, events[0].duration, events[0].tid), (5_000_000_001, 7, 10));
    assert_eq!((events[0].has(flag::SYNC), events[0].kind), (true, FileKind::Regular));
    assert_eq!((events[1].op, events[1].kind, events[1].returned), (Op::Writev, FileKind::Fifo, 5));
    assert!(matches!(&records[0], Record::Session(session) if session.program == "dd"));
    let reasons = summary.skipped.iter().map(|skipped| (skipped.first, skipped.reason.is_loss()));
    assert_eq!(reasons.collect::<Vec<_>>(), [(4, true), (3, false)]);
    let note = |record: &Record| matches!(record, Record::Note(note) if note.contains("rename"));
    assert!(records.iter().any(note));
    // Times are in one unit, and whole.
    assert_eq!(fault("start_ns,start_s,op,offset,size,duration_s\n").1, 2);
    assert!(fault("start_ns,op,offset,size,duration_ns\n0.5,write,0,1,0\n").2.contains("not a whole number"));
    assert!(fault("start_ns,op,offset,size,duration_ns\n,write,0,1,0\n").2.contains("fill it in"));
    assert!(
        fault("start_s,op,offset,size,duration_s,kind\n0,write,0,1,0,disk\n")
            .2
            .contains("\"disk\", not known")
    );
}

#[test]
fn a_call_without_duration_is_marked_and_counted() {
    let text = format!("{HEADER}1,write,0,4096,\n2,write,,4096,0\n3,write,,4096,0.1\n4,lseek,0,,\n");
    let (records, summary) = import(CsvOptions::default(), &text).unwrap();
    assert_eq!(summary.skipped.len(), 1);
    assert_eq!((&summary.skipped[0].reason, summary.skipped[0].lines), (&SkipReason::Durationless, 2));
    assert!(
        matches!(records.last(), Some(Record::Note(note)) if note.starts_with("2 rows: calls without duration"))
    );
    let (one, _) = import(CsvOptions::default(), &format!("{HEADER}1,write,0,4096,\n")).unwrap();
    assert!(
        matches!(one.last(), Some(Record::Note(note)) if note.starts_with("1 row: calls without duration"))
    );
    let estimated: Vec<bool> = events(&text).iter().map(|event| event.has(flag::ESTIMATED)).collect();
    assert_eq!(estimated, [true, true, false, false]);
}

fn foreign(columns: &str, text: &str) -> Result<Vec<Event>, ImportError> {
    let columns = Some(columns.parse().expect("columns"));
    let importer = CsvImporter::new(CsvOptions { columns, ..CsvOptions::default() });
    import_all(importer, &[("", text)]).map(|got| got.events())
}

#[test]
fn columns_of_any_name_and_unit() {
    let text = "when;what;len;x;until\n1.5;WRITE;4;?;2\n3;pread64;1;?;3.25\n";
    let error = foreign("start=when:ms,op=what,size=len:K,end=until:ms", text).unwrap_err();
    assert_eq!((error.line, error.field), (3, 0));
    assert!(error.fault.contains("offset is empty, but a pread needs it"), "{error}");
    assert!(error.fault.contains("--columns offset="), "{error}");
    let events =
        foreign("start=when:ms,op=what,size=len:K,end=until:ms,offset=x:sectors", &text.replace('?', "9"));
    let events = events.unwrap();
    assert_eq!((events[0].start, events[0].duration, events[0].op), (1_500_000, 500_000, Op::Write));
    assert_eq!((events[1].start, events[1].duration, events[1].op), (3_000_000, 250_000, Op::Pread));
    assert_eq!((events[0].returned, events[0].offset, events[1].offset), (4096, 4608, 4608));
    // A table without header, with tabs.
    let events = foreign("start=#2:us,op=#1,size=#3", "w\t7\t10\nr\t9\t20\n").unwrap();
    assert_eq!((events[0].start, events[0].op, events[0].returned), (7_000, Op::Write, 10));
    assert_eq!((events[1].start, events[1].op, events[1].returned), (9_000, Op::Read, 20));
}

#[test]
fn faults_of_foreign_columns() {
    let is = |columns: &str, says: &str| {
        let told = columns.parse::<Columns>().unwrap_err();
        assert!(told.contains(says), "{told}");
    };
    is("start", "is not FIELD=COLUMN");
    is("begin=ts", "field \"begin\" is not known; use start, op,");
    is("start=ts,start=t", "field start is there twice");
    is("start=ts", "start and op must be named");
    is("start=#0,op=#1", "numbered from #1");
    is("start=#1,op=kind", "all columns as names, or all as numbers");
    let error = foreign("start=ts:ms,op=kind", "time,kind\n").unwrap_err();
    assert_eq!(error.to_string(), "line 1: there is no column ts; the table has time, kind");
    let error = foreign("start=ts:min,op=kind", "ts,kind\n").unwrap_err();
    assert!(
        error.to_string().contains("no column ts:min; the table has ts, kind; units are s, ms"),
        "{error}"
    );
    let error = foreign("start=ts,op=kind,size=n", "ts,kind,n\n1,frob,1\n").unwrap_err();
    assert!(error.fault.starts_with("operation \"frob\" is not known"), "{error}");
    let error = foreign("start=ts:ms,op=kind,size=n", "ts,kind,n\nx,write,1\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2, field 1: ts is \"x\", not a decimal number");
    let error = foreign("start=ts:ns,op=kind,size=n", "ts,kind,n\n1,write,1K\n").unwrap_err();
    assert_eq!((error.line, error.field), (2, 3));
    assert!(error.fault.starts_with("n is \"1K\", not a whole number"), "{error}");
}

#[test]
fn after_a_bad_row_the_next_one_is_read() {
    let rows = ["0,write,0,1,0.1\n", "x,write,0,1,0.1\n", "1,write,,2,0.1\n", "2,\"write,0,1\n"];
    let mut importer = CsvImporter::new(CsvOptions::default());
    let mut out = Vec::new();
    importer.line(HEADER.as_bytes(), &mut out).unwrap();
    let results: Vec<_> = rows.iter().map(|row| importer.line(row.as_bytes(), &mut out).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
    assert_eq!(importer.finish(&mut out).unwrap_err().line, 5);
    let summary = importer.finish(&mut out).unwrap();
    assert_eq!((summary.calls, summary.bytes, summary.lines), (2, 3, 5));
}
