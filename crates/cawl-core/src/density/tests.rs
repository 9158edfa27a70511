use super::*;

/// A fixed sequence of numbers between 0 and 1.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// Box and Muller's normal numbers.
fn normal(noise: &mut impl FnMut() -> f64) -> f64 {
    (-2.0 * noise().ln()).sqrt() * (std::f64::consts::TAU * noise()).cos()
}

/// Medians, standard deviations of the logarithm, and weights of lognormal costs.
type Mixture = [(f64, f64, f64)];

/// The density of `count` costs of a mixture; each part of it has a cause of its own.
fn mixture(seed: u64, count: usize, parts: &Mixture) -> Density {
    let (mut noise, mut histogram) = (noise(seed), Histogram::default());
    let whole: f64 = parts.iter().map(|part| part.2).sum();
    for _ in 0..count {
        let mut at = noise() * whole;
        let part = parts.iter().position(|part| {
            at -= part.2;
            at < 0.0
        });
        let part = part.unwrap_or(0);
        let cost = parts[part].0 * (parts[part].1 * normal(&mut noise)).exp();
        histogram.add(cost as f32, 1 + (cost * 4096.0) as u64, Cause::ALL[part]);
    }
    histogram.density().expect("there are calls")
}

fn uniform(seed: u64, count: usize, cost: impl Fn(f64) -> f64) -> Density {
    let (mut noise, mut histogram) = (noise(seed), Histogram::default());
    (0..count).for_each(|_| histogram.add(cost(noise()) as f32, 1000, Cause::Copy));
    histogram.density().expect("there are calls")
}

const MIXTURES: [&Mixture; 8] = [
    &[(0.35, 0.1, 1.0)],
    &[(0.35, 0.3, 1.0)],
    &[(0.35, 1.0, 1.0)],
    &[(0.35, 0.15, 0.7), (3.0, 0.2, 0.3)],
    &[(1.0, 0.2, 0.5), (2.5, 0.2, 0.5)],
    &[(0.35, 0.15, 0.95), (30.0, 0.2, 0.05)],
    &[(0.35, 0.15, 0.5), (1.5, 0.2, 0.3), (20.0, 0.3, 0.2)],
    &[(0.3, 0.15, 0.4), (1.0, 0.15, 0.3), (4.0, 0.2, 0.2), (400.0, 0.3, 0.1)],
];

#[test]
fn the_modes_of_mixtures_are_as_many_and_where_they_were_put() {
    for parts in MIXTURES {
        let whole: f64 = parts.iter().map(|part| part.2).sum();
        for (count, seeds) in [(1000, 10), (30_000, 3)] {
            for seed in 0..seeds {
                let density = mixture(seed, count, parts);
                assert_eq!(density.modes.len(), parts.len(), "{parts:?} {count} {seed}: {density:?}");
                for (at, (mode, part)) in density.modes.iter().zip(parts).enumerate() {
                    let (off, share) = ((mode.peak / part.0).ln(), part.2 / whole);
                    assert!(off.abs() < 0.6 * part.1 + 0.05, "{parts:?} {count} {seed}: {mode:?}");
                    assert!((mode.share - share).abs() < 0.05, "{parts:?} {count} {seed}: {mode:?}");
                    assert!(mode.from < mode.peak && mode.peak < mode.to, "{mode:?}");
                    assert_eq!(mode.cause, Cause::ALL[at].name(), "{parts:?} {count} {seed}");
                }
            }
        }
    }
}

#[test]
fn one_kind_of_cost_is_one_mode_however_many_calls() {
    for (count, seeds) in [(2, 3), (30, 20), (300, 20), (3000, 20), (100_000, 3)] {
        for seed in 0..seeds {
            for parts in &MIXTURES[..3] {
                assert_eq!(mixture(seed, count, parts).modes.len(), 1, "{parts:?} {count} {seed}");
            }
            assert_eq!(uniform(seed, count, |x| 1.0 + 9.0 * x).modes.len(), 1, "{count} {seed}");
        }
    }
    // Flat on the logarithmic axis: chance makes a second mode in 2 to 7 samples of a hundred.
    let flat = |seed| uniform(seed, 3000, |x| 10_f64.powf(2.0 * x)).modes.len();
    assert!((0..100).filter(|seed| flat(*seed) > 1).count() <= 10);
    // All calls cost the same.
    let same = uniform(1, 1000, |_| 0.5);
    assert!((same.modes[0].peak / 0.5 - 1.0).abs() < 0.05 && same.modes[0].share == 1.0, "{same:?}");
}

#[test]
fn the_density_is_one_in_all_and_has_few_points() {
    for parts in MIXTURES {
        let density = mixture(1, 3000, parts);
        assert!(density.density.len() <= 200);
        let sum = density.density.iter().map(|of| f64::from(*of)).sum::<f64>() * density.ratio.log10();
        assert!((sum - 1.0).abs() < 0.02, "{parts:?}: {sum}");
        let highest = density.density.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).expect("points").0;
        let at = density.from * density.ratio.powi(highest as i32);
        let peaks = density.modes.iter().map(|mode| (mode.peak / at).ln().abs());
        assert!(peaks.fold(f64::MAX, f64::min) < 0.1, "{parts:?}: {at}");
    }
}

#[test]
fn what_is_rare_but_takes_the_time_is_in_no_mode_or_in_one_of_its_own() {
    let mut few = Densities::default();
    for at in 0..10_000 {
        few.add(Op::Write, 4096, 1400 + at % 300, Some(Nanos::new(1500.0)), Cause::Copy);
    }
    // A single call of 2 s.
    few.add(Op::Write, 4096, 2_000_000_000, Some(Nanos::new(1500.0)), Cause::Unexpected);
    let of = &few.report()[0];
    let call = of.per_call.as_ref().expect("there are calls");
    assert_eq!((call.modes.len(), call.modes[0].calls), (1, 10_000));
    assert!(call.modes[0].time_share < 0.01 && call.modes[0].to < 2000.0, "{call:?}");
    // Thirty of them are a mode.
    for at in 0..30 {
        few.add(
            Op::Write,
            4096,
            2_000_000_000 + at * 30_000_000,
            Some(Nanos::new(1500.0)),
            Cause::Unexpected,
        );
    }
    let of = &few.report()[0];
    for density in [&of.per_call, &of.per_byte, &of.over_predicted] {
        let modes = &density.as_ref().expect("there are calls").modes;
        assert_eq!(modes.iter().map(|mode| mode.cause.as_str()).collect::<Vec<_>>(), ["copy", "unexpected"]);
    }
    let modes = byte_modes(&few.report());
    assert!((modes[0].peak_ns_per_byte / (1550.0 / 4096.0) - 1.0).abs() < 0.1, "{modes:?}");
}

#[test]
fn calls_without_bytes_have_a_cost_per_call_only() {
    let mut densities = Densities::default();
    densities.add(Op::Fsync, 0, 5_000_000, None, Cause::Journal);
    densities.add(Op::Write, 10, 0, None, Cause::Copy);
    let report = densities.report();
    assert_eq!((report.len(), report[0].op.as_str()), (1, "fsync"));
    assert!(report[0].per_byte.is_none() && report[0].over_predicted.is_none());
    assert_eq!(report[0].per_call.as_ref().map(|density| density.calls), Some(1));
}

#[test]
fn a_bin_is_a_sixteenth_of_an_octave_and_extremes_have_one() {
    let mut last = 0;
    for at in 0..1600 {
        // From middle to middle of 1600 sixteenths of a bin's width.
        let value = ((at as f64 + 0.5) / 256.0).exp2();
        let bin =
            usize::from(BIN[((value as f32).to_bits() >> 15) as usize & 255]) + BINS * value.log2() as usize;
        let exact = at / 16;
        assert!(bin.abs_diff(exact) <= 1 && bin >= last, "{value}: {bin}, {exact}");
        last = bin;
    }
    for cost in [f32::MIN_POSITIVE, 1e-30, 1e30, f32::MAX, f32::INFINITY] {
        let mut histogram = Histogram::default();
        histogram.add(cost, u64::MAX, Cause::Copy);
        histogram.add(cost, u64::MAX, Cause::Copy);
        let density = histogram.density().expect("two calls");
        assert!(density.from.is_finite() && density.modes.len() == 1, "{density:?}");
    }
}

#[test]
fn the_density_of_times_alone() {
    let mut noise = noise(1);
    let times: Vec<Nanos> = (0..1000)
        .map(|at| Nanos::new(if at % 4 == 0 { 90e3 } else { 4e3 } * (0.1 * normal(&mut noise)).exp()))
        .collect();
    let density = Density::of(times.into_iter().chain([Nanos::ZERO])).expect("there are calls");
    let shares: Vec<f64> = density.modes.iter().map(|mode| (mode.share * 100.0).round()).collect();
    assert_eq!((density.calls, shares), (1000, vec![75.0, 25.0]));
    assert_eq!(Density::of([]), None);
}
