//! Sizes of calls: by power of two, and the most frequent ones by name.
//!
//! Most files are written in few sizes: up to [`FEW`] are counted exactly, in place. Further ones go to a
//! table by power of two, and the most frequent are found by Metwally, Agrawal and El Abbadi's "space saving"
//! (2005): one that is not in the table takes the place of the least frequent, and inherits its count as an
//! error. So a size in more than a [`FREQUENT`]th of all calls is in the table for certain.

/// Sizes that are counted exactly.
const FEW: usize = 3;
/// Sizes by name.
const FREQUENT: usize = 8;
/// Powers of two.
const POWERS: usize = 64;

#[derive(Default)]
pub(crate) struct Sizes {
    /// Size and calls, those without calls last.
    few: [(u64, u64); FEW],
    /// Where there are more.
    many: Option<Box<Many>>,
}

struct Many {
    powers: [u64; POWERS],
    frequent: [Counted; FREQUENT],
}

#[derive(Clone, Copy, Default)]
struct Counted {
    size: u64,
    calls: u64,
    /// So many of the calls may have had another size.
    error: u64,
}

impl Sizes {
    /// Adds a call of this size, which is not zero.
    #[inline]
    pub(crate) fn add(&mut self, size: u64) {
        if let Some(many) = &mut self.many {
            return many.add(size, 1);
        }
        for (of, calls) in &mut self.few {
            if *of == size || *calls == 0 {
                *of = size;
                *calls += 1;
                return;
            }
        }
        self.add_further(size);
    }

    #[cold]
    fn add_further(&mut self, size: u64) {
        let mut many = Box::new(Many { powers: [0; POWERS], frequent: [Counted::default(); FREQUENT] });
        self.few.iter().for_each(|(size, calls)| many.add(*size, *calls));
        many.add(size, 1);
        self.many = Some(many);
    }

    /// Calls by the power of two that their size is at least.
    pub(super) fn powers(&self) -> Vec<(u64, u64)> {
        let mut powers = [0; POWERS];
        match &self.many {
            Some(many) => powers = many.powers,
            None => self.few.iter().for_each(|(size, calls)| powers[power(*size)] += calls),
        }
        (0..POWERS).filter(|at| powers[*at] > 0).map(|at| (1 << at, powers[at])).collect()
    }

    /// The most frequent sizes with their calls, as far as certain.
    pub(crate) fn frequent(&self) -> Vec<(u64, u64)> {
        let mut sizes: Vec<(u64, u64)> = match &self.many {
            Some(many) => many.frequent.iter().map(|of| (of.size, of.calls - of.error)).collect(),
            None => self.few.to_vec(),
        };
        let all: u64 = self.powers().iter().map(|(_, calls)| calls).sum();
        // One that came once in a hundred calls or less is not frequent.
        sizes.retain(|(_, calls)| *calls * 100 > all);
        sizes.sort_by_key(|(size, calls)| (std::cmp::Reverse(*calls), *size));
        sizes
    }
}

impl Many {
    fn add(&mut self, size: u64, calls: u64) {
        self.powers[power(size)] += calls;
        let mut least = 0;
        for at in 0..FREQUENT {
            let of = &mut self.frequent[at];
            if of.size == size || of.calls == 0 {
                of.size = size;
                of.calls += calls;
                return;
            }
            if of.calls < self.frequent[least].calls {
                least = at;
            }
        }
        let before = self.frequent[least].calls;
        self.frequent[least] = Counted { size, calls: before + calls, error: before };
    }
}

fn power(size: u64) -> usize {
    size.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_are_exact_and_frequent_ones_found_among_many() {
        let mut sizes = Sizes::default();
        [4096, 1000, 4096, 512].into_iter().for_each(|size| sizes.add(size));
        assert!(sizes.many.is_none());
        assert_eq!(sizes.powers(), [(512, 2), (4096, 2)]);
        assert_eq!(sizes.frequent(), [(4096, 2), (512, 1), (1000, 1)]);
        // A third of the calls has one size, the others have each another.
        for at in 0..3000 {
            sizes.add(if at % 3 == 0 { 777 } else { 10_000 + at });
        }
        assert_eq!(sizes.powers().iter().map(|(_, calls)| calls).sum::<u64>(), 3004);
        let frequent = sizes.frequent();
        assert_eq!(frequent[0].0, 777);
        assert!((700..=1000).contains(&frequent[0].1) && frequent.len() == 1, "{frequent:?}");
    }
}
