//! The results of a calibration as a table.

use cawl_core::{Nanos, Rate};
use cawl_measure::calibrate::{Calibration, Compared};

use super::profile::measured;
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
    out += &measured(profile);
    let extra = &calibration.extra;
    let times =
        [("read of no bytes, mode switch", extra.mode_switch), ("direct write, fixed part", extra.latency)];
    for (name, time) in times {
        out.extend(time.map(|time| format!("{name}: {}\n", time.value)));
    }
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

fn yes(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}
