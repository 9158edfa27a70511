//! The results of a calibration as a table.

use std::iter;

use cawl_core::{Measured, Nanos, Rate};
use cawl_measure::calibrate::{Calibration, Compared};

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
    let (memory, device, calls) = (&profile.memory, &profile.device, &profile.calls);
    let rate = |measured: Measured<Rate>| cells(measured, |rate| rate.to_string());
    let time = |measured: Measured<Nanos>| cells(measured, |time| time.to_string());
    let part = |measured: Measured<f64>| cells(measured, |part| format!("{part:.3}"));
    let share = |measured: Measured<f64>| cells(measured, |share| format!("{:.0} %", share * 100.0));
    let rows = [
        ("stream copy", Some(rate(memory.stream))),
        ("stream call", Some(time(calls.stream))),
        ("first call of a stream, beyond", calls.buffer.map(time)),
        ("write call", Some(time(calls.write))),
        ("write of no bytes", calls.empty.map(time)),
        ("a byte after a page", calls.odd.map(time)),
        ("new folio", calls.folio.map(time)),
        ("clean inode", calls.inode.map(time)),
        ("clean folio", calls.clean.map(time)),
        ("block of a large folio", calls.block.map(time)),
        ("the same, from memory", calls.block_far.map(time)),
        ("after 1 ms elsewhere", calls.away.map(time)),
        ("after 10 µs elsewhere", calls.away_soon.map(time)),
        ("new pages apart", calls.jump.map(time)),
        ("page written over first", calls.over.map(time)),
        ("read call", calls.read.map(time)),
        ("read at the end of a file", calls.empty_read.map(time)),
        ("read of no bytes, mode switch", calibration.extra.mode_switch.map(time)),
        ("further folio of a read", calls.read_folio.map(time)),
        ("folio of a read from memory", calls.read_folio_far.map(time)),
        ("read in the middle of one", calls.read_apart.map(time)),
        ("read after 1 ms elsewhere", calls.read_away.map(time)),
        ("page read into that is touched first", calls.fault.map(time)),
        ("open", calls.open.map(time)),
        ("creating a file, beyond", calls.create.map(time)),
        ("close", calls.close.map(time)),
        ("page that leaves the cache", Some(time(calls.free))),
        ("read from memory", memory.read.map(rate)),
        ("read from the processor's cache", memory.read_hot.map(rate)),
        ("read of new pages", memory.read_fresh.map(rate)),
        ("fresh pages", Some(rate(memory.fresh))),
        ("fresh pages, cold memory", memory.cold.map(rate)),
        ("share of cold memory", memory.cold.and(memory.cold_share).map(share)),
        ("cached pages", Some(rate(memory.cached))),
        ("copy from the processor's cache", memory.hot.map(rate)),
        ("the same, beyond 64 KiB of a call", memory.hot_large.map(rate)),
        ("copy within it", memory.near.map(rate)),
        ("rest of a folio", memory.folio.map(rate)),
        ("factor while flushing", Some(part(memory.flush_factor))),
        ("factor while flushing, cached pages", memory.cached_flush_factor.map(part)),
        ("device write", Some(rate(device.write))),
        ("device read", Some(rate(device.read))),
        ("read ahead", device.sequential_read.map(rate)),
        ("latency of a read", device.read_latency.map(time)),
        ("read from the device's cache", device.cached_read.map(rate)),
        ("latency of that", device.cached_read_latency.map(time)),
        ("writeback", Some(rate(device.writeback))),
        ("base rate of throttling", device.base_rate.map(rate)),
        ("latency of a wait", device.latency.map(time)),
        ("allocation, direct write", device.allocation.map(time)),
        ("part of a block, direct write", device.partial.map(time)),
        ("allocation, synchronous write", device.delayed_allocation.map(time)),
        ("synchronous call, fixed part", Some(time(device.sync_call))),
        ("fsync", Some(time(device.fsync))),
        ("flush", device.flush.map(time)),
        ("after 1 ms of idling", device.idle.map(time)),
        ("further folio of a wait", device.folio.map(time)),
        ("further request of a wait", device.request.map(time)),
        ("discard in the call", device.discard.map(rate)),
        ("seek", Some(time(device.seek))),
        ("direct write, fixed part", calibration.extra.latency.map(time)),
    ];
    let network = profile.device.network.iter().flat_map(|network| {
        [
            ("round trip of a read", device.read_latency.map(time)),
            ("open over the network", network.open.map(time)),
            ("open of a new file", network.create.map(time)),
            ("close", network.close.map(time)),
            ("close after writes", network.commit.map(time)),
            ("unlink", network.unlink.map(time)),
            ("rename over a file", network.rename.map(time)),
            ("truncate", network.truncate.map(time)),
            ("dropping a cached page", network.drop_page.map(time)),
            ("write into the cache there", network.call.map(time)),
            ("fresh pages there", network.fresh.map(rate)),
            ("cached pages there", network.cached.map(rate)),
            ("the same, files of up to 1 MiB", network.near.map(rate)),
            ("read call there", network.read_call.map(time)),
            ("read of cached pages there", network.read.map(rate)),
            ("the same, files of up to 1 MiB", network.read_near.map(rate)),
            ("page read for the second time", network.activate.map(time)),
        ]
    });
    let rows = rows.into_iter().chain(network);
    let rows = rows.filter_map(|(name, cells)| Some(iter::once(name.to_owned()).chain(cells?)));
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

fn cells<T>(measured: Measured<T>, show: impl Fn(T) -> String) -> [String; 4] {
    let samples = if measured.samples == 0 { "assumed".to_owned() } else { measured.samples.to_string() };
    let [p10, p90] = [measured.p10, measured.p90].map(|part| part.map_or("-".to_owned(), &show));
    [show(measured.value), p10, p90, samples]
}

fn yes(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}
