//! The results of a calibration as a table.

use cawl_core::{Measured, Nanos, Rate, ShownConstant as Shown};
use cawl_measure::calibrate::{Calibration, Compared};

use super::profile::with_unit;
use super::{bold, shown, table, warn};

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
    let mut rows = Vec::new();
    profile.each(
        |_| String::new(),
        |Shown { name, row, figure }| {
            let number = figure.number().filter(|_| !row.label.is_empty() && !name.starts_with("others."));
            let unit = figure.unit();
            rows.extend(number.map(|number| cells(row.label, number, |value| with_unit(value, unit.name()))));
        },
    );
    let time =
        |label, time: Option<Measured<Nanos>>| time.map(|time| cells(label, time, |time| time.to_string()));
    rows.extend(time("read of no bytes, mode switch", calibration.extra.mode_switch));
    rows.extend(time("direct write, fixed part", calibration.extra.latency));
    out += &table(&["CONSTANT", "VALUE", "P10", "P90", "SAMPLES"], [0], rows);
    for note in &calibration.notes {
        out += &format!("{} {note}\n", warn("note:", terminal));
    }
    out += &format!("\n{} written in {:.0} s\n", calibration.written, calibration.seconds);
    out
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
