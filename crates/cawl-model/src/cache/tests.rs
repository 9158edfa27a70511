use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn what_is_cleaned_at_once_is_what_is_cleaned_page_by_page(
        writes in proptest::collection::vec((0..3000u64, 1..40u64), 1..20),
        (first, most, room) in (0..100u64, 1..600u64, 0..20u64),
        again in proptest::option::of((0..3000u64, 1..40u64)),
    ) {
        let mut cache = Cache::default();
        let at = cache.open(FileId::new(1, 1), 0);
        let mut plain = BTreeSet::new();
        for (start, pages) in writes.into_iter().chain(again) {
            cache.dirty(at, start, start + pages, 1);
            plain.extend(start..start + pages);
        }
        let mut clean = BTreeSet::new();
        // The first time from the beginning, then from the cursor on and around.
        for (most, room) in [(first, u64::MAX), (most, room * REQUEST), (u64::MAX, u64::MAX)] {
            let mut shared = cache.clone();
            let cursor = cache.file(at).cursor;
            let order: Vec<u64> = plain.range(cursor..).chain(plain.range(..cursor)).copied().collect();
            let cleaned = cache.clean(at, most, room);
            let taken = &order[..cleaned.pages as usize];
            // Requests are runs of pages; the first goes on from the cursor.
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for page in taken {
                match runs.last_mut() {
                    Some(run) if run.1 == *page => run.1 += 1,
                    _ => runs.push((*page, page + 1)),
                }
            }
            let jumps = runs.len() - usize::from(runs.first().is_some_and(|run| run.0 == cursor));
            let queued: u64 = runs.iter().map(|run| REQUEST.max(run.1 - run.0)).sum();
            prop_assert_eq!((cleaned.queued, cleaned.jumps), (queued, jumps as u64));
            prop_assert!(cleaned.pages == most.min(order.len() as u64) || queued >= room);
            prop_assert_eq!(cache.file(at).cursor, taken.last().map_or(cursor, |page| page + 1));
            prop_assert_eq!(shared.file(at).dirty.pages(), plain.len() as u64);
            prop_assert_eq!(shared.file(at).clean.pages(), clean.len() as u64);
            for page in taken {
                plain.remove(page);
                clean.insert(*page);
            }
            let file = cache.file(at);
            let pages = |set: &PageSet| set.runs(0).flat_map(|(start, end)| start..end).collect::<BTreeSet<_>>();
            prop_assert_eq!(pages(&file.dirty), plain.clone());
            prop_assert_eq!(pages(&file.clean), clean.clone());
        }
    }
}

#[test]
fn fresh_cached_and_dirty_pages_are_told_apart() {
    let mut cache = Cache::default();
    let at = cache.open(FileId::new(1, 1), 0);
    assert_eq!(cache.dirty(at, 0, 10, 1), Found { dirtied: 10, fresh: 10, ..Found::default() });
    assert_eq!(cache.dirty(at, 5, 15, 1), Found { dirtied: 5, fresh: 5, ..Found::default() });
    assert_eq!(cache.clean(at, 6, u64::MAX), Cleaned { pages: 6, padding: 0, queued: REQUEST, jumps: 0 });
    assert_eq!(cache.dirty(at, 0, 15, 1), Found { dirtied: 6, cached: 6, clean: 6, ..Found::default() });
    assert_eq!(cache.drop_range(at, 10, u64::MAX), 5);
    assert!(cache.holds(at, 9) && !cache.holds(at, 10));
}

proptest! {
    /// Copies of copies, each changed on its own.
    #[test]
    fn copies_do_not_see_each_others_changes(
        changes in proptest::collection::vec((0..4usize, 0..40usize, 0..4usize), 1..200),
    ) {
        let mut copies = vec![(Files::default(), Vec::new())];
        for (n, (which, at, what)) in changes.into_iter().enumerate() {
            let which = which % copies.len();
            if what == 0 && copies.len() < 4 {
                copies.push(copies[which].clone());
            }
            let (files, plain) = &mut copies[which];
            if at < plain.len() {
                files.at_mut(at).size = n as u64;
                plain[at] = n as u64;
            } else {
                files.push();
                plain.push(0);
            }
            for (files, plain) in &copies {
                prop_assert_eq!(files.length, plain.len());
                prop_assert!(files.iter().map(|file| file.size).eq(plain.iter().copied()));
            }
        }
    }
}

#[test]
fn scattered_pages_take_a_request_and_a_jump_for_each_run() {
    let mut cache = Cache::default();
    let at = cache.open(FileId::new(1, 1), 0);
    // In a row across blocks: one request as long as it is, and the next goes on from there.
    cache.dirty(at, 0, 2000, 1);
    assert_eq!(cache.clean(at, 1000, u64::MAX), Cleaned { pages: 1000, padding: 0, queued: 1000, jumps: 0 });
    assert_eq!(cache.clean(at, 1000, u64::MAX), Cleaned { pages: 1000, padding: 0, queued: 1000, jumps: 0 });
    // Sixteen pages out of every hundred.
    for i in 30..40 {
        cache.dirty(at, 100 * i, 100 * i + 16, 1);
    }
    assert_eq!(
        cache.clean(at, 48, u64::MAX),
        Cleaned { pages: 48, padding: 0, queued: 3 * REQUEST, jumps: 3 }
    );
    assert_eq!(
        cache.clean(at, 160, 2 * REQUEST),
        Cleaned { pages: 32, padding: 0, queued: 2 * REQUEST, jumps: 2 }
    );
}

#[test]
fn handing_over_takes_requests_and_folios() {
    let mut cache = Cache::default();
    let at = cache.open(FileId::new(1, 1), 0);
    let handed = |cache: &mut Cache, first, end| {
        let Pieces { requests, folios } = cache.pieces(at, first, end);
        (requests, folios)
    };
    assert_eq!(handed(&mut cache, 0, u64::MAX), (0, 0));
    // Across blocks, by single pages: one request, a folio for each page.
    cache.dirty(at, 0, 600, 1);
    assert_eq!(handed(&mut cache, 0, u64::MAX), (1, 600));
    assert_eq!(handed(&mut cache, 500, 520), (1, 20));
    // Every second page of the next, and a folio of 256 pages.
    for page in 0..5 {
        cache.dirty(at, 1024 + 2 * page, 1025 + 2 * page, 1);
    }
    assert_eq!(handed(&mut cache, 600, u64::MAX), (5, 5));
    cache.dirty(at, 4096, 4096 + 256, 256);
    assert_eq!(handed(&mut cache, 0, u64::MAX), (7, 606));
    // What only counts as dirty with its folio is not written.
    cache.clean(at, u64::MAX, u64::MAX);
    for page in [4099, 4200, 4201] {
        cache.dirty(at, page, page + 1, 256);
    }
    assert_eq!(handed(&mut cache, 0, u64::MAX), (2, 1));
}

#[test]
fn what_is_cleaned_lazily_is_counted_like_what_is_cleaned() {
    let mut cache = Cache::default();
    for ino in 0..40 {
        let at = cache.open(FileId::new(1, ino), 0);
        cache.dirty(at, 0, 20, 1);
        // Some have clean pages in the same block, some in another one.
        cache.clean(at, 5 * (ino % 3), u64::MAX);
        cache.dirty(at, 2000 * (ino % 2), 2000 * (ino % 2) + 3, 1);
    }
    let mut copy = cache.clone();
    copy.look_ahead();
    for at in 0..40 {
        assert_eq!(copy.clean(at, u64::MAX, u64::MAX), cache.clean(at, u64::MAX, u64::MAX));
    }
    assert_eq!(copy.clean_blocks, cache.clean_blocks);
    assert!(copy.lazy.as_ref().is_some_and(|lazy| lazy.cleaned.len() > 10));
    for at in 0..40 {
        assert_eq!(copy.file(at).clean.blocks(), cache.file(at).clean.blocks());
        assert_eq!(copy.file(at).cursor, cache.file(at).cursor);
    }
}

proptest! {
    /// What the flusher is told of a file in brief is what it finds in it, whichever copy it asks.
    #[test]
    fn a_brief_says_what_cleaning_finds(
        calls in proptest::collection::vec((0..4u32, 0..1100u64, 1..600u64, 0..6usize), 1..60),
        (most, room) in (1..600u64, 1..1000u64),
    ) {
        let mut cache = Cache::default();
        for ino in 0..4 {
            cache.open(FileId::new(1, ino), 0);
        }
        let mut copies = Vec::new();
        for (at, start, pages, what) in calls {
            match what {
                0 => drop(cache.clean(at, pages, u64::MAX)),
                1 => drop(cache.drop_range(at, start, start + pages)),
                2 => cache.read(at, start, start + pages, Source::Device),
                3 => cache.file_mut(at).listed ^= true,
                4 => copies.push(cache.clone()),
                _ => drop(cache.dirty(at, start, start + pages, 4)),
            }
        }
        copies.push(cache);
        for mut cache in copies {
            let mut ahead = cache.clone();
            ahead.look_ahead();
            for at in 0..4 {
                let brief = cache.files.brief(at as usize);
                let (listed, generation) = (cache.file(at).listed, cache.file(at).generation);
                prop_assert_eq!((brief.listed, brief.generation), (listed, generation));
                prop_assert_eq!(cache.is_listed(at, generation), listed);
                let dirty = cache.file(at).dirty.pages();
                prop_assert!(brief.pages == 0 || u64::from(brief.pages) == dirty);
                prop_assert_eq!((cache.is_clean(at), ahead.is_clean(at)), (dirty == 0, dirty == 0));
                prop_assert_eq!(ahead.clean(at, most, room), cache.clean(at, most, room));
                prop_assert_eq!(ahead.is_clean(at), cache.is_clean(at));
            }
        }
    }
}

#[test]
fn small_files_are_cleaned_by_their_briefs() {
    let mut cache = Cache::default();
    for ino in 0..4 {
        let at = cache.open(FileId::new(1, ino), 0);
        cache.dirty(at, 0, 20, 1);
    }
    cache.look_ahead();
    let cleaned = Cleaned { pages: 20, padding: 0, queued: REQUEST, jumps: 0 };
    assert_eq!(cache.clean_by_brief(0, 20, REQUEST + 1), Some(cleaned));
    assert_eq!(cache.clean_by_brief(0, 20, REQUEST + 1), None, "it is clean");
    assert_eq!(cache.clean_by_brief(1, 19, REQUEST + 1), None, "not all of it");
    assert_eq!(cache.clean_by_brief(1, 20, REQUEST), None, "no room for more");
    assert_eq!(cache.clean_by_brief(3, 20, REQUEST + 1), None, "it is held");
    cache.dirty(0, 20, 25, 1);
    assert_eq!(cache.clean_by_brief(0, 20, REQUEST + 1), None, "other pages are clean");
}

#[test]
fn a_copy_finds_what_only_it_has_met() {
    let mut copy = Cache::default();
    copy.look_ahead();
    let [first, second] = [1, 2].map(|ino| FileId::new(1, ino));
    let at = copy.open(first, 0);
    copy.open(second, 0);
    assert_eq!(copy.find(first), Some(at));
}

#[test]
fn clean_blocks_are_bounded() {
    let mut cache = Cache::default();
    for ino in 0..4 {
        let at = cache.open(FileId::new(1, ino), 0);
        for page in 0..CLEAN_BLOCKS as u64 / 2 {
            cache.dirty(at, 1024 * page, 1024 * page + 1, 1);
        }
        cache.clean(at, u64::MAX, u64::MAX);
    }
    let kept: usize = cache.files.iter().map(|f| f.clean.blocks()).sum();
    assert_eq!(kept, cache.clean_blocks);
    assert!(kept <= CLEAN_BLOCKS);
}

#[test]
fn clean_files_are_forgotten_even_if_never_closed() {
    let mut cache = Cache::default();
    for ino in 0..5 * CLEAN_FILES as u64 {
        cache.open(FileId::new(1, ino), 0);
    }
    assert!(cache.names.index.len() <= 2 * CLEAN_FILES && cache.files.length <= 2 * CLEAN_FILES);
}

#[test]
fn dirty_files_are_kept() {
    let mut cache = Cache::default();
    for ino in 0..3 * CLEAN_FILES as u64 {
        let at = cache.open(FileId::new(1, ino), 0);
        cache.dirty(at, 0, 1, 1);
    }
    assert_eq!(cache.names.index.len(), 3 * CLEAN_FILES);
    for at in 0..cache.files.length as u32 {
        cache.clean(at, 1, u64::MAX);
    }
    for ino in 0..4 * CLEAN_FILES as u64 {
        cache.open(FileId::new(2, ino), 0);
    }
    assert!(cache.names.index.len() <= 4 * CLEAN_FILES, "{}", cache.names.index.len());
}
