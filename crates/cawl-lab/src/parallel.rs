//! Work on many items, on all processors, with a line of progress.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cawl_core::Nanos;
use cawl_measure::progress::Progress;

/// What the work finds for each item, in their order. `expected`: of all items, on one processor. `shown`
/// says where the work is when so many items have begun. After an error no other item begins.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    expected: Nanos,
    shown: impl Fn(usize) -> String,
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    let mut progress = Progress::new(expected * (1.0 / threads as f64));
    let next = AtomicUsize::new(0);
    let share = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return Ok(found) };
            let one = work(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            found.push((at, one));
        }
    };
    let mut all = Vec::with_capacity(items.len());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            progress.begin(shown(next.load(Ordering::Relaxed).min(items.len())));
            thread::sleep(Duration::from_millis(10));
        }
        for worker in workers {
            let found: anyhow::Result<Vec<_>> =
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(found?);
        }
        anyhow::Ok(())
    })?;
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, found)| found).collect())
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[test]
    fn results_have_the_order_of_items_and_an_error_ends_the_work() {
        let items: Vec<u32> = (0..1000).collect();
        let run = |limit: u32| {
            each(
                &items,
                Nanos::ZERO,
                |begun| begun.to_string(),
                |item| {
                    ensure!(*item < limit, "{item} is too much");
                    Ok(item * 2)
                },
            )
        };
        assert_eq!(run(1000).unwrap(), items.iter().map(|item| item * 2).collect::<Vec<_>>());
        assert!(run(10).unwrap_err().to_string().ends_with("is too much"));
        assert!(each(&[], Nanos::ZERO, |_| String::new(), |_: &u32| Ok(1)).unwrap().is_empty());
    }
}
