//! `cawld --kernel`: probes in the kernel follow services and containers that nobody restarted.
//!
//! All names share the probes. What is there when the daemon starts is followed before it says that it is
//! ready; what is not there, or has ended, is looked for every second and followed then. While nothing is
//! there, nothing is attached.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use cawl_host::target::{Found, Name};
use clap::{ArgGroup, Args};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Daemon;
use crate::kernel::{self, Attached, Followed, Target};
use crate::task::Boxed;

/// Interval of looks for what is not there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The daemon's own lane.
const OWN: u64 = 0;

/// What probes in the kernel follow.
#[derive(Args)]
#[command(group = ArgGroup::new("followed").multiple(true))]
pub struct FollowArgs {
    /// Follow what runs by probes in the kernel, without a restart; --unit, --container, --cgroup or --pid
    /// name it
    ///
    /// Needs root, or CAP_BPF and CAP_PERFMON.
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
    task: JoinSet<anyhow::Result<()>>,
    end: watch::Sender<()>,
}

impl Following {
    /// Follows what is there now, and looks for the rest. An error if probes cannot be attached, or if there
    /// is no such process.
    pub async fn start(daemon: &Arc<Daemon>, args: FollowArgs) -> anyhow::Result<Following> {
        let mut eye = Eye { daemon: Arc::clone(daemon), probes: None, names: BTreeMap::new() };
        for name in args.names() {
            let followed = match look(&name).await {
                Ok(found) => eye.follow(&name, found).await?,
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
            eye.names.insert(name, followed);
        }
        // Not only when the first of them runs.
        if let Some(why) = kernel::unavailable().filter(|_| !eye.names.is_empty()) {
            bail!(why);
        }
        let (end, told) = watch::channel(());
        let mut task = JoinSet::new();
        task.spawn(Box::pin(eye.keep(told)) as Boxed<_>);
        Ok(Following { task, end })
    }

    /// Returns once something cannot be followed, with the reason.
    pub async fn failed(&mut self) -> anyhow::Error {
        while let Some(ended) = self.task.join_next().await {
            if let Err(error) = ended.map_err(anyhow::Error::from).flatten() {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Detaches.
    pub async fn stop(mut self) {
        drop(self.end);
        while self.task.join_next().await.is_some() {}
    }
}

/// The probes, which are attached while there is something to follow, and all names.
struct Eye {
    daemon: Arc<Daemon>,
    probes: Option<Attached>,
    names: BTreeMap<Name, Option<Followed>>,
}

impl Eye {
    /// Follows names, and looks for those that do not run, until the daemon ends, which the closed channel
    /// tells.
    async fn keep(mut self, mut end: watch::Receiver<()>) -> anyhow::Result<()> {
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => self.poll().await?,
                _ = end.changed() => is_over = true,
            }
            let is_idle = self.names.values().all(Option::is_none);
            let has_ended = self.probes.as_ref().is_some_and(Attached::have_ended);
            if (is_over || is_idle || has_ended)
                && let Some(probes) = self.probes.take()
            {
                let notes = probes.stop().await?;
                notes.into_iter().for_each(|note| tracing::info!("{note}"));
                // The daemon drains.
                is_over |= has_ended;
            }
        }
        Ok(())
    }

    async fn poll(&mut self) -> anyhow::Result<()> {
        for (name, followed) in std::mem::take(&mut self.names) {
            let mut followed = followed;
            if followed.take_if(|followed| followed.has_ended()).is_some() {
                if matches!(name, Name::Process(_)) {
                    tracing::info!("{name} has ended");
                    continue;
                }
                tracing::info!("{name} has ended; it is looked for");
            }
            if followed.is_none()
                && let Ok(found) = look(&name).await
            {
                followed = self.follow(&name, found).await?;
            }
            self.names.insert(name, followed);
        }
        Ok(())
    }

    /// None if it ended meanwhile.
    async fn follow(&mut self, name: &Name, found: Found) -> anyhow::Result<Option<Followed>> {
        let Found { groups, mut processes } = found;
        if !groups.is_empty() {
            processes.clear();
        }
        let target = Target { processes, cgroups: groups.clone(), ..Target::default() };
        let followed = match &self.probes {
            Some(probes) => probes.follow(target).await,
            None => {
                self.daemon.attach(OWN, target).await.map(|probes| self.probes.insert(probes).first.clone())
            }
        };
        match followed {
            Ok(followed) => {
                tracing::info!("following {name} by probes in the kernel");
                Ok(Some(followed))
            }
            Err(_) if groups.iter().any(|group| !group.is_dir()) => Ok(None),
            // `keep` tells why they have.
            Err(_) if self.probes.as_ref().is_some_and(Attached::have_ended) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot follow {name}")),
        }
    }
}

/// Programs are asked, and folders are read.
async fn look(name: &Name) -> anyhow::Result<Found> {
    let name = name.clone();
    tokio::task::spawn_blocking(move || name.find()).await.map_err(|error| anyhow!(error))?
}
