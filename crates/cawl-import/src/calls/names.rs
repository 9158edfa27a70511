//! Names that strace prints, as numbers.
//!
//! The law: **the numbers are those of Linux's generic ABI** (x86, arm, riscv), on which cawl runs; strace
//! prints names where architectures differ, which is why names and not numbers are read.

use std::collections::HashMap;
use std::sync::LazyLock;

use cawl_wire::lock;
use nix::errno::Errno;
use nix::sys::signal::Signal;

/// A number as strace prints them: decimal, 0x hexadecimal or 0 octal, signed or not; what is over the
/// signed range wraps, as it does in the kernel.
pub(super) fn integer(text: &str) -> Option<i64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|value| value as i64);
    }
    if text.len() > 1 && text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()) {
        return u64::from_str_radix(text, 8).ok().map(|value| value as i64);
    }
    text.parse::<i64>().ok().or_else(|| text.parse::<u64>().ok().map(|value| value as i64))
}

/// The errno that `text` begins with: `ENOSPC (No space left…)`, `(errno 524)`, `ERRNO_524`. 0 if unknown.
pub(super) fn errno(text: &str) -> u16 {
    let name = text.split([' ', '(']).next().unwrap_or("");
    if let Some(number) = text.strip_prefix("(errno ").and_then(|text| text.split(')').next()) {
        return number.parse().unwrap_or(0);
    }
    if let Some(number) = name.strip_prefix("ERRNO_") {
        return number.parse().unwrap_or(0);
    }
    match name {
        "EWOULDBLOCK" => Errno::EWOULDBLOCK as u16,
        "EDEADLOCK" => Errno::EDEADLOCK as u16,
        "ENOTSUP" => Errno::ENOTSUP as u16,
        _ => ERRNOS.get(name).copied().unwrap_or(0),
    }
}

/// The errors of Linux by name, without second names.
static ERRNOS: LazyLock<HashMap<String, u16>> = LazyLock::new(|| {
    let named = (1..=LAST_ERRNO).map(|number| (format!("{:?}", Errno::from_raw(number.into())), number));
    named.collect()
});

/// EHWPOISON.
const LAST_ERRNO: u16 = 133;

/// A signal's number, if its name is known.
pub(super) fn signal(name: &str) -> Option<i32> {
    if let Ok(signal) = name.parse::<Signal>() {
        return Some(signal as i32);
    }
    let realtime: i32 =
        name.strip_prefix("SIGRT_").or_else(|| name.strip_prefix("SIGRTMIN+"))?.parse().ok()?;
    realtime.checked_add(32).filter(|number| *number <= 64)
}

/// Bits of an argument printed as names and numbers joined by `|`: names from `table`, others are 0.
pub(super) fn bits(text: &str, table: &[(&str, u32)]) -> u32 {
    let parts = text.split('|').map(str::trim);
    parts.fold(0, |bits, part| match table.iter().find(|(name, _)| *name == part) {
        Some((_, bit)) => bits | bit,
        None => bits | integer(part).map_or(0, |number| number as u32),
    })
}

/// Mode bits of fallocate.
pub(super) const FALLOCATE: &[(&str, u32)] = &[
    ("FALLOC_FL_KEEP_SIZE", 0x01),
    ("FALLOC_FL_PUNCH_HOLE", 0x02),
    ("FALLOC_FL_NO_HIDE_STALE", 0x04),
    ("FALLOC_FL_COLLAPSE_RANGE", 0x08),
    ("FALLOC_FL_ZERO_RANGE", 0x10),
    ("FALLOC_FL_INSERT_RANGE", 0x20),
    ("FALLOC_FL_UNSHARE_RANGE", 0x40),
];

/// Flags of sync_file_range.
pub(super) const SYNC_RANGE: &[(&str, u32)] =
    &[("SYNC_FILE_RANGE_WAIT_BEFORE", 1), ("SYNC_FILE_RANGE_WRITE", 2), ("SYNC_FILE_RANGE_WAIT_AFTER", 4)];

pub(super) const ADVICE: &[(&str, u32)] = &[
    ("POSIX_FADV_NORMAL", 0),
    ("POSIX_FADV_RANDOM", 1),
    ("POSIX_FADV_SEQUENTIAL", 2),
    ("POSIX_FADV_WILLNEED", 3),
    ("POSIX_FADV_DONTNEED", 4),
    ("POSIX_FADV_NOREUSE", 5),
];

/// What is asked of a lock, as the event has it.
pub(super) const LOCK: &[(&str, u32)] = &[
    ("F_RDLCK", lock::SHARED),
    ("F_WRLCK", lock::EXCLUSIVE),
    ("F_UNLCK", lock::UNLOCK),
    ("LOCK_SH", lock::SHARED),
    ("LOCK_EX", lock::EXCLUSIVE),
    ("LOCK_UN", lock::UNLOCK),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_names() {
        assert_eq!(errno("EPERM (Operation not permitted)"), 1);
        assert_eq!(errno("ENOSPC (No space left on device)"), 28);
        assert_eq!(errno("ELOOP"), 40);
        assert_eq!(errno("ERRNO_524 (Unknown error 524)"), 524);
        assert_eq!(errno("EWHATEVER"), 0);
        assert_eq!((signal("SIGHUP"), signal("SIGKILL"), signal("SIGSYS")), (Some(1), Some(9), Some(31)));
        assert_eq!((signal("SIGRT_1"), signal("SIGNOT")), (Some(33), None));
        assert_eq!(bits("FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE", FALLOCATE), 3);
        assert_eq!(bits("0", FALLOCATE), 0);
    }
}
