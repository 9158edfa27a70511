use cawl_core::Nanos;
use cawl_core::{HostProfile, Measured};

use super::*;

fn setting(way: Way, syncs: SyncsKept, access: Access) -> Setting {
    Setting { way, syncs, access, limits: None }
}

fn choices(bytes: Bytes) -> Choices {
    Choices {
        bytes,
        ways: vec![Way::Write(4 << 10), Way::Write(1 << 20), Way::Stream(64 << 10)],
        syncs: vec![SyncsKept::None, SyncsKept::Last, SyncsKept::OneIn(16), SyncsKept::OneIn(1)],
        accesses: Access::ALL.to_vec(),
        limits: vec![None],
    }
}

fn workload(order: Order, record: u64, records: u64) -> Workload {
    Workload { order, record: Bytes(record), records, writers: 1 }
}

/// Patterns of one machine with costs in ms, for two settings that suit all of them.
fn study(costs: &[(Workload, Need, [f64; 2])]) -> Study {
    let ways = [Way::Write(4096), Way::Write(1 << 20)];
    let mut study = Study::of(ways.map(|way| setting(way, SyncsKept::OneIn(1), Access::Cached)).to_vec());
    for (workload, need, costs) in costs {
        let pattern = Pattern { machine: 0, workload: *workload, need: *need };
        study.add(pattern, &HostProfile::uncalibrated(), costs.map(|ms| Some(Nanos::millis(ms))).to_vec());
    }
    study
}

#[test]
fn a_setting_is_as_durable_as_its_worst_crash() {
    use Access::*;
    let small = workload(Order::Append, 100, 1000);
    let large = workload(Order::New, 1 << 20, 16);
    let plain = |syncs| setting(Way::Write(4096), syncs, Cached);
    let stream = |access| setting(Way::Stream(4096), SyncsKept::None, access);
    for (setting, workload, lost, gives) in [
        (plain(SyncsKept::None), small, None, vec![Need::None]),
        (plain(SyncsKept::Last), small, None, vec![Need::None, Need::End]),
        (plain(SyncsKept::OneIn(16)), small, Some(15), vec![Need::None, Need::End, Need::Every]),
        (plain(SyncsKept::OneIn(17)), small, Some(16), vec![Need::None, Need::End]),
        (plain(SyncsKept::OneIn(1)), small, Some(0), Need::ALL.to_vec()),
        // O_DIRECT is not durable.
        (setting(Way::Write(4096), SyncsKept::None, Direct), large, None, vec![Need::None]),
        (setting(Way::Write(4096), SyncsKept::None, DirectDsync), large, Some(0), Need::ALL.to_vec()),
        (setting(Way::Write(4096), SyncsKept::None, Dsync), small, Some(0), Need::ALL.to_vec()),
        // What waits in the buffer is lost: 41 records at most.
        (stream(Sync), small, Some(41), vec![Need::None, Need::End]),
        (stream(Sync), large, Some(0), Need::ALL.to_vec()),
        (stream(Cached), large, None, vec![Need::None]),
    ] {
        assert_eq!(setting.lost(&workload), lost, "{setting} {workload:?}");
        let given: Vec<Need> = Need::ALL.into_iter().filter(|need| setting.gives(*need, &workload)).collect();
        assert_eq!(given, gives, "{setting} {workload:?}");
    }
}

#[test]
fn the_grid_has_nothing_twice_and_nothing_impossible() {
    let grid = Grid::new(&choices(Bytes::mib(4)));
    // Two sizes of calls with four fsyncs, cached and direct, and three durable ways; a stream likewise,
    // without the direct ones.
    assert_eq!(grid.settings.len(), 2 * (4 + 4 + 3) + (4 + 2));
    let cells = grid.cells(1);
    assert_eq!(cells.iter().collect::<HashSet<_>>().len(), cells.len());
    for cell in &cells {
        assert!(cell.workload.bytes() * u64::from(cell.workload.writers) <= 4 << 20, "{cell:?}");
        let is_direct = matches!(cell.setting.access, Access::Direct | Access::DirectDsync);
        assert!(!(is_direct && cell.workload.order == Order::Append), "{cell:?}");
    }
    assert_eq!(grid.cells(2).len(), 2 * cells.len());
}

#[test]
fn writers_write_every_record_and_sync_as_told() {
    let count = |acts: &[Act], wanted: fn(&Act) -> bool| acts.iter().filter(|act| wanted(act)).count();
    let is_sync = |act: &Act| *act == Act::Sync;
    for order in Order::ALL {
        let workload = workload(order, 8192, 40);
        for (syncs, expected) in [
            (SyncsKept::None, 0),
            (SyncsKept::Last, 1),
            (SyncsKept::OneIn(16), 3),
            (SyncsKept::OneIn(8), 5),
            (SyncsKept::OneIn(1), 40),
        ] {
            let written: Vec<Act> =
                acts(workload, setting(Way::Write(4096), syncs, Access::Cached), 0).collect();
            assert_eq!(
                (written.len(), count(&written, is_sync)),
                (80 + expected, expected),
                "{order:?} {syncs:?}"
            );
            let put: Vec<Act> =
                acts(workload, setting(Way::Stream(4096), syncs, Access::Cached), 0).collect();
            assert_eq!(
                (put.len(), count(&put, is_sync)),
                (40 + 2 * expected + 1, expected),
                "{order:?} {syncs:?}"
            );
            let place = |act: &Act| match act {
                Act::Write { offset, bytes } | Act::Put { offset, bytes } => Some((*offset, *bytes)),
                _ => None,
            };
            let bytes: u64 = written.iter().filter_map(place).map(|(_, bytes)| bytes).sum();
            assert_eq!(bytes, workload.bytes());
            if order == Order::Random {
                let inside = |(offset, bytes)| offset % 4096 == 0 && offset + bytes <= workload.size();
                assert!(put.iter().filter_map(place).all(inside));
            }
        }
    }
}

#[test]
fn costs_follow_the_calls() {
    let mut profile = HostProfile::uncalibrated();
    profile.device.sync_call = Measured::assumed(Nanos::millis(2.0));
    profile.device.flush = Some(Measured::assumed(Nanos::millis(0.5)));
    let cost = |order, way, syncs, access, writers| {
        let workload = Workload { writers, ..workload(order, 4096, 64) };
        cost(&profile, &workload, &setting(way, syncs, access)).as_seconds()
    };
    let fsync = profile.device.fsync.value.as_seconds();
    let (write, stream) = (Way::Write(4096), Way::Stream(64 << 10));
    let plain = cost(Order::New, write, SyncsKept::None, Access::Cached, 1);
    assert!(plain > 0.0 && plain < fsync, "{plain} s");
    let each = cost(Order::New, write, SyncsKept::OneIn(1), Access::Cached, 1);
    assert!((64.0 * fsync..80.0 * fsync).contains(&each), "{each} s, {fsync} s an fsync");
    assert!(cost(Order::New, write, SyncsKept::Last, Access::Cached, 1) < each / 16.0);
    assert!(cost(Order::New, stream, SyncsKept::OneIn(1), Access::Cached, 1) >= each);
    // Blocks that the file has need no commit.
    let over = cost(Order::Overwrite, write, SyncsKept::None, Access::Dsync, 1);
    assert!(2.0 * over < cost(Order::New, write, SyncsKept::None, Access::Dsync, 1), "{over} s");
    assert!(cost(Order::New, write, SyncsKept::None, Access::Cached, 4) >= plain);
    assert_eq!(each, cost(Order::New, write, SyncsKept::OneIn(1), Access::Cached, 1), "the same every time");
}

#[test]
fn only_what_suits_a_pattern_is_compared() {
    let grid = Grid::new(&choices(Bytes::mib(1)));
    let profile = HostProfile::uncalibrated();
    let costs = grid.cells(1).into_iter().map(|cell| (cell, cost(&profile, &cell.workload, &cell.setting)));
    let study = Study::new(&grid, std::slice::from_ref(&profile), &costs.collect(), |_| true);
    assert_eq!(study.patterns.len(), 4 * grid.workloads.len());
    for (at, pattern) in study.patterns.iter().enumerate() {
        for (number, setting) in study.settings.iter().enumerate() {
            let suits =
                setting.gives(pattern.need, &pattern.workload) && setting.is_possible(&pattern.workload);
            assert_eq!(study.cost(at, number).is_some(), suits, "{pattern} {setting}");
        }
    }
    let mut before = 1.0;
    for depth in 1..=4 {
        let tree = Tree::learn(&study, depth);
        assert!(tree.regret <= before, "depth {depth}: {} after {before}", tree.regret);
        before = tree.regret;
        let rules = tree.rules();
        assert!(rules.len() <= 1 << depth);
        assert_eq!(rules.iter().map(|rule| rule.leaf.patterns).sum::<usize>(), study.patterns.len());
        let mut lost = 0.0;
        for at in 0..study.patterns.len() {
            let choice = tree.choice(&study, at).expect("an fsync for each record suits all");
            lost += 1.0 - study.reached(at, choice).expect("it suits the pattern");
        }
        assert!((lost / study.patterns.len() as f64 - tree.regret).abs() < 1e-9);
    }
    assert!(before < 0.2, "depth 4 loses {before}");
}

#[test]
fn means_are_as_by_hand() {
    let record = |record| workload(Order::New, record, 10);
    // The second reaches 1/2, 1 and 1/4 of the best.
    let study = study(&[
        (record(1000), Need::End, [1.0, 2.0]),
        (record(2000), Need::End, [3.0, 1.0]),
        (record(3000), Need::Record, [1.0, 4.0]),
    ]);
    let defaults = study.defaults();
    let of = |need, setting| {
        *defaults.iter().find(|row| row.need == need && row.setting == setting).expect("a row")
    };
    let all = of(None, 1);
    assert_eq!((all.best, all.worst), (1, 2));
    assert!((all.arithmetic - (0.5 + 1.0 + 0.25) / 3.0).abs() < 1e-12);
    assert!((all.harmonic - 3.0 / (2.0 + 1.0 + 4.0)).abs() < 1e-12);
    assert_eq!(of(Some(Need::Record), 0).arithmetic, 1.0);
    assert!(!defaults.iter().any(|row| row.need == Some(Need::None)), "no pattern needs it");
    assert_eq!(defaults[0].need, Some(Need::End));
    assert!(defaults[0].arithmetic >= defaults[1].arithmetic);
}

#[test]
fn the_tree_finds_the_rule() {
    // The first is better for small records in order and large ones at random: two questions, each of which
    // by itself gains nothing.
    let mut patterns = Vec::new();
    for (order, record, costs) in [
        (Order::New, 4096, [1.0, 2.0]),
        (Order::New, 1 << 20, [2.0, 1.0]),
        (Order::Random, 4096, [2.0, 1.0]),
        (Order::Random, 1 << 20, [1.0, 2.0]),
    ] {
        patterns.push((workload(order, record, 64), Need::End, costs));
    }
    let study = study(&patterns);
    let one = Tree::learn(&study, 1);
    assert!((one.regret - 0.25).abs() < 1e-12, "{one:?}");
    let two = Tree::learn(&study, 2);
    assert_eq!(two.regret, 0.0);
    let rules: Vec<(String, Option<usize>)> =
        two.rules().into_iter().map(|rule| (rule.conditions.join(" and "), rule.leaf.setting)).collect();
    assert_eq!(
        rules,
        [
            ("record ≤ 4K and in order".to_owned(), Some(0)),
            ("record ≤ 4K and at random".to_owned(), Some(1)),
            ("record > 4K and in order".to_owned(), Some(1)),
            ("record > 4K and at random".to_owned(), Some(0)),
        ]
    );
    assert_eq!(Tree::learn(&study, 4).root, two.root, "more questions gain nothing");
}

#[test]
fn a_leaf_chooses_nothing_that_is_unsafe() {
    let ways = [SyncsKept::None, SyncsKept::OneIn(1)];
    let mut study = Study::of(ways.map(|syncs| setting(Way::Write(4096), syncs, Access::Cached)).to_vec());
    let machine = HostProfile::uncalibrated();
    let mut add = |need, costs: [Option<f64>; 2]| {
        let pattern = Pattern { machine: 0, workload: workload(Order::New, 4096, 64), need };
        study.add(pattern, &machine, costs.map(|ms| ms.map(Nanos::millis)).to_vec());
    };
    (0..20).for_each(|_| add(Need::None, [Some(1.0), Some(1000.0)]));
    add(Need::Record, [None, Some(1000.0)]);
    let Node::Leaf(leaf) = Tree::learn(&study, 0).root else { panic!("no question was allowed") };
    assert_eq!(leaf.setting, Some(1));
    let rules = Tree::learn(&study, 1).rules();
    assert_eq!(rules[0].conditions, ["durable: none"]);
    assert_eq!((rules[0].leaf.setting, rules[1].leaf.setting), (Some(0), Some(1)));
}

#[test]
fn conditions_of_one_feature_become_one() {
    assert_eq!(Feature::Record.condition(Some(128.0), Some(4096.0)), "128 < record ≤ 4K");
    assert_eq!(Feature::Need.condition(Some(0.0), Some(2.0)), "durable: end, every16");
    assert_eq!(Feature::Bytes.condition(None, Some(1_048_576.0)), "bytes ≤ 1M");
}
