//! The hosts that a workflow runs on.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use cawl_console::inputs::read_profile;
use cawl_core::quantity::{limits, ram, size_above_zero};
use cawl_core::{
    Bytes, Effect, HostProfile, ListFacts, Machine, MemoryFacts, NoScenario, Rate, Request, Scenario,
    ZoneFacts, dirtyable,
};
use serde::Deserialize;

/// Hosts, and what they share.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub hosts: Vec<Host>,
    /// All files lie on a mount that the hosts share. None: they are on the device of the only host.
    pub shared: Option<Shared>,
}

/// The server of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// What it moves for all hosts together; None: as much as for one.
    pub bandwidth: Option<Rate>,
}

/// A machine of its own, with a page cache and dirty limits.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub processors: u32,
    /// Its device is where the files of the workflow are: the shared mount, if there is one.
    pub profile: HostProfile,
    /// Its memory at the begin; None: it is warm, and the page cache holds all files.
    pub memory: Option<MemoryFacts>,
}

/// Hosts at most: each has a page cache on paper.
const MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterText {
    host: Vec<HostText>,
    shared: Option<SharedText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    name: Option<String>,
    #[serde(default = "one")]
    count: usize,
    processors: u32,
    profile: Option<String>,
    limits: Option<String>,
    memory: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedText {
    profile: String,
    bandwidth: Option<String>,
}

fn one() -> usize {
    1
}

impl Cluster {
    /// One host without a share.
    pub fn single(processors: u32, profile: HostProfile) -> Cluster {
        let host = Host { name: "host".to_owned(), processors, profile, memory: None };
        Cluster { hosts: vec![host], shared: None }
    }

    /// The cluster in a TOML file; hosts without a profile have `own`. Profiles are named from its folder.
    ///
    /// # Errors
    /// Where a file cannot be read, or a value is none, with its name.
    pub fn read(path: &Path, own: &dyn Fn() -> HostProfile) -> anyhow::Result<Cluster> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Cluster::parse(&text, &|name| read_profile(&folder.join(name)), own)
            .with_context(|| format!("{} is no cluster", path.display()))
    }

    /// The hosts, each with these changes.
    ///
    /// # Errors
    /// Where a change makes no sense, or a profile cannot be read.
    pub fn changed(&self, changes: &[Request]) -> anyhow::Result<Cluster> {
        let read =
            |path: &Path| read_profile(path).map_err(|error| NoScenario::Profile(format!("{error:#}")));
        let mut cluster = self.clone();
        for host in &mut cluster.hosts {
            let machine = Machine::new(host.profile.clone(), false);
            let scenario = Scenario { machine, changes: Vec::new() };
            let with = scenario.with(changes, &host.profile, None, read);
            let machine = match with {
                Err(NoScenario::NoMemory) => {
                    bail!("nobody knows how much memory the hosts have; add ram=SIZE")
                }
                with => with?.machine,
            };
            host.profile = machine.profile;
            for change in changes {
                if let Effect::Ram(bytes) = change.effect {
                    let whole = empty(bytes, host.profile.kernel.page);
                    host.memory = Some(host.memory.take().map_or(whole.clone(), |old| as_large(old, &whole)));
                }
            }
            if let Some(memory) = host.memory.as_mut().filter(|_| machine.warm) {
                memory.order = MemoryFacts::NOT_TAKEN_BACK;
            }
        }
        Ok(cluster)
    }

    fn parse(
        text: &str,
        read: &dyn Fn(&str) -> anyhow::Result<HostProfile>,
        own: &dyn Fn() -> HostProfile,
    ) -> anyhow::Result<Cluster> {
        let ClusterText { host, shared } = toml::from_str(text)?;
        let mut hosts = Vec::new();
        for (kind, of) in host.into_iter().enumerate() {
            let name = of.name.unwrap_or_else(|| format!("host{}", kind + 1));
            ensure!(of.processors > 0, "{name}: processors must be above 0");
            ensure!((1..=MAX - hosts.len().min(MAX)).contains(&of.count), "1 to {MAX} hosts are possible");
            let mut profile = of.profile.map_or_else(|| Ok(own()), |profile| read(&profile))?;
            if let Some(text) = of.limits {
                let limits = limits(&text).map_err(|why| anyhow!("{name}: limits: {why}"))?;
                profile.kernel.limits = limits;
            }
            let memory = of.memory.map(|text| {
                let bytes = ram(&text).map_err(|why| anyhow!("{name}: memory: {why}"))?;
                anyhow::Ok(empty(Bytes(bytes), profile.kernel.page))
            });
            let memory = memory.transpose()?;
            hosts.extend((1..=of.count).map(|number| Host {
                name: if of.count == 1 { name.clone() } else { format!("{name}-{number}") },
                processors: of.processors,
                memory: memory.clone(),
                profile: profile.clone(),
            }));
        }
        ensure!(!hosts.is_empty(), "there is no [[host]]");
        let mut names = HashSet::new();
        let twice = hosts.iter().find(|host: &&Host| !names.insert(host.name.as_str()));
        if let Some(host) = twice {
            bail!("two hosts have the name {}", host.name);
        }
        let Some(shared) = shared else {
            if hosts.len() > 1 {
                bail!("{} hosts share no files: add [shared] with the profile of a mount", hosts.len());
            }
            return Ok(Cluster { hosts, shared: None });
        };
        let device = read(&shared.profile)?.device;
        let bandwidth = shared.bandwidth.map(|text| {
            let bytes = size_above_zero(text.strip_suffix("/s").unwrap_or(&text));
            let bytes = bytes.map_err(|why| anyhow!("shared: bandwidth: {why}"))?;
            anyhow::Ok(Rate::per_second(bytes as f64))
        });
        let shared = Shared { bandwidth: bandwidth.transpose()? };
        hosts.iter_mut().for_each(|host| host.profile.device = device.clone());
        Ok(Cluster { hosts, shared: Some(shared) })
    }
}

/// Memory with as much for the page cache as another one, of which the host has taken back an equal part.
fn as_large(mut memory: MemoryFacts, other: &MemoryFacts) -> MemoryFacts {
    let pages = |memory: &MemoryFacts| {
        let free = memory.zones.iter().flat_map(|zone| zone.free.iter().enumerate());
        let free: u64 = free.map(|(order, blocks)| blocks << order).sum();
        free + memory.files.map_or(0, |files| files.inactive + files.active)
    };
    let factor = pages(other) as f64 / pages(&memory).max(1) as f64;
    let scale = |value: &mut u64| *value = (*value as f64 * factor).round() as u64;
    for zone in &mut memory.zones {
        zone.free.iter_mut().chain(zone.cold.iter_mut().flatten()).for_each(scale);
        [&mut zone.low, &mut zone.high, &mut zone.reserve].into_iter().for_each(scale);
    }
    memory.files.iter_mut().flat_map(|files| [&mut files.inactive, &mut files.active]).for_each(scale);
    memory
}

/// So much memory that nobody uses yet, as far as a page cache may have it.
fn empty(memory: Bytes, page: Bytes) -> MemoryFacts {
    let pages = dirtyable(memory, page).0 / page.0.max(1);
    let zone = ZoneFacts { free: vec![pages], ..ZoneFacts::default() };
    let files = Some(ListFacts { inactive: 0, active: 0 });
    MemoryFacts { zones: vec![zone], files, order: MemoryFacts::NOT_TAKEN_BACK, ..MemoryFacts::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> anyhow::Result<Cluster> {
        let none = |name: &str| match name {
            "nfs.toml" => Ok(HostProfile::uncalibrated()),
            _ => bail!("cannot read the profile {name}"),
        };
        Cluster::parse(text, &none, &HostProfile::uncalibrated)
    }

    #[test]
    fn hosts_and_their_share() {
        let text = "[[host]]\nname = \"node\"\ncount = 2\nprocessors = 4\nlimits = \"1G,2G\"\n[[host]]\n\
                    processors = 1\n[shared]\nprofile = \"nfs.toml\"\nbandwidth = \"2GB/s\"\n";
        let cluster = parsed(text).unwrap();
        let names: Vec<_> = cluster.hosts.iter().map(|host| (host.name.as_str(), host.processors)).collect();
        assert_eq!(names, [("node-1", 4), ("node-2", 4), ("host2", 1)]);
        assert_eq!(cluster.hosts[0].profile.kernel.limits.hard, Bytes::mib(2048));
        assert_eq!(cluster.shared.unwrap().bandwidth.unwrap().get(), 2e9);
    }

    #[test]
    fn other_memory_is_taken_back_in_equal_part_and_warm_memory_is_not() {
        let mut cluster = Cluster::single(1, HostProfile::uncalibrated());
        let zone =
            ZoneFacts { free: vec![0, 4096], cold: Some(vec![0, 3072]), low: 64, ..ZoneFacts::default() };
        let files = Some(ListFacts { inactive: 4096, active: 4096 });
        let memory = MemoryFacts { zones: vec![zone], files, order: 1, ..MemoryFacts::default() };
        cluster.hosts[0].memory = Some(memory);
        let with = |text: &str| {
            let changed = cluster.changed(&Request::list(text).unwrap()).unwrap();
            changed.hosts[0].memory.clone().unwrap()
        };
        let larger = with("ram=1G");
        let zone = &larger.zones[0];
        // As much as the page cache of such a machine has, a half of it free, of which three quarters are
        // cold.
        let page = cluster.hosts[0].profile.kernel.page;
        let cached = dirtyable(Bytes::mib(1024), page).0 / page.0;
        let (free, cold) = (zone.free[1], zone.cold.as_ref().unwrap()[1]);
        assert!((free * 4).abs_diff(cached) < 16 && cold == free * 3 / 4, "{free} and {cold} of {cached}");
        assert_eq!((larger.order, with("warm").order), (1, MemoryFacts::NOT_TAKEN_BACK));
        // Where nobody looked at memory, it is warm.
        cluster.hosts[0].memory = None;
        let changed = cluster.changed(&Request::list("ram=1G").unwrap()).unwrap();
        assert_eq!(changed.hosts[0].memory.as_ref().unwrap().order, MemoryFacts::NOT_TAKEN_BACK);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("", "missing field `host`"),
            ("host = []", "there is no [[host]]"),
            ("[[host]]\nprocessors = 0", "host1: processors must be above 0"),
            ("[[host]]\nprocessors = 1\ncount = 1001", "1 to 1000 hosts"),
            ("[[host]]\nprocessors = 1\ncount = 2", "2 hosts share no files"),
            ("[[host]]\nprocessors = 1\nlimits = \"2G\"", "host1: limits:"),
            ("[[host]]\nprocessors = 1\nmemory = \"0\"", "host1: memory:"),
            (
                "[[host]]\nprocessors = 1\n[[host]]\nname = \"host1\"\nprocessors = 1",
                "two hosts have the name host1",
            ),
            ("[[host]]\nprocessors = 1\nprofile = \"x\"", "cannot read the profile x"),
            ("[[host]]\nprocessor = 1", "unknown field `processor`"),
        ] {
            let said = format!("{:#}", parsed(text).unwrap_err());
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
