//! Where experiments take place: the disk, the limits and the models' profile.
//!
//! The law: **when it is dropped, the limits are as before and the emulated disk is gone**, in this order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::bail;
use cawl_core::{Bytes, HostProfile, Nanos};
use cawl_host::limits::LoweredLimits;
use cawl_host::place::{Backing, Place, Queue};
use cawl_host::profiles;
use cawl_measure::calibrate::{self, Effort};
use cawl_measure::interrupt::Interrupted;
use cawl_measure::progress::Progress;
use cawl_measure::scratch::{self, Scratch};
use cawl_measure::slow_limit::{self, Budget};

use crate::emulated::Lab;

/// What a command asks for.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// A folder on the disk, if none is emulated.
    pub path: &'a Path,
    /// The emulated disk.
    pub disk: Option<&'a str>,
    /// Dirty limits to lower to, background and hard; None for those in force.
    pub limits: Option<(Bytes, Bytes)>,
    /// With lowered limits: the time in which the kernel's own limit and estimates may follow.
    pub settle: Nanos,
    /// How thoroughly to calibrate an emulated disk.
    pub effort: Effort,
}

/// The disk, the limits and the models' profile.
pub struct Ground {
    pub place: Place,
    /// The emulated disk, or the device.
    pub device: String,
    /// The models' profile, with the settings in force.
    pub profile: HostProfile,
    /// The hard limit before the limits were lowered.
    pub before: Bytes,
    pub lowered: Option<LoweredLimits>,
    pub notes: Vec<String>,
    /// Ends after the limits are restored.
    _disk: Option<Lab>,
}

impl Ground {
    /// Starts the emulated disk, lowers the limits and finds the profile, as far as they are asked for.
    pub fn prepare(
        site: &Site<'_>,
        profile: Option<HostProfile>,
        signal: &Arc<AtomicUsize>,
    ) -> anyhow::Result<Ground> {
        let root = "an emulated disk needs root; without --disk, a disk you have is used";
        let bring_up = |spec| Lab::own(&["--disk", spec], root);
        let disk = site.disk.map(bring_up).transpose()?;
        let path = disk.as_ref().map_or(site.path, |disk| &disk.ready.mount);
        let place = Place::of(path)?;
        if place.backing == Backing::Memory {
            bail!(
                "{} keeps its files in memory: there is nothing to model; name a folder on a disk with --path (of a \
                 workflow: --run)",
                place.folder.display()
            );
        }
        let before = cawl_host::uncalibrated_profile().kernel.limits.hard;
        let lower = |(background, hard)| {
            let lowered = LoweredLimits::lower(background, hard, || Interrupted::by(signal).is_ok());
            // A signal ends the wait for another process that has lowered the limits.
            lowered.or_else(|error| Interrupted::by(signal).map_err(anyhow::Error::from).and(Err(error)))
        };
        let lowered = site.limits.map(lower).transpose()?;
        let mut notes = Vec::new();
        let mut profile = match profile {
            Some(profile) => profile,
            None => found_profile(site, &place, before, signal, &mut notes)?,
        };
        cawl_host::apply_settings(&mut profile);
        let device = site.disk.map_or_else(|| place.device.clone(), str::to_owned);
        Ok(Ground { place, device, profile, before, lowered, notes, _disk: disk })
    }

    /// Processor, memory, drive, kernel and filesystem, in names and values.
    pub fn machine(&self) -> Vec<(String, String)> {
        let facts = cawl_host::facts();
        let Ground { place, profile, .. } = self;
        let processor = cawl_host::processor().unwrap_or_else(|| "not known".to_owned());
        let limits = profile.kernel.limits;
        let kind = match place.rotational {
            Some(true) => ", a hard disk",
            Some(false) => ", without a moving part",
            None => "",
        };
        let queue = place.queue().map(|Queue { requests, segments, sectors, .. }| {
            format!("{requests} requests of at most {segments} segments and {sectors}")
        });
        let named = |name: &str, value: String| (name.to_owned(), value);
        vec![
            named("processor", format!("{} × {processor}", facts.cpus)),
            named("memory", facts.memory.to_string()),
            named("drive", format!("{}{kind}", self.device)),
            named("queue", queue.unwrap_or_else(|| "not known".to_owned())),
            named("kernel", format!("Linux {}", facts.kernel)),
            named("filesystem", place.filesystem.clone()),
            named("dirty limits", format!("{} and {}", limits.background, limits.hard)),
            named("profile", profile.name.clone()),
        ]
    }
}

/// The profile for the models, if none was named.
fn found_profile(
    site: &Site<'_>,
    place: &Place,
    before: Bytes,
    signal: &Arc<AtomicUsize>,
    notes: &mut Vec<String>,
) -> anyhow::Result<HostProfile> {
    if site.disk.is_some() {
        if site.limits.is_some() {
            // So that calibration finds the base rate of the runs.
            let scratch = Scratch::create(&place.folder, scratch::EXPERIMENT)?;
            let budget = Budget::of_time(site.settle);
            let mut progress = Progress::new(budget.time);
            notes.extend(slow_limit::follow(&scratch, before, budget, &mut progress, signal)?.note);
        }
        let path = place.folder.clone();
        let calibration = calibrate::Options { path, effort: site.effort, lower_limits: false, known: None };
        let found = calibrate::calibrate(&calibration, Arc::clone(signal))?;
        notes.extend(found.notes.iter().map(|note| format!("calibration: {note}")));
        return Ok(found.profile);
    }
    let chosen = profiles::choose(&place.folder);
    notes.extend(chosen.note);
    if chosen.file.is_none() {
        notes.push(format!(
            "this machine was not calibrated: speeds, and so errors, are those of the defaults; run \
             `cawl-cli calibrate {}` first",
            place.folder.display()
        ));
    }
    Ok(chosen.profile)
}

/// Has dirty data written, so that a run does not wait for older data, and the journal committed, so that the
/// next commit comes a full interval later.
pub fn written_back(scratch: &Scratch, notes: &mut Vec<String>, signal: &AtomicUsize) -> anyhow::Result<()> {
    const LITTLE: Bytes = Bytes::mib(8);
    for _ in 0..5 {
        Interrupted::by(signal)?;
        scratch.sync()?;
        let dirty = cawl_host::sample().map_or(Bytes::ZERO, |sample| sample.dirty_bytes(cawl_host::page()));
        if dirty < LITTLE {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let note = "other programs kept data dirty, which the sampled dirty level includes";
    notes.extend((!notes.iter().any(|known| known == note)).then(|| note.to_owned()));
    Ok(())
}
