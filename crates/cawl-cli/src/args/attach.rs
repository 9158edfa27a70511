//! The arguments of `attach`.

use std::path::PathBuf;

use cawl_core::{Nanos, quantity};
use cawl_host::target::Name;
use clap::Args;

use super::RecordArgs;

/// Report on programs that run already, by probes in the kernel
///
/// Nothing is loaded into the programs, and none is restarted. Processes that they start are followed too.
/// Ctrl-C (or SIGTERM, where a shell's & has SIGINT ignored), --for or the end of all of them ends it, and
/// the report goes to stderr; Ctrl-C while the report is made: report at once, without the calls not yet
/// read; another Ctrl-C: no report. Needs root, or CAP_BPF and CAP_PERFMON, and measures no device:
/// `calibrate` does. docs/guide/SERVICES.md begins with a slow database.
#[derive(Args)]
pub struct AttachArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Detach after this time: 30s, 5m
    #[arg(long = "for", value_name = "SPAN", value_parser = span, allow_hyphen_values = true)]
    pub span: Option<Nanos>,
    #[command(flatten)]
    pub record: RecordArgs,
}

/// Sleeps are no longer than a timer can count.
const LONGEST: Nanos = Nanos::seconds(365.0 * 86_400.0);

fn span(text: &str) -> Result<Nanos, String> {
    let span = quantity::duration(text).ok().filter(|span| *span <= LONGEST);
    span.ok_or_else(|| "give a time above zero with its unit, as 30s or 5m, of at most 365 days".to_owned())
}

fn process(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        "give the number of a process, as ps -e lists them, or a name with --unit or --container".to_owned()
    })
}

/// What to follow.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct TargetArgs {
    /// Processes, with all their threads and children
    #[arg(value_name = "PID", value_parser = process, allow_negative_numbers = true)]
    processes: Vec<u32>,
    /// Services of systemd, such as postgresql@15-main
    #[arg(long = "unit", value_name = "NAME,…", value_delimiter = ',')]
    units: Vec<String>,
    /// Containers of Docker, Podman or containerd, by name or id; also of LXC and systemd-nspawn, by name
    #[arg(long = "container", value_name = "NAME|ID,…", value_delimiter = ',')]
    containers: Vec<String>,
    /// A control group with all below it, as a folder of /sys/fs/cgroup; may be repeated
    #[arg(long = "cgroup", value_name = "DIR")]
    cgroups: Vec<PathBuf>,
}

impl TargetArgs {
    /// Their names.
    pub fn names(&self) -> Vec<Name> {
        let processes = self.processes.iter().copied().map(Name::Process);
        let units = self.units.iter().cloned().map(Name::Unit);
        let containers = self.containers.iter().cloned().map(Name::Container);
        processes
            .chain(units)
            .chain(containers)
            .chain(self.cgroups.iter().cloned().map(Name::Group))
            .collect()
    }
}
