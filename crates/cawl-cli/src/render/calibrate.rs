//! The results of a calibration as a table.

use cawl_core::prior::{self, Off, Outlier};
use cawl_core::{HostProfile, Measured, Nanos, Rate, ShownConstant as Shown};
use cawl_host::profiles::fleet::Skipped;
use cawl_measure::calibrate::{Calibration, Compared};
use serde::Serialize;

use super::profile::with_unit;
use super::{bold, counted, headed, line, shown, table, warn, wrapped};

/// The constants with their spread, and the remarks.
pub fn text(calibration: &Calibration, terminal: bool) -> String {
    let place = &calibration.place;
    let profile = &calibration.profile;
    let mut out = format!("{} {}\n", bold("place", terminal), shown(&place.folder.to_string_lossy()));
    let or = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    out += &format!(
        "{} on {}, blocks of {} / {} (logical / physical), rotational {}, write cache {}, scheduler {}\n",
        place.filesystem,
        place.device,
        or(place.block.map(|size| size.to_string())),
        or(place.physical_block.map(|size| size.to_string())),
        or(place.rotational.map(yes)),
        or(place.write_cache.map(yes)),
        or(place.scheduler.clone()),
    );
    out += &format!("readahead {}\n", or(place.readahead().map(|window| window.to_string())));
    out += &format!(
        "dirty limits {} / {}, expire {}, wake-up {}, {} ticks a second, {} processors\n\n",
        profile.kernel.limits.background,
        profile.kernel.limits.hard,
        profile.kernel.expire,
        profile.kernel.wakeup,
        profile.kernel.hz,
        profile.kernel.cpus
    );
    if let Some(network) = &profile.device.network {
        let kept = if network.open_keeps { ", kept by open" } else { "" };
        out += &format!(
            "page cache {}{kept}, requests of {}, {} at a time when flushed\n\n",
            network.policy.name(),
            network.request,
            network.in_flight
        );
    }
    let mut rows = constants(profile);
    let time =
        |label, time: Option<Measured<Nanos>>| time.map(|time| cells(label, time, |time| time.to_string()));
    rows.extend(time("read of no bytes, mode switch", calibration.extra.mode_switch));
    rows.extend(time("direct write, fixed part", calibration.extra.latency));
    out += &table(&COLUMNS, [0], rows);
    for note in &calibration.notes {
        out += &(wrapped(&format!("{} {note}", warn("note:", terminal)), 0) + "\n");
    }
    out += &format!("\n{} written in {:.0} s\n", calibration.written, calibration.seconds);
    out
}

const COLUMNS: [&str; 5] = ["CONSTANT", "VALUE", "P10", "P90", "SAMPLES"];

/// Rows of the constants that calibration measures.
fn constants(profile: &HostProfile) -> Vec<[String; 5]> {
    let mut rows = Vec::new();
    profile.each(
        |_| String::new(),
        |Shown { name, row, figure }| {
            let number = figure.number().filter(|_| !row.label.is_empty() && !name.starts_with("others."));
            let unit = figure.unit();
            rows.extend(number.map(|number| cells(row.label, number, |value| with_unit(value, unit.name()))));
        },
    );
    rows
}

/// What `calibrate --from` found.
#[derive(Serialize)]
pub struct FromOthers {
    pub schema: u32,
    /// This machine is one of the kind, as far as that was checked; else there is no new profile.
    pub holds: bool,
    /// The profiles that were merged.
    pub merged: Vec<String>,
    /// Those of equal machines that were left out.
    pub outliers: Vec<Outlier>,
    /// How many profiles are of other kinds of machines.
    pub others: usize,
    /// Files that are no measured profiles.
    pub skipped: Vec<Skipped>,
    /// What the short measurement contradicts; none if nothing was measured.
    pub contradicted: Vec<Off>,
    /// The check could tell whether this machine is one of the kind.
    pub checked: bool,
    /// What was off while other programs computed, so that the check could not tell.
    pub unsure: Vec<Off>,
    /// Seconds that the check took; None without one.
    pub seconds: Option<f64>,
    /// Remarks.
    pub notes: Vec<String>,
    pub profile: HostProfile,
}

/// What profiles of equal machines have in common, and which were left out.
pub fn text_of_prior(found: &FromOthers, terminal: bool) -> String {
    let FromOthers { merged, outliers, others, skipped, contradicted, unsure, profile, .. } = found;
    let mut out = String::new();
    let mut tell = |name: &str, text: &str| line(&mut out, name, text, terminal);
    let all = counted((merged.len() + outliers.len()) as u64, "profile");
    tell("merged", &format!("{} of {all} of machines like this one", merged.len()));
    for (what, is) in prior::kind(profile) {
        tell(what, &shown(&is));
    }
    for odd in outliers {
        tell("odd", &format!("{} is left out: {}", shown(&odd.label), off(&odd.off)));
    }
    let unused = [
        (*others, "profile", " of other kinds of machines"),
        (skipped.len(), "path", " that cannot be used (left out)"),
    ];
    let unused = unused.iter().filter(|(count, ..)| *count > 0);
    let unused: Vec<String> = unused.map(|(count, one, which)| counted(*count as u64, one) + which).collect();
    if !unused.is_empty() {
        tell("not used", &unused.join(", "));
    }
    if !contradicted.is_empty() {
        tell("differs", &format!("here: {}", off(contradicted)));
    }
    if !unsure.is_empty() {
        let processors = profile.disturbed.unwrap_or_default();
        let which = off(unsure);
        let text = format!(
            "could not be: other programs had {processors:.1} processors, and {which}, for that reason or since this \
             machine is another; repeat on a quiet machine"
        );
        tell("checked", &warn(&text, terminal));
    }
    headed(&mut out, &table(&COLUMNS, [0], constants(profile)), terminal);
    for note in &found.notes {
        out += &(wrapped(&format!("{} {note}", warn("note:", terminal)), 0) + "\n");
    }
    out += &match found.seconds {
        Some(seconds) if unsure.is_empty() => format!("\nchecked here in {seconds:.0} s\n"),
        Some(seconds) => format!("\nmeasured here in {seconds:.0} s\n"),
        None => "\nnothing was measured here\n".to_owned(),
    };
    out
}

/// The constants that are off, each with its factor.
fn off(all: &[Off]) -> String {
    let each = all.iter().map(|off| format!("{} {:.2} times theirs", off.constant, off.factor));
    each.collect::<Vec<_>>().join(", ")
}

/// The constants of a profile beside the new measurements.
pub fn text_of_check(compared: &[Compared], terminal: bool) -> String {
    let row = |constant: &Compared| {
        let show = |value: f64| match constant.is_rate {
            true => Rate::per_second(value).to_string(),
            false => Nanos::new(value).to_string(),
        };
        let verdict = if constant.holds { "holds".to_owned() } else { warn("changed", terminal) };
        [constant.name.to_owned(), show(constant.profile), show(constant.now), verdict]
    };
    table(&["CONSTANT", "PROFILE", "NOW", ""], [0], compared.iter().map(row))
}

fn cells<T>(label: &str, measured: Measured<T>, show: impl Fn(T) -> String) -> [String; 5] {
    let samples = if measured.samples == 0 { "assumed".to_owned() } else { measured.samples.to_string() };
    let [p10, p90] = [measured.p10, measured.p90].map(|part| part.map_or("-".to_owned(), &show));
    [label.to_owned(), show(measured.value), p10, p90, samples]
}

fn yes(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}
