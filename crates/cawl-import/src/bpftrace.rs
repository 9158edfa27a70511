//! Calls from lines that a script of one's own for bpftrace printed, described by a pattern.
//!
//! The law: **the pattern says what stands where, and a line that does not match ends the import**, with its
//! number and that of the field. What a pattern has no field for is not known.

mod pattern;

use cawl_core::Record;

pub use self::pattern::Pattern;
use self::pattern::{Field, Matched};
use super::calls::{Calls, Gaps, UNTOLD, is_child};
use super::syscalls::{self, Value};
use super::tracepoints::returned;
use super::{ImportError, ImportSummary, Importer};

/// Reads calls, one a line, by a pattern.
pub struct BpftraceImporter {
    pattern: Pattern,
    calls: Calls,
    base: Option<u64>,
    matched: u64,
}

impl BpftraceImporter {
    /// An importer of lines of this form.
    pub fn new(pattern: Pattern) -> BpftraceImporter {
        let gaps = Gaps { pointers: true, ..Gaps::default() };
        BpftraceImporter { pattern, calls: Calls::new(gaps), base: None, matched: 0 }
    }

    fn call(&mut self, line: &Matched<'_>) {
        let number = |field: Field| line.number(field);
        let (start, duration) = (line.start(), line.duration());
        // Lines come by the ends of calls: the first one may begin later than the next.
        let base = *self.base.get_or_insert(start.saturating_sub(ROOM));
        self.calls.now = start.saturating_sub(base);
        let id = |field| number(field).and_then(|id| u32::try_from(id).ok());
        let (pid, tid) = (id(Field::Pid), id(Field::Tid));
        let tid = tid.or(pid).unwrap_or(UNTOLD);
        let name = call_name(line.text(Field::Op).unwrap_or(""));
        let size = number(Field::Size).unwrap_or(0);
        let result = number(Field::Ret).unwrap_or(if name.contains("open") { -1 } else { size });
        if is_child(name) && result == 0 {
            self.calls.meet(tid);
            return self.calls.other(name);
        }
        self.calls.meet_in(tid, pid);
        if let Some(comm) = line.text(Field::Comm) {
            self.calls.name(tid, comm);
        }
        if matches!(name, "exit" | "exit_group") {
            return self.calls.exit(tid, name == "exit_group", result as i32);
        }
        let path = line.text(Field::Path).map(|path| format!("\"{}\"", path.replace(['"', '\\'], "?")));
        let vector = format!("[{{iov_len={size}}}]");
        let place = number(Field::Offset).map(|offset| format!("[{offset}]"));
        let value = |argument: &str| {
            Some(Value::Number(match argument {
                "fd" | "fildes" | "oldfd" | "out_fd" | "fd_out" => number(Field::Fd)? as u64,
                "fd_in" | "in_fd" | "newfd" => u64::MAX,
                "dfd" | "olddfd" | "newdfd" => libc::AT_FDCWD as u64,
                "count" | "len" | "nbytes" => size as u64,
                "length" => number(Field::Offset).unwrap_or(size) as u64,
                "pos" | "pos_l" | "offset" => number(Field::Offset).unwrap_or(0) as u64,
                "flags" => number(Field::Flags)? as u64,
                "vec" => return Some(Value::Text(&vector)),
                "off_out" => return place.as_deref().map(Value::Text),
                "filename" | "pathname" | "path" | "oldname" => return path.as_deref().map(Value::Text),
                _ => return None,
            }))
        };
        let values: Vec<_> = syscalls::arguments_of(name).into_iter().flatten().map(value).collect();
        let arguments = syscalls::canonical(name, &values);
        let duration = duration.map(|ns| format!(" <{}.{:09}>", ns / 1_000_000_000, ns % 1_000_000_000));
        self.calls.place = number(Field::Offset).and_then(|offset| u64::try_from(offset).ok());
        self.calls.complete(tid, name, &(arguments + &returned(result) + &duration.unwrap_or_default()));
        self.calls.place = None;
    }
}

impl Importer for BpftraceImporter {
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        let text = self.calls.text(line);
        let text = text.trim();
        if let Some(events) = lost(text) {
            self.calls.lost(events);
        } else if text.starts_with("Attach") && text.contains(" probe") {
            // Attaching 2 probes..., Attached 2 probes
        } else if text.starts_with('@') {
            self.calls.other("map of bpftrace");
        } else if !text.is_empty() {
            let matched = self.pattern.matched(text);
            let matched =
                matched.map_err(|(field, fault)| ImportError { line: self.calls.line, field, fault })?;
            self.matched += 1;
            self.call(&matched);
            self.calls.take(out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        if self.matched == 0 {
            return Err(self
                .calls
                .none_is("a call; give the output of a script that prints a line for each"));
        }
        Ok(self.calls.finish("bpftrace", out))
    }
}

/// Time before the first line's start in which others may begin, in ns.
const ROOM: u64 = 1_000_000_000;

/// `Lost 42 events`
fn lost(text: &str) -> Option<u64> {
    text.strip_prefix("Lost ")?.split_once(" events")?.0.parse().ok()
}

/// The call that a probe is about: `tracepoint:syscalls:sys_exit_write`, `__x64_sys_write`, `write`.
fn call_name(op: &str) -> &str {
    let name = op.rsplit(':').next().unwrap_or(op);
    let prefixes = ["sys_enter_", "sys_exit_", "__x64_sys_", "__arm64_sys_", "ksys_", "sys_"];
    let name = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    match name {
        "pread" => "pread64",
        "pwrite" => "pwrite64",
        name => name,
    }
}

#[cfg(test)]
mod tests;
