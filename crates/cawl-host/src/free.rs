//! Samples memory: free blocks by size, the lists of pages of files, and, where the host takes free memory
//! back, which free blocks were reported to it.
//!
//! A free block reported to the host has `PG_reported`, the same bit as `PG_uptodate`, which /proc/kpageflags
//! shows. A read costs a system call for each 2 MiB, so only an even part of a large memory is sampled.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use cawl_core::{ListFacts, MemoryFacts, ZoneFacts, host_text};

use crate::machine;

/// Bits of /proc/kpageflags.
const UPTODATE: u64 = 1 << 3;
const BUDDY: u64 = 1 << 10;
/// The balloon among virtio devices, and its feature that free pages are reported.
const BALLOON: &str = "0x0005";
const REPORTING: usize = 5;
/// Most of the largest blocks of a zone that are sampled.
const BLOCKS: u64 = 1024;

/// True if the host of this machine takes free memory back.
pub fn is_taken_back() -> bool {
    reporting_order().is_some()
}

/// Memory now; None if the kernel does not tell.
pub fn sample() -> Option<MemoryFacts> {
    let order = *reporting_order();
    let (zones, buddies) = (machine::read("/proc/zoneinfo"), machine::read("/proc/buddyinfo"));
    let flags = order.and_then(|order| Some((File::open("/proc/kpageflags").ok()?, order)));
    let mut zones = host_text::zoneinfo(&zones);
    let sum = |list: usize| zones.iter().map(|zone| zone.files[list]).sum();
    let files = ListFacts { inactive: sum(0), active: sum(1) };
    // The highest zone of a node is allocated from first.
    zones.sort_by_key(|zone| std::cmp::Reverse(zone.first));
    let facts = |zone: &host_text::ZoneText| {
        let free = host_text::buddyinfo(&buddies, zone.name)?;
        let cold = flags.as_ref().and_then(|(flags, order)| reported(flags, zone, &free, *order));
        Some(ZoneFacts { free, cold, low: zone.low, high: zone.high, reserve: zone.reserve })
    };
    let zones: Vec<ZoneFacts> = zones.iter().filter_map(facts).collect();
    let order = order.unwrap_or(MemoryFacts::NOT_TAKEN_BACK);
    (!zones.is_empty()).then(|| MemoryFacts { time: machine::now(), order, zones, files: Some(files) })
}

/// `page_reporting_order`, if a balloon reports free pages to its host.
fn reporting_order() -> &'static Option<u32> {
    static ORDER: OnceLock<Option<u32>> = OnceLock::new();
    ORDER.get_or_init(|| {
        let reports = |device: fs::DirEntry| {
            let text = |name| fs::read_to_string(device.path().join(name)).unwrap_or_default();
            text("device").trim() == BALLOON && host_text::has_feature(&text("features"), REPORTING)
        };
        let mut devices = fs::read_dir("/sys/bus/virtio/devices").ok()?.flatten();
        if !devices.any(reports) {
            return None;
        }
        let order = machine::number("/sys/module/page_reporting/parameters/page_reporting_order")?;
        u32::try_from(order).ok().filter(|order| *order < 32)
    })
}

/// Reported blocks by order: as many of the free ones as in a sample. None if flags cannot be read.
fn reported(flags: &File, zone: &host_text::ZoneText, free: &[u64], order: u32) -> Option<Vec<u64>> {
    let top = u32::try_from(free.len().checked_sub(1)?).ok()?.max(order);
    let (largest, block) = (1u64 << top, 1u64 << order);
    let first = zone.first / largest;
    let all = (zone.first + zone.spanned).div_ceil(largest) - first;
    let stride = all.div_ceil(BLOCKS).max(1);
    let flags_of = |page: u64| {
        let mut word = [0; 8];
        // Beyond the end of memory there are no flags.
        let read = flags.read_at(&mut word, page * 8).ok()?;
        Some(if read == word.len() { u64::from_ne_bytes(word) } else { 0 })
    };
    let is_free = |page: u64| flags_of(page).is_some_and(|flags| flags & (BUDDY | UPTODATE) == BUDDY);
    // By order, the free blocks met, and of these the reported ones.
    let mut found = vec![(0u64, 0u64); free.len()];
    for at in (0..all).step_by(stride as usize) {
        let begin = (first + at) * largest;
        let mut part = 0;
        while part < largest {
            let page = begin + part;
            let head = flags_of(page)? & (BUDDY | UPTODATE);
            if head & BUDDY == 0 || !sampled(page, block).skip(1).all(is_free) {
                part += block;
                continue;
            }
            // The block extends over following free pages that are not a reported block themselves.
            let mut length = block;
            while part % (2 * length) == 0
                && part + 2 * length <= largest
                && sampled(page + length, length).all(is_free)
            {
                length *= 2;
            }
            if let Some((all, reported)) = found.get_mut(length.ilog2() as usize) {
                *all += 1;
                *reported += u64::from(head & UPTODATE != 0);
            }
            part += length;
        }
    }
    let part = |((all, reported), free): (&(u64, u64), &u64)| match all {
        0 => 0,
        all => (u128::from(*free) * u128::from(*reported) / u128::from(*all)) as u64,
    };
    Some(found.iter().zip(free).map(part).collect())
}

/// Some pages of a block, the first among them.
fn sampled(first: u64, length: u64) -> impl Iterator<Item = u64> {
    [0, 1, length / 3, length / 2 - 1, length - 1].into_iter().map(move |page| first + page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_this_machine() {
        let memory = sample().expect("every kernel has /proc/zoneinfo and /proc/buddyinfo");
        assert!(!memory.zones.is_empty());
        assert_eq!(memory.order != MemoryFacts::NOT_TAKEN_BACK, is_taken_back());
        let counted = machine::read("/proc/meminfo");
        let counted = |name| host_text::meminfo(&counted, name).expect("a figure").0;
        let told = memory.files.map(|files| (files.inactive + files.active) * crate::page().0).unwrap();
        let lists = counted("Active(file)") + counted("Inactive(file)");
        assert!(told.abs_diff(lists) < lists / 4 + (64 << 20), "{told} and {lists}");
        assert!(memory.zones.iter().all(|zone| zone.low <= zone.high), "{memory:?}");
        for zone in &memory.zones {
            let Some(cold) = &zone.cold else { continue };
            assert_eq!(cold.len(), zone.free.len());
            assert!(cold.iter().take(memory.order as usize).all(|blocks| *blocks == 0), "{zone:?}");
            assert!(cold.iter().zip(&zone.free).all(|(cold, free)| cold <= free), "{zone:?}");
        }
    }
}
