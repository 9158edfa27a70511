//! Events of shared mappings: what became dirty since the latest look.

use super::record;
use crate::base::clock;
use crate::base::guard::Inside;
use crate::state::mappings::{self, Mapping, News};
use cawl_wire::Op;

/// A range of addresses: its begin and length.
type Range = (usize, usize);

const ALL: Range = (0, usize::MAX);

fn sample_each(inside: &Inside, of: impl Iterator<Item = &'static Mapping>, range: Range, is_rationed: bool) {
    let now = clock::now();
    for mapping in of {
        let news = if !is_rationed {
            mapping.take_news(range.0, range.1)
        } else if mapping.may_look(range.1) {
            let news = mapping.take_news(range.0, range.1);
            mapping.looked(range.1, now, news.as_ref());
            news
        } else {
            mapping.expected_news(range.0, range.1)
        };
        if let Some(news) = news {
            tell(inside, now, mapping, &news);
        }
    }
}

#[inline(never)]
fn tell(inside: &Inside, now: u64, mapping: &Mapping, news: &News) {
    record(inside, Op::MmapWrite, (now, now), None, news.bytes as i64, |event| {
        mapping.describe(event);
        (event.offset, event.requested, event.aux) = (news.offset, news.within, news.pieces);
    });
}

/// Looks at what every mapping of a range of addresses has there, before it is unmapped, or before it is
/// synced: then large looks are rationed.
#[cold]
pub fn sample(inside: &Inside, range: Range, is_rationed: bool) {
    sample_each(inside, mappings::within(range.0, range.1), range, is_rationed);
}

/// Looks at every mapping there is.
#[cold]
pub fn sample_all(inside: &Inside) {
    if mappings::any() {
        sample_each(inside, mappings::all(), ALL, false);
    }
}

/// Looks at the mappings of a file whose descriptor is about to be closed, or before it is synced: then large
/// looks are rationed.
#[cold]
pub fn sample_file(inside: &Inside, dev: u64, ino: u64, is_rationed: bool) {
    sample_each(inside, mappings::of_file(dev, ino), ALL, is_rationed);
}
