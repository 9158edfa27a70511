//! The hosts that a workflow runs on.

use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use cawl_console::inputs::read_profile;
use cawl_core::quantity::{limits, size_above_zero};
use cawl_core::{HostProfile, Machine, MemoryFacts, NoScenario, Request, Scenario};
use serde::Deserialize;

/// Hosts, and what they share.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub hosts: Vec<Host>,
    /// All files lie on a mount that the hosts share, whose server serves so many of them at full speed at a
    /// time. None: they are on the device of the only host.
    pub at_once: Option<f64>,
}

/// A machine of its own, with a page cache and dirty limits.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub processors: u32,
    /// Its device is where the files of the workflow are: the shared mount, if there is one.
    pub profile: HostProfile,
    /// Its free memory at the begin; None: it is warm, and enough.
    pub memory: Option<MemoryFacts>,
}

/// Hosts at most: each has a page cache on paper.
const MOST: usize = 1000;

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
        Cluster { hosts: vec![host], at_once: None }
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
            host.profile = scenario.with(changes, &host.profile, None, read)?.machine.profile;
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
            ensure!((1..=MOST - hosts.len().min(MOST)).contains(&of.count), "1 to {MOST} hosts are possible");
            let mut profile = of.profile.map_or_else(|| Ok(own()), |profile| read(&profile))?;
            if let Some(text) = of.limits {
                let limits = limits(&text).map_err(|why| anyhow!("{name}: limits: {why}"))?;
                profile.kernel.limits = limits;
            }
            hosts.extend((1..=of.count).map(|number| Host {
                name: if of.count == 1 { name.clone() } else { format!("{name}-{number}") },
                processors: of.processors,
                memory: None,
                profile: profile.clone(),
            }));
        }
        ensure!(!hosts.is_empty(), "there is no [[host]]");
        let Some(shared) = shared else {
            if hosts.len() > 1 {
                bail!("{} hosts share no files: add [shared] with the profile of a mount", hosts.len());
            }
            return Ok(Cluster { hosts, at_once: None });
        };
        let device = read(&shared.profile)?.device;
        let one = device.write.value.max(device.read.value);
        let at_once = shared.bandwidth.map_or(Ok(1.0), |text| {
            let bytes = size_above_zero(text.strip_suffix("/s").unwrap_or(&text));
            let bytes = bytes.map_err(|why| anyhow!("shared: bandwidth: {why}"))?;
            anyhow::Ok(bytes as f64 / one.get())
        })?;
        hosts.iter_mut().for_each(|host| host.profile.device = device.clone());
        Ok(Cluster { hosts, at_once: Some(at_once) })
    }
}

#[cfg(test)]
mod tests {
    use cawl_core::Bytes;

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
        let one = cluster.hosts[2].profile.device.read.value.get();
        assert_eq!(cluster.at_once, Some(2e9 / one));
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
            ("[[host]]\nprocessors = 1\nprofile = \"x\"", "cannot read the profile x"),
            ("[[host]]\nprocessor = 1", "unknown field `processor`"),
        ] {
            let said = format!("{:#}", parsed(text).unwrap_err());
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
