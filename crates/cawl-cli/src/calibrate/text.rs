//! The results of a calibration as a table.

use cawl_core::{Measured, Nanos, Rate};

use super::{Calibration, Compared};
use crate::render::{bold, lines, shown, table, warn};

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
    out += &format!(
        "dirty limits {} / {}, expire {}, wake-up {}, {} ticks a second, {} processors\n\n",
        profile.kernel.limits.background,
        profile.kernel.limits.hard,
        profile.kernel.expire,
        profile.kernel.wakeup,
        profile.kernel.hz,
        profile.kernel.cpus
    );
    let mut constants = table(&["CONSTANT", "VALUE", "P10", "P90", "SAMPLES"], 1);
    let mut row = |name: &str, cells: [String; 4]| {
        constants.add_row(std::iter::once(name.to_owned()).chain(cells));
    };
    let (memory, device, calls) = (&profile.memory, &profile.device, &profile.calls);
    let rate = |measured: &Measured<Rate>| cells(measured, Rate::to_string);
    let time = |measured: &Measured<Nanos>| cells(measured, Nanos::to_string);
    row("stream copy", rate(&memory.stream));
    row("stream call", time(&calls.stream));
    row("write call", time(&calls.write));
    if let Some(folio) = &calls.folio {
        row("new folio", time(folio));
    }
    if let Some(inode) = &calls.inode {
        row("clean inode", time(inode));
    }
    if let Some(away) = &calls.away {
        row("after 1 ms elsewhere", time(away));
    }
    row("fresh pages", rate(&memory.fresh));
    if let Some(cold) = &memory.cold {
        row("fresh pages, cold memory", rate(cold));
        if let Some(share) = &memory.cold_share {
            row("share of cold memory", cells(share, |share| format!("{:.0} %", share * 100.0)));
        }
    }
    row("cached pages", rate(&memory.cached));
    if let Some(hot) = &memory.hot {
        row("copy from the processor's cache", rate(hot));
    }
    if let Some(folio) = &memory.folio {
        row("rest of a folio", rate(folio));
    }
    row("factor while flushing", cells(&memory.flush_factor, |factor| format!("{factor:.3}")));
    if let Some(factor) = &memory.cached_flush_factor {
        row("factor while flushing, cached pages", cells(factor, |factor| format!("{factor:.3}")));
    }
    row("device write", rate(&device.write));
    row("device read", rate(&device.read));
    row("writeback", rate(&device.writeback));
    if let Some(base) = &device.base_rate {
        row("base rate of throttling", rate(base));
    }
    if let Some(latency) = &device.latency {
        row("latency of a wait", time(latency));
    }
    row("synchronous call", time(&device.sync_call));
    row("fsync", time(&device.fsync));
    if let Some(flush) = &device.flush {
        row("flush", time(flush));
    }
    row("seek", time(&device.seek));
    if let Some(latency) = &calibration.extra.latency {
        row("direct write, fixed part", time(latency));
    }
    out += &lines(&constants);
    for note in &calibration.notes {
        out += &format!("{} {note}\n", warn("note:", terminal));
    }
    out += &format!("\n{} written in {:.0} s\n", calibration.written, calibration.seconds);
    out
}

/// The constants of a profile beside the new measurements.
pub fn text_of_check(compared: &[Compared], terminal: bool) -> String {
    let mut constants = table(&["CONSTANT", "PROFILE", "NOW", ""], 1);
    for constant in compared {
        let show = |value: f64| match constant.is_rate {
            true => Rate::per_second(value).to_string(),
            false => Nanos::new(value).to_string(),
        };
        let verdict = if constant.holds { "holds".to_owned() } else { warn("changed", terminal) };
        constants.add_row([constant.name.to_owned(), show(constant.profile), show(constant.now), verdict]);
    }
    lines(&constants)
}

fn cells<T>(measured: &Measured<T>, show: impl Fn(&T) -> String) -> [String; 4] {
    let part = |part: &Option<T>| part.as_ref().map_or("-".to_owned(), &show);
    let samples = if measured.samples == 0 { "assumed".to_owned() } else { measured.samples.to_string() };
    [show(&measured.value), part(&measured.p10), part(&measured.p90), samples]
}

fn yes(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}
