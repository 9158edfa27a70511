//! The tables and pictures of client-side caching.

use cawl_console::compact;
use cawl_core::{CachePolicy, HostProfile, Measured, Nanos, Rate};

use super::super::calls::{micros, off};
use super::super::{Bench, Table};
use super::{CLOSE, OPEN, Outcome, Outcomes, PAST, READ, REREAD, REWRITE, WRITE};
use crate::experiment::plot::chart::{Scale, Series, scatter};

pub fn text(bench: &Bench) -> Vec<String> {
    vec![
        "A file is written in transfers of one size and closed, which is figures 1 and 2: bandwidth is its bytes over \
         the time from open to close. PAST is the same with O_DIRECT, on the same mount. Then the file is written twice \
         more through one descriptor, of which AGAIN is the second time, and read twice through another one. Times are \
         medians of calls in µs; those of reads are means, since a few of them wait for what is read ahead, and a few of \
         the second ones move pages to the list of active ones. \
         The mount is calibrated from outside first, and the model predicts in open loop."
            .to_owned(),
        format!(
            "The emulated links answer each request after their latency, its bytes at their bandwidth one after the \
             other; requests carry up to 1 MiB. Dirty limits {} and {}, of which a mount may use a part.",
            bench.profile.kernel.limits.background, bench.profile.kernel.limits.hard
        ),
    ]
}

/// Of each link: bandwidths by policy, then calls; and the constants of all mounts.
pub(super) fn all(outcomes: &Outcomes, mounts: &[(String, HostProfile)]) -> Vec<Table> {
    let of_link = |link: &str| [bandwidths(outcomes, link), calls(outcomes, link)];
    outcomes.links().into_iter().flat_map(of_link).chain([constants(mounts)]).collect()
}

/// How far what is predicted is above what is observed.
fn missed([observed, predicted]: [f64; 2]) -> String {
    off(predicted, observed)
}

/// The policies that a link has outcomes of, with these.
fn by_policy<'a>(outcomes: &'a Outcomes, link: &str) -> Vec<Vec<&'a Outcome>> {
    let all = CachePolicy::ALL.map(|policy| outcomes.of(link, policy));
    all.into_iter().filter(|all| !all.is_empty()).collect()
}

fn bandwidths(outcomes: &Outcomes, link: &str) -> Table {
    let policies = by_policy(outcomes, link);
    let heads = policies.iter().flat_map(|all| [all[0].policy, "predicted", "off"]);
    let row = |at: usize| {
        let cells = policies.iter().flat_map(|all| {
            let [observed, predicted] = all[at].bandwidth();
            [compact::rate(observed), compact::rate(predicted), off(predicted, observed)]
        });
        [compact::bytes(policies[0][at].size)].into_iter().chain(cells).collect()
    };
    let rows = policies.first().map_or(0, Vec::len);
    Table::new(
        format!("{link}: bandwidth of writing a file by the size of a transfer"),
        ["transfer"].into_iter().chain(heads),
        (0..rows).map(row),
    )
}

fn calls(outcomes: &Outcomes, link: &str) -> Table {
    let passes = [
        ("write", WRITE),
        ("past", PAST),
        ("again", REWRITE),
        ("read", READ),
        ("reread", REREAD),
        ("open", OPEN),
        ("close", CLOSE),
    ];
    let row = |one: &Outcome| {
        let cells = passes.iter().flat_map(|(_, pass)| {
            let pair = one.pass(*pass);
            [micros(pair[0]), missed(pair)]
        });
        [one.policy.to_owned(), compact::bytes(one.size)].into_iter().chain(cells).collect()
    };
    Table::new(
        format!("{link}: calls in µs, and how far off the model is"),
        ["policy", "transfer"].into_iter().chain(passes.iter().flat_map(|(name, _)| [*name, "off"])),
        outcomes.0.iter().filter(|one| one.link == link).map(row),
    )
}

fn constants(mounts: &[(String, HostProfile)]) -> Table {
    let row = |(link, profile): &(String, HostProfile)| {
        let device = &profile.device;
        let network = device.network.as_ref()?;
        let time =
            |time: Option<Measured<Nanos>>| time.map_or("-".to_owned(), |time| micros(time.value.get()));
        let rate = |rate: Rate| compact::rate(rate.get());
        let known = |found: Option<Measured<Rate>>| found.map_or("-".to_owned(), |found| rate(found.value));
        Some(vec![
            link.clone(),
            network.policy.name().to_owned(),
            if network.open_keeps { "yes" } else { "no" }.to_owned(),
            time(device.latency),
            rate(device.write.value),
            rate(device.read.value),
            rate(device.writeback.value),
            compact::bytes(network.request.0),
            time(network.open),
            time(network.create),
            time(network.close),
            time(network.commit),
            time(network.call),
            known(network.fresh),
            known(network.cached),
            known(network.near),
            known(network.read),
        ])
    };
    let header = [
        "link", "policy", "kept", "trip µs", "write", "read", "sent", "request", "open µs", "create",
        "close", "commit", "call", "fresh", "cached", "near", "reads",
    ];
    Table::new("Constants of the mounts, measured from outside", header, mounts.iter().filter_map(row))
}

/// Figures 1 and 2 of each link: observed and predicted.
pub(super) fn pictures(outcomes: &Outcomes) -> anyhow::Result<Vec<String>> {
    let size = Scale { name: "transfer", label: |bytes| compact::bytes(bytes as u64) };
    let rate = Scale { name: "bandwidth", label: compact::rate };
    let mut pictures = Vec::new();
    for link in outcomes.links() {
        for (which, what) in ["observed", "predicted"].into_iter().enumerate() {
            let point = |one: &&Outcome| (one.size as f64, one.bandwidth()[which]);
            let series = by_policy(outcomes, link)
                .into_iter()
                .map(|all| Series { name: all[0].policy, points: all.iter().map(point).collect() });
            let title = format!("Figures 1 and 2 over {link}, {what}");
            pictures.push(scatter(&title, size, rate, &series.collect::<Vec<_>>(), false)?);
        }
    }
    Ok(pictures)
}
