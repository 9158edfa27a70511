//! The laws on the kernel's own numbers: what its tracepoints `balance_dirty_pages` and `bdi_dirty_ratelimit`
//! say went in, and what came out. No model runs, so neither cold memory nor a slow disk has a part in it: a
//! law is wrong or right.
#![expect(clippy::disallowed_macros, reason = "a test tells what it found")]

use std::io::Read;

use super::super::*;

/// Ticks in a second where the runs were recorded.
const HZ: Hz = Hz(250.0);

/// Runs on the disk of a suite, and its thresholds in pages.
struct Recording {
    name: &'static str,
    background: Pages,
    thresh: Pages,
    runs: [&'static [u8]; 3],
}

const RECORDINGS: [Recording; 2] = [
    Recording {
        name: "ssd-512-1024",
        background: Pages(131_072.0),
        thresh: Pages(262_144.0),
        runs: [
            include_bytes!("../../../tests/data/traced/ssd-512-1024-seq-16M.trace.gz"),
            include_bytes!("../../../tests/data/traced/ssd-512-1024-seq-32M-think50ms.trace.gz"),
            include_bytes!("../../../tests/data/traced/ssd-512-1024-rnd-C-back25.trace.gz"),
        ],
    },
    Recording {
        name: "hdd-256-512",
        background: Pages(65_536.0),
        thresh: Pages(131_072.0),
        runs: [
            include_bytes!("../../../tests/data/traced/hdd-256-512-seq-16M.trace.gz"),
            include_bytes!("../../../tests/data/traced/hdd-256-512-seq-32M-think50ms.trace.gz"),
            include_bytes!("../../../tests/data/traced/hdd-256-512-rnd-C-back25.trace.gz"),
        ],
    },
];

/// A line of the trace.
struct Traced<'a>(&'a str);

impl Traced<'_> {
    fn of(&self, key: &str) -> f64 {
        let mut words = self.0.split_whitespace().filter_map(|word| word.split_once('='));
        let text = words.find(|(name, _)| *name == key).expect("a field of the tracepoint").1;
        text.parse().expect("a number")
    }

    fn pages(&self, key: &str) -> Pages {
        Pages(self.of(key))
    }

    /// A rate, where the trace has KiB.
    fn rate(&self, key: &str) -> PageRate {
        PageRate(self.of(key) / 4.0)
    }

    /// A time in ticks, where the trace has milliseconds.
    fn ticks(&self, key: &str) -> Jiffies {
        Jiffies(self.of(key) * HZ.0 / 1000.0)
    }

    fn is_update(&self) -> bool {
        self.0.contains("bdi_dirty_ratelimit:")
    }

    /// What a check found; the device's bandwidth is not in its line.
    fn found(&self, recording: &Recording, bandwidth: PageRate) -> (Domain, Line) {
        let Recording { background, thresh, .. } = *recording;
        let domain = Domain { dirty: self.pages("dirty"), background, thresh, limit: self.pages("limit") };
        assert_eq!(self.pages("setpoint"), domain.setpoint().floor());
        let share = self.pages("wb_setpoint") / domain.setpoint();
        let (dirty, strict) = (self.pages("wb_dirty"), false);
        (domain, Line { dirty, thresh: thresh * share, background: background * share, bandwidth, strict })
    }
}

/// What a law says and what the kernel did, many times.
#[derive(Default)]
struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    /// The share of the pairs that are further apart than this, relatively or by this much.
    fn apart(&self, relative: f64, absolute: f64) -> f64 {
        let apart = |(told, done): &&(f64, f64)| (told - done).abs() > (relative * done.abs()).max(absolute);
        self.0.iter().filter(apart).count() as f64 / self.0.len() as f64
    }

    /// By how much the sum of what the law says is more than what the kernel did.
    fn excess(&self) -> f64 {
        let sum = self.0.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        sum.0 / sum.1 - 1.0
    }
}

#[test]
fn each_law_does_what_the_kernel_did() {
    for recording in &RECORDINGS {
        let [mut ratios, mut periods, mut pauses, mut quotas, mut steps] = [(); 5].map(|()| Pairs::default());
        for packed in recording.runs {
            let mut text = String::new();
            flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("a gzipped trace");
            let lines: Vec<Traced> = text.lines().map(Traced).collect();
            let mut base: Option<RateLimit> = None;
            for (number, line) in lines.iter().enumerate() {
                // An update tells the bandwidth of before itself: that of all checks since the last one.
                let Some(next) = lines[number..].iter().find(|line| line.is_update()) else { break };
                let bandwidth = next.rate("awrite_bw");
                if line.is_update() {
                    let traced = RateLimit {
                        base: line.rate("dirty_ratelimit"),
                        balanced: line.rate("balanced_dirty_ratelimit"),
                    };
                    // It is made by a check that is in the next line.
                    if let (Some(before), Some(check)) =
                        (base, lines.get(number + 1).filter(|line| !line.is_update()))
                    {
                        let (domain, place) = check.found(recording, bandwidth);
                        let mut now = before;
                        let ratio = position_ratio(&domain, &place);
                        now.update(&domain, &place, ratio, line.rate("dirty_rate"));
                        steps.0.push(((now.base - before.base).0, (traced.base - before.base).0));
                    }
                    base = Some(traced);
                    continue;
                }
                let (domain, place) = line.found(recording, bandwidth);
                let limit = line.rate("dirty_ratelimit");
                let ratio = position_ratio(&domain, &place);
                ratios.0.push((ratio, line.rate("task_ratelimit") / limit));
                let rate = (limit * ratio).floor();
                let period = Jiffies((HZ.0 * line.of("dirtied") / rate.0).floor());
                periods.0.push((period.0, line.ticks("period").0));
                let longest = max_pause(place.dirty, bandwidth, HZ);
                let pacing = min_pause(bandwidth, longest, rate, limit, HZ);
                let pause = period - line.ticks("think");
                let pause =
                    if pause < pacing.min_pause { pause.min(Jiffies::ZERO) } else { pause.min(longest) };
                pauses.0.push((pause.0.max(0.0), line.ticks("pause").0.max(0.0)));
                if let Some(after) = lines[number + 1..].iter().find(|line| !line.is_update())
                    && line.of("pause") > 0.0
                {
                    quotas.0.push((pacing.pages as f64, after.of("dirtied_pause")));
                }
            }
        }
        let (name, checks) = (recording.name, pauses.0.len());
        let (paused, took) = (pauses.excess(), steps.0.iter().filter(|(_, done)| *done != 0.0).count());
        eprintln!("{name}: {checks} checks, all pauses {paused:+.4}, {took} steps of the base rate");
        assert!(checks > 1000 && quotas.0.len() > 500 && took > 10, "{name}");
        assert!(ratios.apart(0.01, 0.0) == 0.0, "{name}: {:?}", ratios.excess());
        // Whole ticks, and rates are traced in KiB: some are rounded to the tick beside.
        assert!(periods.apart(0.0, 0.0) < 0.02 && periods.apart(0.0, 1.0) == 0.0, "{name}");
        assert!(pauses.apart(0.0, 0.0) < 0.02 && paused.abs() < 0.02, "{name}: {paused}");
        assert!(quotas.apart(0.01, 1.0) < 0.03, "{name}: {}", quotas.apart(0.01, 1.0));
        assert!(steps.apart(0.0, 2.0) < 0.03, "{name}: {}", steps.apart(0.0, 2.0));
    }
}
