//! The files that commands write, beside profiles.

use std::path::Path;

use cawl_console::outputs::Kind;
use cawl_host::trace::TRACE_MAGIC;

pub use cawl_console::outputs::{PROFILE, check};

pub const TRACE: Kind = Kind { name: "trace", is: |head, _| head.as_bytes().starts_with(&TRACE_MAGIC) };
pub const PAGE: Kind = Kind { name: "manual page of cawl", is: |head, _| head.contains("\n.TH cawl") };
pub const EXPORT: Kind = Kind { name: "export of cawl", is: cawl_export::is_one };

/// The kind of a report with this name.
pub fn report(path: &Path) -> Kind {
    let is: fn(&str, &str) -> bool = match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => {
            |head, _| head.starts_with('{') && head.contains("\"schema\":") && head.contains("\"mode\":")
        }
        Some("html") => |head, _| head.starts_with("<!DOCTYPE html>") && head.contains("<title>cawl: "),
        _ => |head, _| ["cawl  ", "calls  "].iter().any(|begin| head.starts_with(begin)),
    };
    Kind { name: "report of cawl", is }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_kind_is_told_by_its_begin_and_end() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text, is_ours) in [
            ("a.txt", "cawl       1 s in write, 1 ms would do\n", true),
            ("b.txt", "calls      3 calls, 3 B to files in 1 ms; assimilated\n", true),
            ("c.txt", "dear diary", false),
            ("d.json", "{\n  \"schema\": 1,\n  \"mode\": \"lockstep\"", true),
            ("e.json", "{\"schema\": 1, \"name\": \"mine\"}", false),
            ("f.html", "<!DOCTYPE html><html lang=\"en\"><head><title>cawl: dd</title>", true),
            ("g.html", "<!DOCTYPE html><html><title>mine</title>", false),
            ("empty.html", "", true),
        ] {
            let file = dir.path().join(name);
            fs::write(&file, text).unwrap();
            let checked = check(&file, &report(&file));
            assert_eq!(checked.is_ok(), is_ours, "{name}: {checked:?}");
        }
        let notes = dir.path().join("c.txt");
        for kind in [PROFILE, TRACE, PAGE, EXPORT] {
            let why = check(&notes, &kind).unwrap_err().to_string();
            assert!(why.contains("c.txt exists and is no ") && why.contains("remove it first"), "{why}");
        }
        for strangers in [
            "\nmy shopping list\n",
            "\n2: clean the page cache\n",
            "PAR1 is where we meet\nPAR1",
            "call,who\n",
            "call,start_ns,duration_ns,op\n",
            "{\"call\":1}\n",
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"X\"}]}",
        ] {
            fs::write(&notes, strangers).unwrap();
            assert!(check(&notes, &EXPORT).is_err(), "{strangers}");
        }
        for (path, says) in [("no/x.html", "there is no folder"), ("", "it is a folder")] {
            let path = dir.path().join(path);
            let why = check(&path, &report(&path)).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
    }
}
