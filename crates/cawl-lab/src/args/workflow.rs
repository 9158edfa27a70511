//! Arguments of `workflow`.

mod run;

use std::path::PathBuf;
use std::thread::available_parallelism;

use cawl_console::inputs::{profile_of, read_profile};
use cawl_core::{MODELS, MemoryFacts, Request, Time};
use clap::builder::PossibleValuesParser;
use clap::value_parser;

pub use run::RunArgs;

use crate::workflow::Cluster;

/// How long does a workflow take on these hosts, and why?
///
/// FILE is WfCommons JSON, or TOML: tasks that read files, compute and write files, with what each comes
/// after. All calls are made on paper, with a page cache and dirty limits for every host. Prints the
/// makespan, its causes, the critical path, and what changes of the machine would do.
/// docs/science/WORKFLOWS.md explains both formats and the laws.
#[derive(clap::Args)]
pub struct WorkflowArgs {
    /// The workflow
    pub file: PathBuf,
    #[command(flatten)]
    pub hosts: HostsArgs,
    /// The model
    #[arg(long, value_name = "NAME", default_value = "kernel", value_parser = PossibleValuesParser::new(MODELS))]
    pub model: String,
    /// What if: a change of all hosts, in the words of docs/reference/WHATIF.md, as limits=1G,2G or
    /// set=device.writeback=2G. May be repeated; each is made alone
    #[arg(long = "try", value_name = "NAME=VALUE,…", value_parser = of_machine)]
    pub tries: Vec<(String, Vec<Request>)>,
    /// What a part of the hosts that is larger by a tenth does to the makespan
    #[arg(long)]
    pub sensitivity: bool,
    /// Draw tasks over time, on a page
    #[arg(long, value_name = "FILE.html")]
    pub page: Option<PathBuf>,
    /// Write tasks over time for Perfetto
    #[arg(long, value_name = "FILE.json")]
    pub perfetto: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub real: RunArgs,
}

/// Where a workflow runs.
#[derive(clap::Args)]
pub struct HostsArgs {
    /// The hosts (TOML) [default: this machine alone]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["processors", "profile"])]
    pub cluster: Option<PathBuf>,
    /// Processors of the only host [default: those of this machine]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub processors: Option<u32>,
    /// Profile of the only host (TOML) [default: that of this machine and device]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Files that are there before are in the page cache
    #[arg(long)]
    pub cached: bool,
}

impl HostsArgs {
    /// True if something is said of them.
    pub fn is_given(&self) -> bool {
        self.cluster.is_some() || self.processors.is_some() || self.profile.is_some() || self.cached
    }

    /// The hosts.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn cluster(&self) -> anyhow::Result<Cluster> {
        let own = || profile_of("cawl-lab", None, "speeds are defaults");
        if let Some(file) = &self.cluster {
            return Cluster::read(file, &own);
        }
        let profile = self.profile.as_deref().map_or_else(|| Ok(own()), read_profile)?;
        let processors = available_parallelism().map_or(1, |count| count.get() as u32);
        let mut cluster = Cluster::single(self.processors.unwrap_or(processors), profile);
        for host in cluster.hosts.iter_mut().filter(|_| self.profile.is_none()) {
            // As `cawl-cli predict`: it is no more than there is, and what the host of a virtual machine has
            // taken back of it is slow.
            let free = cawl_host::free::sample();
            host.memory = free.map(|found| MemoryFacts { time: Time(0), ..found });
        }
        Ok(cluster)
    }
}

fn of_machine(text: &str) -> Result<(String, Vec<Request>), String> {
    let requests = Request::list(text)?;
    match requests.iter().find(|request| request.changes_calls()) {
        None => Ok((text.to_owned(), requests)),
        Some(request) => Err(format!(
            "{} is a change of calls: block, fsync and files of tasks stand in the workflow",
            request.text
        )),
    }
}
