//! Whether probes can be attached here, and what is missing.

use std::path::Path;

/// Why there are no probes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unavailable {
    /// The user may not.
    #[error(
        "the kernel's probes need root (sudo), or CAP_BPF and CAP_PERFMON, and CAP_SYS_PTRACE for what /proc tells of \
         other users' processes; missing: {}", .0.join(", ")
    )]
    Rights(Vec<&'static str>),
    /// The kernel does not tell its types.
    #[error(
        "the kernel's probes need its types, which are not there ({0}): a kernel of Linux 5.11 or later, built with \
         CONFIG_DEBUG_INFO_BTF, has them in /sys/kernel/btf/vmlinux"
    )]
    NoTypes(String),
    /// A release without storage of threads for tracing programs.
    #[error("the kernel's probes need Linux 5.11 or later; this is {0}")]
    TooOld(String),
    /// The kernel is locked down.
    #[error(
        "the kernel's probes may not read its memory: it is locked down (/sys/kernel/security/lockdown says \
         confidentiality)"
    )]
    LockedDown,
    /// Processes have other numbers here than in the kernel.
    #[error(
        "the kernel's probes know processes by the numbers of the machine, and this is a container with numbers of \
         its own: run it outside, or in a container that shares them (docker run --pid=host)"
    )]
    OtherNumbers,
    /// Another processor.
    #[error("the kernel's probes are for x86-64 and AArch64")]
    Processor,
    /// Something else.
    #[error("the kernel's probes cannot be attached: {0}")]
    Failed(String),
}

/// What failed, with all of its reasons and what helps.
pub fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> Unavailable {
    let reasons: Vec<_> = std::iter::successors(Some(error), |error| error.source()).collect();
    let texts = reasons.iter().map(|error| error.to_string().replace('\n', " "));
    let errno = reasons.iter().find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error());
    let remedy = match errno {
        Some(libc::EPERM) => {
            "a user namespace (unshare -r, rootless containers), a filter of system calls or a security module forbids \
             bpf(): run it outside of the container, or without its seccomp profile"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::ENOMEM | libc::EAGAIN) => "there is no memory for their tables, of some 30 MB",
        _ => "please report it with the kernel's release (uname -r)",
    };
    Unavailable::Failed(format!(
        "{what}: {}; {remedy}",
        texts.map(|text| short(&text)).collect::<Vec<_>>().join(": ")
    ))
}

/// The verifier's log is long: its end has the reason.
fn short(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    match letters.len() {
        0..400 => text.to_owned(),
        length => letters[..100].iter().chain(&['…']).chain(&letters[length - 300..]).collect(),
    }
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Whether probes may be attached here, as far as that can be known before they are.
pub fn check() -> Result<(), Unavailable> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Err(Unavailable::Processor);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    rights(&status)?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if is_too_old(&release) {
        return Err(Unavailable::TooOld(release.trim().to_owned()));
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Unavailable::NoTypes("/sys/kernel/btf/vmlinux".to_owned()));
    }
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        return Err(Unavailable::LockedDown);
    }
    // The first pid namespace has this number (PROC_PID_INIT_INO).
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if own.to_string_lossy() != "pid:[4026531836]" {
        return Err(Unavailable::OtherNumbers);
    }
    Ok(())
}

fn is_too_old(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (5, 11),
        _ => false,
    }
}

fn rights(status: &str) -> Result<(), Unavailable> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let has = |bit: u32| bits >> bit & 1 == 1;
    if has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON)) {
        return Ok(());
    }
    let names = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")];
    Err(Unavailable::Rights(names.into_iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| name).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_too_old_is_told() {
        let is_old = ["5.10.0-32-cloud-amd64", "4.18.0", "5.9"].map(is_too_old);
        let is_new = ["5.11.0", "5.15.0-204-generic", "6.1", "10.0", "unknown"].map(is_too_old);
        assert_eq!((is_old, is_new), ([true; 3], [false; 5]));
    }

    #[test]
    fn a_failure_tells_its_cause_and_what_helps() {
        let error = |errno| std::io::Error::from_raw_os_error(errno);
        let told = failed("its table", &error(libc::EMFILE)).to_string();
        assert!(told.contains("its table: Too many open files") && told.ends_with("(ulimit -n)"), "{told}");
        assert!(failed("it", &error(libc::EPERM)).to_string().contains("without its seccomp profile"));
        let log = std::io::Error::other(format!(
            "refused\n{}the stack is too deep",
            "1: (bf) r6 = r1\n".repeat(900)
        ));
        let told = failed("it", &log).to_string();
        assert!(
            told.contains("refused") && told.contains("the stack is too deep; please report it"),
            "{told}"
        );
        assert!(told.len() < 700, "{told}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let status = |hex: &str| rights(&format!("Name:\tx\nCapEff:\t{hex}\n"));
        assert_eq!(status("000001ffffffffff"), Ok(()));
        assert_eq!(status("000000c000000000"), Ok(()));
        assert_eq!(status("0000008000000000"), Err(Unavailable::Rights(vec!["CAP_PERFMON"])));
        let none = status("0000000000000000").unwrap_err();
        assert!(none.to_string().contains("missing: CAP_BPF, CAP_PERFMON"), "{none}");
    }
}
