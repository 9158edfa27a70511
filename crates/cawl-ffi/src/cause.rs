//! Causes by number. The model's own order is that of reports, and may change; these may not.

use std::ffi::{CStr, c_char};

use cawl_model::Cause;

/// Numbers of causes that there may be: those of `cawl_cause`, and room for more.
pub const CAWL_CAUSES: usize = 32;

/// Why a call takes time: the index of `parts_ns` of `cawl_cost`. docs/guide/SLOW.md explains them.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum cawl_cause {
    /// Entering the kernel, and what it does once for each call.
    CAWL_CAUSE_CALL = 0,
    /// The C library's stream: the call, and copying into its buffer.
    CAWL_CAUSE_STREAM = 1,
    /// Copying into or out of the page cache.
    CAWL_CAUSE_COPY = 2,
    /// Going through the blocks of a large folio of which the call writes a part.
    CAWL_CAUSE_LARGE_FOLIO = 3,
    /// Allocating pages and entering them into the page cache.
    CAWL_CAUSE_NEW_PAGES = 4,
    /// Taking pages out of the page cache.
    CAWL_CAUSE_FREED_PAGES = 5,
    /// Memory that the host of a virtual machine has to supply first.
    CAWL_CAUSE_COLD_MEMORY = 6,
    /// Reading a page that is written in part, or the source of a copy.
    CAWL_CAUSE_PARTIAL_PAGE = 7,
    /// The device reads what is not cached.
    CAWL_CAUSE_READ = 8,
    /// An overlay copies a file of a lower layer.
    CAWL_CAUSE_COPY_UP = 9,
    /// What copying takes longer while the flusher works.
    CAWL_CAUSE_FLUSHER_BESIDE = 10,
    /// Pauses in `balance_dirty_pages`.
    CAWL_CAUSE_THROTTLE = 11,
    /// A commit of the filesystem's journal, or waiting for one.
    CAWL_CAUSE_JOURNAL = 12,
    /// Waiting for requests that the device had before.
    CAWL_CAUSE_QUEUE = 13,
    /// The device writes the data, or discards what was freed.
    CAWL_CAUSE_TRANSFER = 14,
    /// The device moves to another place.
    CAWL_CAUSE_SEEK = 15,
    /// The device's write cache is flushed.
    CAWL_CAUSE_DEVICE_FLUSH = 16,
    /// The way over the network, and what the server takes.
    CAWL_CAUSE_NETWORK = 17,
    /// Another thread writes to the same file.
    CAWL_CAUSE_LOCK = 18,
    /// Another thread has the processor. No model predicts it.
    CAWL_CAUSE_PREEMPTED = 19,
    /// Writing to /dev/null. No model predicts it.
    CAWL_CAUSE_DISCARD = 20,
    /// What no law explains. No model predicts it.
    CAWL_CAUSE_UNEXPECTED = 21,
}

/// The number of each cause, and its name with a NUL behind it: a name that a test compares with the model's.
const fn numbered(cause: Cause) -> (cawl_cause, &'static CStr) {
    use cawl_cause::*;
    match cause {
        Cause::Call => (CAWL_CAUSE_CALL, c"call"),
        Cause::Stream => (CAWL_CAUSE_STREAM, c"stream"),
        Cause::Copy => (CAWL_CAUSE_COPY, c"copy"),
        Cause::LargeFolio => (CAWL_CAUSE_LARGE_FOLIO, c"large folio"),
        Cause::NewPages => (CAWL_CAUSE_NEW_PAGES, c"new pages"),
        Cause::FreedPages => (CAWL_CAUSE_FREED_PAGES, c"freed pages"),
        Cause::ColdMemory => (CAWL_CAUSE_COLD_MEMORY, c"cold memory"),
        Cause::PartialPage => (CAWL_CAUSE_PARTIAL_PAGE, c"partial page read"),
        Cause::Read => (CAWL_CAUSE_READ, c"read"),
        Cause::CopyUp => (CAWL_CAUSE_COPY_UP, c"copy up"),
        Cause::FlusherBeside => (CAWL_CAUSE_FLUSHER_BESIDE, c"flusher beside"),
        Cause::Throttle => (CAWL_CAUSE_THROTTLE, c"throttle"),
        Cause::Journal => (CAWL_CAUSE_JOURNAL, c"journal"),
        Cause::Queue => (CAWL_CAUSE_QUEUE, c"queue"),
        Cause::Transfer => (CAWL_CAUSE_TRANSFER, c"transfer"),
        Cause::Seek => (CAWL_CAUSE_SEEK, c"seek"),
        Cause::DeviceFlush => (CAWL_CAUSE_DEVICE_FLUSH, c"device flush"),
        Cause::Network => (CAWL_CAUSE_NETWORK, c"network"),
        Cause::Lock => (CAWL_CAUSE_LOCK, c"lock"),
        Cause::Preempted => (CAWL_CAUSE_PREEMPTED, c"preempted"),
        Cause::Discard => (CAWL_CAUSE_DISCARD, c"discard"),
        Cause::Unexpected => (CAWL_CAUSE_UNEXPECTED, c"unexpected"),
    }
}

/// The index of each cause's part, by the model's order.
pub const PLACE: [u8; Cause::ALL.len()] = {
    let (mut places, mut at) = ([0; Cause::ALL.len()], 0);
    while at < places.len() {
        places[at] = numbered(Cause::ALL[at]).0 as u8;
        at += 1;
    }
    places
};

/// Name of a cause, as reports have it; NULL of a number that is none's. Never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_cause_name(cause: u32) -> *const c_char {
    let found = Cause::ALL.into_iter().map(numbered).find(|(number, _)| *number as u32 == cause);
    found.map_or(std::ptr::null(), |(_, name)| name.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_place_of_its_own_and_its_name() {
        let mut places = PLACE.to_vec();
        places.sort_unstable();
        places.dedup();
        assert_eq!((places.len(), usize::from(*places.last().unwrap()) < CAWL_CAUSES), (PLACE.len(), true));
        for cause in Cause::ALL {
            assert_eq!(numbered(cause).1.to_str(), Ok(cause.name()));
        }
        assert!(cawl_cause_name(22).is_null() && !cawl_cause_name(21).is_null());
    }
}
