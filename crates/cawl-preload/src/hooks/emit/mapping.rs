//! Events of shared mappings: what became dirty since the latest look.

use super::record;
use crate::base::clock;
use crate::base::guard::Inside;
use crate::state::mappings::{self, Mapping, News};
use cawl_wire::Op;

/// A range of addresses: its begin and length.
type Range = (usize, usize);

const ALL: Range = (0, usize::MAX);

/// Large looks are rationed.
fn sample_each(inside: &Inside, of: impl Iterator<Item = &'static Mapping>, range: Range) {
    mappings::begin_look();
    for mapping in of {
        let news = match mapping.may_look(range.1) {
            true => mapping.take_news(range.0, range.1),
            false => mapping.expected_news(range.0, range.1),
        };
        if let Some(news) = news {
            tell(inside, mapping, &news);
        }
    }
}

/// The same, from which those left out learn.
fn sample_before_sync(inside: &Inside, of: impl Iterator<Item = &'static Mapping>, range: Range) {
    mappings::begin_look();
    for mapping in of {
        let looks = mapping.may_look(range.1);
        let news = match looks {
            true => mapping.take_news(range.0, range.1),
            false => mapping.expected_news(range.0, range.1),
        };
        if looks {
            mapping.looked(range.1, news.as_ref());
        }
        if let Some(news) = news {
            tell(inside, mapping, &news);
        }
    }
}

#[inline(never)]
fn tell(inside: &Inside, mapping: &Mapping, news: &News) {
    let now = clock::now();
    record(inside, Op::MmapWrite, (now, now), None, news.bytes as i64, |event| {
        mapping.describe(event);
        (event.offset, event.requested, event.aux) = (news.offset, news.within, news.pieces);
    });
}

/// Looks at what every mapping of a range of addresses has there, before it is unmapped.
#[cold]
pub fn sample(inside: &Inside, range: Range) {
    sample_each(inside, mappings::within(range.0, range.1), range);
}

/// Looks at what every mapping of a range of addresses has there, before it is synced.
#[cold]
pub fn sample_synced(inside: &Inside, range: Range) {
    sample_before_sync(inside, mappings::within(range.0, range.1), range);
}

/// Looks at every mapping there is, before the program ends or executes another.
#[cold]
pub fn sample_all(inside: &Inside) {
    if !mappings::any() {
        return;
    }
    mappings::begin_look();
    for mapping in mappings::all().filter(|mapping| mappings::is_last_look_free() || mapping.may_look(ALL.1))
    {
        if let Some(news) = mapping.take_news(ALL.0, ALL.1) {
            tell(inside, mapping, &news);
        }
    }
}

/// Looks at the mappings of a file whose descriptor is about to be closed.
#[cold]
pub fn sample_file(inside: &Inside, dev: u64, ino: u64) {
    sample_each(inside, mappings::of_file(dev, ino), ALL);
}

/// Looks at the mappings of a file that is about to be synced.
#[cold]
pub fn sample_synced_file(inside: &Inside, dev: u64, ino: u64) {
    sample_before_sync(inside, mappings::of_file(dev, ino), ALL);
}
