//! Which of several ways of predicting is used: the one with the smallest recent error. Errors are summed
//! over blocks of observed time, in which noise cancels out, and the way with the least sum of their absolute
//! values leads (the "follow the leader" rule of prediction with expert advice: Cesa-Bianchi and Lugosi,
//! 2006, with fading scores).

/// How many ways there are.
pub const WAYS: usize = 4;
/// What is left of a score after a block.
const FADING: f64 = 0.9;

/// The scores of the ways.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leader {
    /// The one that is to be believed.
    pub leads: usize,
    /// A block is over.
    pub is_tried: bool,
    scores: [f64; WAYS],
    errors: [f64; WAYS],
    block: f64,
}

impl Leader {
    /// This way leads at first.
    pub fn new(leads: usize) -> Leader {
        Leader { leads, ..Leader::default() }
    }

    /// Each way was off by so much, in an observation of this weight. `length`: that of a block in the unit
    /// of the weights; `factors`: by which scores are multiplied before they are compared.
    pub fn judge(&mut self, off: [f64; WAYS], weight: f64, length: f64, factors: [f64; WAYS]) {
        self.errors.iter_mut().zip(off).for_each(|(error, off)| *error += off);
        self.block += weight;
        if self.block >= length {
            for (score, error) in self.scores.iter_mut().zip(&mut self.errors) {
                *score = FADING * *score + std::mem::take(error).abs();
            }
            (self.block, self.is_tried) = (0.0, true);
            let score = |way: usize| factors[way] * self.scores[way];
            let best = (0..WAYS).min_by(|a, b| score(*a).total_cmp(&score(*b)));
            self.leads = best.unwrap_or(self.leads);
        }
    }
}
