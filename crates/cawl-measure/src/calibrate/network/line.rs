//! Requests of calls that wait for each of theirs: how large they are, and what each takes.

/// Sizes that a request may have, as powers of two; beyond the largest, one carries any call.
const POWERS: std::ops::RangeInclusive<u32> = 12..=24;

/// What a round says, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Of a request.
    pub trip: f64,
    /// Of a byte.
    pub byte: f64,
}

/// Requests as all rounds together say they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// Most bytes of one.
    pub most: usize,
    pub rounds: Vec<Round>,
}

/// The size of requests with which ⌈size / most⌉ round trips and the bytes explain the costs of all rounds
/// best, in parts of them; `call` is what a call takes besides, in ns.
pub fn requests(rounds: &[Vec<(f64, f64)>], call: f64) -> Requests {
    let told = || rounds.iter().filter(|points| points.len() > 1);
    let off = |most: usize| -> f64 {
        let of_round = |points: &Vec<(f64, f64)>| {
            // Round trips that grow with the bytes alone cannot be told from these.
            let Some(round) = fit(points, most, call) else { return f64::INFINITY };
            let off =
                |(size, time): &(f64, f64)| ((expected(round, *size, most, call) - time) / time).powi(2);
            points.iter().map(off).sum()
        };
        told().map(of_round).sum()
    };
    let mut best = (1 << POWERS.end(), off(1 << POWERS.end()));
    // A smaller one must be better by more than chance: another step somewhere fits noise, too.
    for most in POWERS.rev().map(|power| 1 << power) {
        let found = off(most);
        if found < best.1 * BETTER {
            best = (most, found);
        }
    }
    Requests { most: best.0, rounds: told().filter_map(|points| fit(points, best.0, call)).collect() }
}

/// Part of the squared errors that a smaller request may leave.
const BETTER: f64 = 0.5;

fn trips(size: f64, most: usize) -> f64 {
    (size / most as f64).ceil().max(1.0)
}

fn expected(round: Round, size: f64, most: usize, call: f64) -> f64 {
    call + trips(size, most) * round.trip + size * round.byte
}

/// The two constants with the smallest squared relative distance, neither of them negative.
fn fit(points: &[(f64, f64)], most: usize, call: f64) -> Option<Round> {
    let (mut nn, mut ns, mut ss, mut nt, mut st) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (size, time) in points.iter().filter(|(_, time)| *time > 0.0 && time.is_finite()) {
        let (n, s, t) = (trips(*size, most) / time, size / time, (time - call).max(0.0) / time);
        nn += n * n;
        ns += n * s;
        ss += s * s;
        nt += n * t;
        st += s * t;
    }
    let det = nn * ss - ns * ns;
    if points.len() < 2 || nn <= 0.0 || ss <= 0.0 {
        return None;
    }
    let (trip, byte) = ((nt * ss - st * ns) / det, (st * nn - nt * ns) / det);
    Some(match (det > 1e-9 * nn * ss, trip > 0.0, byte > 0.0) {
        (true, true, true) => Round { trip, byte },
        (true, true, false) => Round { trip: nt / nn, byte: 0.0 },
        (true, false, _) => Round { trip: 0.0, byte: st / ss },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: f64 = 1000.0;

    fn points(most: usize, trip: f64, byte: f64) -> Vec<(f64, f64)> {
        let cost = |size: f64| (size, expected(Round { trip, byte }, size, most, CALL));
        (12..=22).map(|power| cost((1_u64 << power) as f64)).collect()
    }

    #[test]
    fn the_size_of_a_request_shows_where_round_trips_are_added() {
        for most in [16 << 10, 32 << 10, 128 << 10, 1 << 20] {
            for (trip, byte) in [(15e3, 1.0), (150e3, 1.0), (15e3, 10.0), (150e3, 10.0)] {
                let found = requests(&[points(most, trip, byte)], CALL);
                let round = found.rounds[0];
                assert_eq!(found.most, most, "{trip} ns, {byte} ns a byte");
                assert!((round.trip / trip - 1.0).abs() < 1e-6 && (round.byte / byte - 1.0).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn where_one_request_carries_all_none_is_smaller() {
        let found = requests(&[points(1 << 24, 80e3, 2.0)], CALL);
        assert_eq!(found.most, 1 << 24);
        assert!((found.rounds[0].trip - 80e3).abs() < 1.0);
    }

    #[test]
    fn no_constant_is_negative() {
        let falling = vec![(4096.0, 9e3), (8192.0, 8e3), (65536.0, 7e3)];
        let round = fit(&falling, 1 << 24, 0.0).expect("a fit");
        assert!(round.trip > 0.0 && round.byte == 0.0, "{round:?}");
        assert_eq!(fit(&[(4096.0, 1e3)], 4096, 0.0), None);
    }
}
