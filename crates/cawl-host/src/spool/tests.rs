use std::io::Write;

use super::*;

fn open(folder: &Path, room: u64) -> Spool {
    open_as("own", folder, room)
}

fn open_as(own: &str, folder: &Path, room: u64) -> Spool {
    let (folder, own, node) = (folder.to_owned(), own.into(), "a/b".to_owned());
    let options = SpoolOptions { folder, own, node, ending: ".csv", room };
    Spool::open(options, Shared::default()).expect("a folder")
}

/// Takes and writes a file of so many rows and bytes.
fn file(spool: &mut Spool, rows: u64, bytes: usize) -> io::Result<()> {
    spool.take(rows, 7);
    let begun = spool.begin()?;
    begun.file().write_all(&vec![b'x'; bytes])?;
    spool.keep(begun, Path::new("own/part"), rows).inspect_err(|error| spool.lose(rows, Some(error)))
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn names_are_numbered_and_a_clean_end_leaves_whole_files_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), 1 << 20);
    file(&mut spool, 3, 10).unwrap();
    file(&mut spool, 4, 10).unwrap();
    let start = spool.start().to_owned();
    assert_eq!(start.len(), START);
    drop(spool);
    assert_eq!(names(dir.path()), ["own"]);
    let expected = [1, 2].map(|number| format!("a%2Fb-{start}-{number:06}.csv"));
    assert_eq!(names(&dir.path().join("own/part")), expected);
    // The next one has another name.
    let mut next = open(dir.path(), 1 << 20);
    file(&mut next, 1, 10).unwrap();
    assert_eq!((names(&dir.path().join("own/part")).len(), lock(&next.status).rows_lost), (3, 0));
}

#[test]
fn what_does_not_fit_is_counted_and_told_in_the_next_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), 3 * BLOCK);
    file(&mut spool, 5, 5000).unwrap();
    assert_eq!(file(&mut spool, 7, 5000).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(names(dir.path()).iter().filter(|name| name.ends_with(".tmp")).count(), 0);
    let status = lock(&spool.status).clone();
    assert_eq!(
        (status.rows_taken, status.rows_written, status.rows_dropped, status.files_dropped),
        (12, 5, 7, 1)
    );
    assert!(status.failure.is_some_and(|why| why.contains("take some away")));
    // Who takes files away takes folders away, too.
    fs::remove_dir_all(dir.path().join("own")).unwrap();
    let facts = spool.facts(2);
    let fact = |name: &str| facts.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
    assert_eq!(
        (fact("rows_written"), fact("rows_dropped"), fact("sequence")),
        (Some("7"), Some("7"), Some("2"))
    );
    file(&mut spool, 2, 5000).unwrap();
    assert_eq!(lock(&spool.status).failure, None);
}

#[test]
fn the_rows_of_a_writer_that_was_killed_are_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let status = |spool: &Spool| lock(&spool.status).clone();
    for was_renamed in [true, false] {
        let mut killed = open(dir.path(), 1 << 20);
        file(&mut killed, 5, 10).unwrap();
        killed.take(9, 11);
        killed.lose(2, None);
        // Killed before a file has its name, or right after that.
        let begun = killed.begin().unwrap();
        killed.tell(4);
        let start = killed.start().to_owned();
        let path = begun.0.path().to_owned();
        if was_renamed {
            drop(begun);
        } else {
            begun.0.keep().unwrap();
        }
        // Another one that lives is none of it; its ledger is locked.
        assert_eq!(status(&open(dir.path(), 1 << 20)).rows_lost, 0);
        drop(killed.ledger.take());
        std::mem::forget(killed);
        let lost = if was_renamed { 9 - 2 - 4 } else { 9 - 2 };
        let mut next = open(dir.path(), 1 << 20);
        assert_eq!(status(&next).rows_lost, lost);
        assert!(!path.exists());
        let facts = next.facts(1);
        let told =
            facts.iter().find(|(key, _)| *key == "ended_before").map(|(_, told)| told.as_str()).unwrap();
        assert!(
            told.starts_with(&format!("{start}: {lost} rows not written")) && told.contains("11 ns"),
            "{told}"
        );
        file(&mut next, 1, 10).unwrap();
        assert!(!next.facts(1).iter().any(|(key, _)| *key == "ended_before"));
        drop(next);
        assert_eq!(status(&open(dir.path(), 1 << 20)).rows_lost, 0);
        assert_eq!(names(dir.path()), ["own"]);
    }
}

#[test]
fn what_was_refused_is_counted_from_the_start_and_takes_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let refused = dir.path().join(REFUSED);
    fs::create_dir(&refused).unwrap();
    fs::write(refused.join("big"), vec![0; 100 * BLOCK as usize]).unwrap();
    fs::write(refused.join("count"), "files=2 rows=30\n").unwrap();
    let mut spool = open_as("", dir.path(), 4 * BLOCK);
    file(&mut spool, 1, 10).unwrap();
    let told = |spool: &Spool| {
        let status = lock(&spool.status);
        (status.files_refused, status.rows_refused)
    };
    assert_eq!(told(&spool), (0, 0));
    fs::write(refused.join("count"), "files=3 rows=35\n").unwrap();
    file(&mut spool, 1, 10).unwrap();
    assert_eq!(told(&spool), (1, 5));
}

#[test]
fn names_are_as_partitions_have_them() {
    assert_eq!(encoded("db-1.example_x"), "db-1.example_x");
    assert_eq!(encoded("a/b =ü"), "a%2Fb%20%3D%C3%BC");
}

#[test]
fn who_takes_files_away_takes_nothing_from_the_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), 1 << 20);
    let part = dir.path().join("own/part");
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut taken = Vec::new();
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                for name in names(&part) {
                    taken.extend(fs::remove_file(part.join(&name)).is_ok().then_some(name));
                }
                drop(fs::remove_dir(&part).and_then(|()| fs::remove_dir(dir.path().join("own"))));
            }
            taken.extend(names(&part));
            taken
        });
        // A folder that is removed again and again before a file has come into it is no room for one.
        let kept = (0..200).filter(|_| file(&mut spool, 1, 10).is_ok()).count();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut taken = taker.join().unwrap();
        taken.sort();
        assert_eq!(taken.len(), kept);
        taken.dedup();
        assert_eq!((taken.len(), lock(&spool.status).rows_written), (kept, kept as u64));
    });
}

#[test]
fn what_was_taken_away_and_why_it_was_not_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = open(dir.path(), 1 << 20);
    file(&mut spool, 3, 10).unwrap();
    fs::write(dir.path().join(UNDELIVERED), "nobody listens\n").unwrap();
    let mut look = || {
        spool.looked = Instant::now() - LOOK;
        spool.poll();
        let status = lock(&spool.status).clone();
        (status.bytes, status.undelivered)
    };
    assert_eq!(look(), (BLOCK, Some("nobody listens".to_owned())));
    fs::remove_dir_all(dir.path().join("own")).unwrap();
    fs::remove_file(dir.path().join(UNDELIVERED)).unwrap();
    assert_eq!(look(), (0, None));
}
