//! Limits that the user of this process can raise: how many files may be open (`ulimit -n`), and how long one
//! may become (`ulimit -f`).

use std::error::Error;
use std::io;
use std::os::unix::net::UnixDatagram;

use anyhow::ensure;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What the user can do, where such a limit is the cause.
pub fn remedy(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::EMFILE | Errno::ENFILE => Some("allow more (ulimit -n)"),
        Errno::EFBIG => Some("the filesystem, or a limit (ulimit -f), allows no file so long; raise it"),
        _ => None,
    }
}

/// What the user can do about a limit, if the error is of one.
pub fn remedy_of(error: &anyhow::Error) -> Option<&'static str> {
    let errno = |cause: &(dyn Error + 'static)| {
        let of_io =
            || cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error).map(Errno::from_raw);
        cause.downcast_ref::<Errno>().copied().or_else(of_io)
    };
    error.chain().filter_map(errno).find_map(remedy)
}

/// The error with its causes, and what the user can do.
pub fn with_remedy(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    match remedy_of(error).filter(|_| !text.contains("ulimit")) {
        Some(remedy) => format!("{text}; {remedy}"),
        None => text,
    }
}

/// The least limit of open files with which the library traces a program (cawl-preload's place.rs). It also
/// does for a daemon that has inherited none.
const ENOUGH: u64 = 64;

/// An error unless so many further files may be open. Libraries that need some panic without them.
pub fn descriptors(count: usize) -> anyhow::Result<()> {
    // Needs no file: there may be no /dev.
    let opened: Vec<_> = (0..count).map(|_| UnixDatagram::unbound()).collect();
    let codes = opened.iter().filter_map(|one| one.as_ref().err()?.raw_os_error());
    let more = codes.filter(|code| matches!(Errno::from_raw(*code), Errno::EMFILE | Errno::ENFILE)).count();
    let enough =
        getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(now, _)| now.saturating_add(more as u64)).max(ENOUGH);
    ensure!(more == 0, "too many open files; allow {enough} or more (ulimit -n {enough})");
    Ok(())
}

/// Why no library traces a program with this process's limits: it would miss the descriptor that the tracer
/// takes (cawl-preload's place.rs), which has room only above the limit. The kernel's probes need more, too.
pub fn few_files() -> Option<&'static str> {
    const FILES: Resource = Resource::RLIMIT_NOFILE;
    let (now, most) = getrlimit(FILES).ok()?;
    let above = now.saturating_add(16);
    if most >= ENOUGH
        || setrlimit(FILES, above, most.max(above)).is_ok_and(|()| setrlimit(FILES, now, most).is_ok())
    {
        return None;
    }
    Some("a program may have fewer than 64 files open; allow as many (ulimit -n 64)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_with_its_remedy_once() {
        let of = |error: io::Error| anyhow::Error::from(error).context("cannot write f");
        let full = of(Errno::EFBIG.into());
        assert!(with_remedy(&full).starts_with("cannot write f: File too large"), "{}", with_remedy(&full));
        assert!(with_remedy(&full).ends_with("raise it"), "{}", with_remedy(&full));
        let again = full.context("see ulimit -f");
        assert!(!with_remedy(&again).contains("raise it"), "{}", with_remedy(&again));
        assert!(with_remedy(&of(Errno::EMFILE.into())).ends_with("(ulimit -n)"));
        assert!(with_remedy(&anyhow::Error::from(Errno::EMFILE)).ends_with("(ulimit -n)"));
        assert!(!with_remedy(&of(Errno::ENOENT.into())).contains("ulimit"));
        descriptors(2).unwrap();
    }
}
