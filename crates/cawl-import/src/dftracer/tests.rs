use super::*;
use crate::DftracerImporter;
use crate::testing::{fault, import, is_fault};

#[test]
fn lines_that_name_files() {
    // Numbers as texts, as until 2023.
    let text = r#"[
 {"id":"0","name":"open","cat":"POSIX","pid":"7","tid":"14","ts":"1698080323781412","dur":"3430","ph":"X","args":{"ret":18,"flags":66,"fname":"/p/file","mode":420}}
{"id":"1","name":"write","cat":"POSIX","pid":"7","tid":"14","ts":"1698080323825066","dur":"106189","ph":"X","args":{"ret":"300","count":"400","fname":"/p/file","fd":18}}
{"id":"2","name":"write","cat":"POSIX","pid":"7","tid":"14","ts":"1698080323938978","dur":"0","ph":"X","args":{"ret":"100","count":"100","fname":"/p/file","fd":18}},
{"id":"3","name":"close","cat":"POSIX","pid":"7","tid":"14","ts":"1698080323938999","dur":"73","ph":"X","args":{"ret":0,"fname":"/p/file","fd":18}}
{"id":"4","name":"__xstat","cat":"POSIX","pid":"7","tid":"14","ts":"1698080323939130","dur":"4120","ph":"X","args":{"fname":"/p/file"}}
{"id":"5","name":"train","cat":"ai_framework","pid":"7","tid":"14","ts":"1698080323781000","dur":"900000","ph":"X","args":{}}
]
"#;
    let got = import(DftracerImporter::default(), text);
    assert_eq!(
        got.calls(),
        ["open /p/file", "write /p/file 0 300", "write /p/file 300 100", "close /p/file"]
    );
    let events = got.events();
    assert_eq!((events[0].start, events[0].duration, events[0].returned), (0, 3_430_000, 18));
    assert_eq!(events[1].start, 43_654_000);
    assert_eq!((events[1].pid, events[1].tid, events[1].fd, events[1].requested), (7, 14, 18, 400));
    assert!(events[2].has(flag::ESTIMATED), "0 µs are no duration");
    assert_eq!(got.summary.epoch, Some(1_698_080_323_781_412_000));
    assert_eq!(got.skipped().len(), 3, "{:?}", got.skipped());
}

#[test]
fn lines_whose_files_are_hashes() {
    let text = r#"{"id":1,"name":"SH","cat":"dftracer","pid":5,"tid":5,"ph":"M","args":{"name":"/bin/cm1.exe -x","value":33764}}
{"id":5,"name":"start","cat":"dftracer","pid":5,"tid":5,"ts":100,"dur":0,"ph":"X","args":{"cmd_hash":33764,"version":100005}}
{"id":6,"name":"FH","cat":"dftracer","pid":5,"tid":5,"ph":"M","args":{"name":"/t/log","value":"f00d"}}
{"id":7,"name":"fopen","cat":"STDIO","pid":5,"tid":5,"ts":1000,"dur":191,"ph":"X","args":{"fhash":"f00d","mode":"a+"}}
{"id":8,"name":"fwrite","cat":"STDIO","pid":5,"tid":5,"ts":2000,"dur":10,"ph":"X","args":{"ret":2,"fhash":"f00d","count":3,"size":100}}
{"id":9,"name":"fclose","cat":"STDIO","pid":5,"tid":5,"ts":2100,"dur":4,"ph":"X","args":{"fhash":"f00d"}}
{"id":10,"name":"pwrite","cat":"POSIX","pid":5,"tid":5,"ts":3000,"dur":4,"ph":"X","args":{"fhash":"beef","fd":4,"count":10,"ret":-1,"offset":0}}
{"id":11,"name":"pwrite","cat":"POSIX","pid":5,"tid":5,"ts":3100,"dur":4,"ph":"X","args":{"fhash":"beef","fd":4,"count":10,"ret":10,"offset":512}}
"#;
    let got = import(DftracerImporter::default(), text);
    assert_eq!(
        got.calls(),
        ["open /t/log", "fwrite /t/log 0 200", "fclose /t/log", "pwrite hash beef 512 10"]
    );
    let events = got.events();
    assert!(events[0].has(flag::APPEND) && events[1].has(flag::APPEND));
    assert_eq!(events[1].requested, 300);
    assert!(matches!(&got.records[0], Record::Session(session) if session.program == "cm1.exe"));
    assert_eq!(got.skipped(), ["1 failed calls without effect"]);
    assert!(got.summary.notes.iter().any(|note| note.starts_with("1 calls are on files that no line names")));
}

#[test]
fn phases_are_numbers_since_2026() {
    let text = r#"{"name":"FH","cat":"dftracer","type":1,"pid":5,"tid":5,"ph":4,"args":{"name":"/t/dir/new","value":"abc"}}
{"id":1,"name":"openat","cat":"POSIX","type":3,"pid":5,"tid":5,"ts":10,"dur":5,"ph":1,"args":{"dirfd":9,"fhash":"99","pathname_hash":"abc","flags":1,"ret":4}}
{"id":2,"name":"write","cat":"POSIX","type":3,"pid":5,"tid":5,"ts":20,"dur":5,"ph":1,"args":{"fd":4,"fhash":"99","count":8,"ret":8}}
{"name":"cpu","cat":"sys","type":7,"ts":1,"ph":2,"pid":5,"tid":0,"args":{"user_pct":12.5}}
{"id":9,"name":"end","cat":"dftracer","type":1,"pid":5,"tid":5,"ts":90,"dur":0,"ph":1,"args":{"cfg":{"time_metric":"US"}}}
"#;
    assert_eq!(
        import(DftracerImporter::default(), text).calls(),
        ["open /t/dir/new", "write /t/dir/new 0 8"]
    );
    let (line, _, told) = fault(
        DftracerImporter::default(),
        &text.replace("\"ph\":1,\"args\":{\"fd\"", "\"ph\":3,\"args\":{\"fd\""),
    );
    assert!(line == 3 && told.contains("sums of several calls"), "{line}: {told}");
    let (line, _, told) = fault(DftracerImporter::default(), &text.replace("\"US\"", "\"NS\""));
    assert!(line == 5 && told.contains("times are in NS"), "{line}: {told}");
}

/// As version 2.2 writes them: no descriptors, and no results of opens.
#[test]
fn lines_without_descriptors() {
    let text = r#"{"name":"CM","cat":"dftracer","type":1,"pid":5,"tid":5,"ph":4,"args":{"name":"time_metric","value":"US"}}
{"name":"FH","cat":"dftracer","type":1,"pid":5,"tid":5,"ph":4,"args":{"name":"/tmp/dft","value":"f36f"}}
{"name":"SH","cat":"dftracer","type":1,"pid":5,"tid":5,"ph":4,"args":{"name":"/usr/bin/python3;prog.py","value":"3a2d"}}
{"id":1,"name":"start","cat":"dftracer","type":1,"pid":5,"tid":5,"ts":1,"dur":0,"ph":1,"args":{"cmd_hash":"3a2d","cwd":"f36f"}}
{"name":"FH","cat":"dftracer","type":1,"pid":5,"tid":5,"ph":4,"args":{"name":"out","value":"c671"}}
{"id":2,"name":"open64","cat":"POSIX","type":3,"pid":5,"tid":5,"ts":10,"dur":3,"ph":1,"args":{"flags":4097,"fhash":"c671"}}
{"id":3,"name":"write","cat":"POSIX","type":3,"pid":5,"tid":5,"ts":20,"dur":3,"ph":1,"args":{"ret":100,"count":100,"fhash":"c671"}}
{"id":4,"name":"lseek64","cat":"POSIX","type":3,"pid":5,"tid":5,"ts":30,"dur":0,"ph":1,"args":{"ret":40,"whence":2,"offset":-60,"fhash":"c671"}}
{"id":5,"name":"read","cat":"POSIX","type":3,"pid":5,"tid":5,"ts":40,"dur":2,"ph":1,"args":{"ret":60,"count":64,"fhash":"c671"}}
"#;
    let got = import(DftracerImporter::default(), text);
    let calls =
        ["open /tmp/dft/out", "write /tmp/dft/out 0 100", "lseek /tmp/dft/out", "read /tmp/dft/out 40 60"];
    assert_eq!(got.calls(), calls);
    assert!(matches!(&got.records[0], Record::Session(session) if session.program == "python3"));
    let flags: Vec<bool> = got.events().iter().map(|event| event.has(flag::DSYNC)).collect();
    assert_eq!(flags, [true; 4]);
    assert!(got.summary.notes.iter().any(|note| note.starts_with("1 opens are without result")));
}

#[test]
fn faults_say_where_and_what() {
    let line = |args: &str| {
        format!(
            "[\n{{\"name\":\"write\",\"cat\":\"POSIX\",\"pid\":5,\"tid\":5,\"ts\":1,\"dur\":1,\"ph\":\"X\",\"args\":{{{args}}}}}\n"
        )
    };
    let is = |text: &str, line: u64, says: &str| is_fault(DftracerImporter::default(), text, (line, 0), says);
    is("[\nhello\n", 2, "no JSON object");
    is("{\"pid\":1}\n", 1, "\"name\" is missing");
    is("{\"name\":\"read\"}\n", 1, "\"pid\" is missing");
    is(&line(""), 2, "a write has neither \"count\" nor \"ret\"; record with DFTRACER_INC_METADATA=1");
    is(&line("\"count\":\"x\""), 2, "\"count\" is \"x\", not a whole number");
    is(&line("\"count\":9999999999999999"), 2, "more than a call moves");
    is(
        &line("\"count\":5").replace("\"ts\":1", "\"ts\":99999999999999999"),
        2,
        "\"ts\" is 99999999999999999, over",
    );
    is(&line("\"count\":5").replace("write", "pread"), 2, "a pread has no \"offset\"");
    is("[\n]\n", 2, "there is no call in 2 lines");
}
