//! The tables and pictures of client-side caching.

use cawl_console::compact;
use cawl_core::{CachePolicy, Measured, Nanos, Rate};

use super::super::chart::{Scale, Series, scatter};
use super::super::{Bench, Table};
use super::{Mount, Outcome, Outcomes};

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
pub fn all(outcomes: &Outcomes, mounts: &[Mount]) -> Vec<Table> {
    let of_link = |link: &str| [bandwidths(outcomes, link), calls(outcomes, link)];
    outcomes.links().into_iter().flat_map(of_link).chain([constants(mounts)]).collect()
}

fn off([observed, predicted]: [f64; 2]) -> String {
    format!("{:+.0} %", (predicted / observed - 1.0) * 100.0)
}

fn bandwidths(outcomes: &Outcomes, link: &str) -> Table {
    let policies: Vec<Vec<&Outcome>> = CachePolicy::ALL
        .map(|policy| outcomes.of(link, policy))
        .into_iter()
        .filter(|all| !all.is_empty())
        .collect();
    let mut header = vec!["transfer".to_owned()];
    for all in &policies {
        header.extend([all[0].policy.to_owned(), "predicted".to_owned(), "off".to_owned()]);
    }
    let cells = |one: &&Outcome| {
        let [observed, predicted] = one.bandwidth();
        [compact::rate(observed), compact::rate(predicted), off([observed, predicted])]
    };
    let row = |at: usize| {
        let head = compact::bytes(policies[0][at].size);
        let cells = policies.iter().flat_map(|all| cells(&all[at]));
        std::iter::once(head).chain(cells).collect()
    };
    let rows = policies.first().map_or(0, Vec::len);
    Table {
        caption: format!("{link}: bandwidth of writing a file by the size of a transfer"),
        header,
        rows: (0..rows).map(row).collect(),
    }
}

fn calls(outcomes: &Outcomes, link: &str) -> Table {
    let header = [
        "policy", "transfer", "write", "off", "past", "off", "again", "off", "read", "off", "reread", "off",
        "open", "off", "close", "off",
    ];
    let row = |one: &Outcome| {
        let (observed, predicted) = (&one.observed, &one.predicted);
        let pairs = [
            [observed.write, predicted.write],
            [observed.past, predicted.past],
            [observed.rewrite, predicted.rewrite],
            [observed.read, predicted.read],
            [observed.reread, predicted.reread],
            [observed.open, predicted.open],
            [observed.close, predicted.close],
        ];
        let cells = pairs.into_iter().flat_map(|pair| [compact::three(pair[0] / 1e3), off(pair)]);
        [one.policy.to_owned(), compact::bytes(one.size)].into_iter().chain(cells).collect()
    };
    Table {
        caption: format!("{link}: calls in µs, and how far off the model is"),
        header: header.map(str::to_owned).to_vec(),
        rows: outcomes.0.iter().filter(|one| one.link == link).map(row).collect(),
    }
}

fn constants(mounts: &[Mount]) -> Table {
    let row = |mount: &Mount| {
        let device = &mount.profile.device;
        let network = device.network.as_ref()?;
        let micros = |time: Option<Measured<Nanos>>| {
            time.map_or("-".to_owned(), |time| compact::three(time.value.get() / 1e3))
        };
        let rate = |rate: Rate| compact::rate(rate.get());
        let known = |found: Option<Measured<Rate>>| found.map_or("-".to_owned(), |found| rate(found.value));
        Some(vec![
            mount.link.clone(),
            network.policy.name().to_owned(),
            if network.open_keeps { "yes" } else { "no" }.to_owned(),
            micros(device.latency),
            rate(device.write.value),
            rate(device.read.value),
            rate(device.writeback.value),
            compact::bytes(network.request.0),
            micros(network.open),
            micros(network.create),
            micros(network.close),
            micros(network.commit),
            micros(network.call),
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
    Table {
        caption: "Constants of the mounts, measured from outside".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: mounts.iter().filter_map(row).collect(),
    }
}

/// Figures 1 and 2 of each link: observed and predicted.
pub fn pictures(outcomes: &Outcomes) -> anyhow::Result<Vec<String>> {
    let size = Scale { name: "transfer", label: |bytes| compact::bytes(bytes as u64) };
    let rate = Scale { name: "bandwidth", label: compact::rate };
    let mut pictures = Vec::new();
    for link in outcomes.links() {
        for (which, what) in ["observed", "predicted"].into_iter().enumerate() {
            let series = CachePolicy::ALL.map(|policy| Series {
                name: policy.name(),
                points: (outcomes.of(link, policy).iter())
                    .map(|one| (one.size as f64, one.bandwidth()[which]))
                    .collect(),
            });
            let series: Vec<Series> = series.into_iter().filter(|one| !one.points.is_empty()).collect();
            let title = format!("Figures 1 and 2 over {link}, {what}");
            pictures.push(scatter(&title, size, rate, &series, false)?);
        }
    }
    Ok(pictures)
}
