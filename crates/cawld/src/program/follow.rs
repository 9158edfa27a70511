//! `cawld --kernel`: probes in the kernel follow services and containers that nobody restarted.
//!
//! Each name is a task. What is there when the daemon starts is followed before it says that it is ready; what is not
//! there, or has ended, is looked for every second and followed then.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use cawl_host::target::{Found, Name};
use clap::{ArgGroup, Args};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Daemon;
use crate::kernel::{Attached, Target};

/// Interval of looks for what is not there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The daemon's own lane.
const OWN: u64 = 0;

/// What probes in the kernel follow.
#[derive(Args)]
#[command(group = ArgGroup::new("followed").multiple(true))]
pub struct FollowArgs {
    /// Follow what --unit, --container, --cgroup and --pid name by probes in the kernel, without a restart; needs root,
    /// or CAP_BPF and CAP_PERFMON
    #[arg(long, requires = "followed")]
    kernel: bool,
    /// Services of systemd, whenever they run
    #[arg(
        long = "unit",
        value_name = "NAME,…",
        value_delimiter = ',',
        requires = "kernel",
        group = "followed"
    )]
    units: Vec<String>,
    /// Containers of Docker, Podman or containerd by name or id, whenever they run
    #[arg(
        long = "container",
        value_name = "NAME|ID,…",
        value_delimiter = ',',
        requires = "kernel",
        group = "followed"
    )]
    containers: Vec<String>,
    /// A control group with all below it, as a folder of /sys/fs/cgroup; may be repeated
    #[arg(long = "cgroup", value_name = "DIR", requires = "kernel", group = "followed")]
    cgroups: Vec<PathBuf>,
    /// Processes with all their children, until they end
    #[arg(
        long = "pid",
        value_name = "PID,…",
        value_delimiter = ',',
        requires = "kernel",
        group = "followed"
    )]
    processes: Vec<u32>,
}

impl FollowArgs {
    fn names(self) -> impl Iterator<Item = Name> {
        let units = self.units.into_iter().map(Name::Unit);
        let containers = self.containers.into_iter().map(Name::Container);
        let processes = self.processes.into_iter().map(Name::Process);
        units.chain(containers).chain(self.cgroups.into_iter().map(Name::Group)).chain(processes)
    }
}

/// What is followed, or waited for.
pub struct Following {
    tasks: JoinSet<anyhow::Result<()>>,
    end: watch::Sender<()>,
}

impl Following {
    /// Follows what is there now, and looks for the rest. An error if probes cannot be attached, or if there is no
    /// such process.
    pub async fn start(daemon: &Arc<Daemon>, args: FollowArgs) -> anyhow::Result<Following> {
        let (end, told) = watch::channel(());
        let mut tasks = JoinSet::new();
        for name in args.names() {
            let probes = match look(&name).await {
                Ok(found) => attach(daemon, &name, found).await?,
                Err(error) if matches!(name, Name::Process(_)) => return Err(error),
                Err(error) if matches!(&name, Name::Group(folder) if !folder.starts_with("/sys/fs/cgroup")) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    tracing::info!("it is followed from when it runs: {error:#}");
                    None
                }
            };
            tasks.spawn(follow(Arc::clone(daemon), name, probes, told.clone()));
        }
        Ok(Following { tasks, end })
    }

    /// Returns once something cannot be followed, with the reason.
    pub async fn failed(&mut self) -> anyhow::Error {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended.map_err(anyhow::Error::from).flatten() {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Detaches.
    pub async fn stop(mut self) {
        drop(self.end);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Follows a name until the daemon ends, which the closed channel tells.
async fn follow(
    daemon: Arc<Daemon>,
    name: Name,
    mut probes: Option<Attached>,
    mut end: watch::Receiver<()>,
) -> anyhow::Result<()> {
    loop {
        if let Some(probes) = probes.take() {
            let is_over = tokio::select! {
                () = probes.ended() => false,
                _ = end.changed() => true,
            };
            for note in probes.stop().await? {
                tracing::info!("{name}: {note}");
            }
            if is_over || matches!(name, Name::Process(_)) {
                return Ok(());
            }
            tracing::info!("{name} has ended; it is looked for");
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = end.changed() => return Ok(()),
        }
        if let Ok(found) = look(&name).await {
            probes = attach(&daemon, &name, found).await?;
        }
    }
}

/// Programs are asked, and folders are read.
async fn look(name: &Name) -> anyhow::Result<Found> {
    let name = name.clone();
    tokio::task::spawn_blocking(move || name.find()).await.map_err(|error| anyhow!(error))?
}

/// None if it ended meanwhile.
async fn attach(daemon: &Daemon, name: &Name, found: Found) -> anyhow::Result<Option<Attached>> {
    let Found { groups, mut processes } = found;
    if !groups.is_empty() {
        processes.clear();
    }
    match daemon.attach(OWN, Target { processes, cgroups: groups.clone(), ..Target::default() }).await {
        Ok(probes) => {
            tracing::info!("following {name} by probes in the kernel");
            Ok(Some(probes))
        }
        Err(_) if groups.iter().any(|group| !group.is_dir()) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot follow {name}")),
    }
}
