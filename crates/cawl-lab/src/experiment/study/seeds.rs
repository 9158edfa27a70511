//! The documents' own data: what the models here make of the CAWL paper's runs, and the O_SYNC study's
//! regression.

use anyhow::Context;
use cawl_console::percent;
use cawl_core::{Bytes, LIBRARY_BUFFERS};
use cawl_measure::interrupt::Interrupted;
use serde_json::json;

use super::super::period;
use super::{Bench, Finding, Section, Table, Verdict, fitted};
use crate::regress::{Fit, Formula, Measurements, compare};
use crate::seeds::iomodel::{self, Judged, Series};

/// The O_SYNC study's 640 runs.
const OSYNC: &[u8] = include_bytes!("../../seeds/osync.csv");

/// The CAWL paper's data.
pub fn paper(bench: &mut Bench) -> anyhow::Result<Section> {
    let all = iomodel::all()?;
    let mut judged = Vec::with_capacity(all.len());
    for series in &all {
        Interrupted::by(bench.signal)?;
        bench.progress.begin(format!("the paper's run {}", series.name));
        judged.push(series.judge(&all)?);
    }
    let share = |part: f64| percent(Some(part));
    let row = |one: &Judged| {
        let errors = [one.authors, one.cawl, one.kernel, one.naive].map(share);
        let head = [one.series.clone(), one.calls.to_string()];
        head.into_iter().chain(errors).chain([format!("{:.2} %", one.farthest * 100.0)]).collect()
    };
    let of = |name: &str| judged.iter().find(|one| one.series == name).context("the paper's data lack a run");
    let mut findings = Vec::new();
    for (item, name) in [
        ("000, Fig 6-A, host 1", "async_cost_1"),
        ("000, Fig 6-A, host 2", "async_cost_2"),
        ("000, Fig 7, a random run", "random_test_nv1"),
        ("000, Fig 8, host 1", "lib_cost_1"),
        ("000, Fig 8, host 2", "lib_cost_2"),
    ] {
        let one = of(name)?;
        let predicted = format!("cawl {}, kernel {}", share(one.cawl), share(one.kernel));
        let theirs = format!("{} a call", share(one.authors));
        findings.push(Finding::new(item, theirs, "", predicted, one.farthest < 0.01));
    }
    findings.extend(patterns(&all)?);
    let laws = iomodel::weighed(&all)?;
    let change = |law: &iomodel::Weighed| {
        let of = |host: Option<(f64, f64)>| host.map_or(0.0, |(with, without)| (without - with).abs());
        of(law.hosts[0]).max(of(law.hosts[1]))
    };
    let most = laws.iter().max_by(|a, b| change(a).total_cmp(&change(b))).context("there are no laws")?;
    findings.push(Finding::new(
        "000: hosts of 4.18 and 5.10",
        "no release is spoken of",
        "",
        format!("the law that matters most: {} (since {}), {}", most.law, most.since, share(change(most))),
        Verdict::Differs,
    ));
    let random = of("random_test_nv1")?;
    let [naive, authors, kernel] = [random.naive, random.authors, random.kernel].map(share);
    findings.push(Finding::new(
        "000, abstract: SimGrid to CAWL",
        "67 % to 10 %",
        "",
        format!("{naive} to {authors}, kernel {kernel}"),
        Verdict::Differs,
    ));
    let sizes = LIBRARY_BUFFERS.iter().map(|one| format!("{} {}", one.class, Bytes(one.bytes.into())));
    findings.push(Finding::new(
        "000, 4.5: buffers of other languages",
        "fixed sizes, as the C library's",
        "not all are filled to the end: docs/reference/REPORT.md",
        format!("{}; whatif --buffer", sizes.collect::<Vec<_>>().join(", ")),
        Verdict::Differs,
    ));
    Ok(Section {
        name: "paper",
        title: "The CAWL paper's data".to_owned(),
        text: vec![
            "Mean relative error per call, over the calls that were observed to take a microsecond or more: of the \
             authors' predictions, of the models here with the constants that the authors' predictions tell, and of \
             naive, SimGrid's law. For runs through the page cache, kernel has its copying rates and its writeback \
             rate from what was observed in async_cost_1 or async_cost_2, so it is judged on the other runs."
                .to_owned(),
            "The last column is the largest difference between cawl and the authors' predictions in any call. It is \
             large with think times of 0.2 s and more on host 1, where the authors' model cleans less in that time, \
             and for streams of less than 1 KiB a call, whose buffer was not empty at the first row."
                .to_owned(),
        ],
        tables: vec![Table::new(
            "Error per call",
            ["run", "calls", "authors", "cawl", "kernel", "naive", "cawl off authors"],
            judged.iter().map(row),
        ), Table::new(
            "The kernel's error by release: laws of later releases, left out one after another",
            ["law", "since", "host 1 with", "without", "host 2 with", "without"],
            laws.iter().map(|law| {
                let of = |host: Option<(f64, f64)>| match host {
                    Some((with, without)) => [with, without].map(|part| format!("{:.2} %", part * 100.0)),
                    None => ["–", "–"].map(str::to_owned),
                };
                let head = [law.law.to_owned(), law.since.to_string()];
                head.into_iter().chain(of(law.hosts[0])).chain(of(law.hosts[1])).collect()
            }),
        )],
        findings,
        data: json!({ "runs": judged, "laws": laws }),
        ..Section::default()
    })
}

/// The pattern of the paper's synchronous calls of 1 KiB, which it ascribes to limits of the request queue.
fn patterns(all: &[Series]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (item, name) in [("000, Fig 4-a, host 1", "direct_cost_1"), ("000, Fig 4-a, host 2", "direct_cost_2")]
    {
        let series = all.iter().find(|one| one.name == name).context("the paper's data lack a run")?;
        let costs = series.rows.iter().map(|(observed, _)| *observed).collect();
        let told: Vec<_> = period::periods(&[costs]).iter().map(|calls| format!("{calls:.1} KiB")).collect();
        let told = told.join(" and ");
        let predicted = format!("periods of {told}; each call is one request of one segment, and waited for");
        let theirs = "a pattern by nr_requests, max_segments and the like";
        findings.push(Finding::new(item, theirs, "", predicted, Verdict::Wrong));
    }
    Ok(findings)
}

/// The O_SYNC study's regression.
pub fn osync() -> anyhow::Result<Section> {
    let measurements = Measurements::read(OSYNC)?;
    let fit = |formula: &str| Fit::of(&Formula::parse(formula)?, &measurements);
    let (first, second) = (fit("sys ~ block_size + blocks * sync")?, fit("sys ~ blocks * sync")?);
    let forms = compare(&Formula::parse("sys ~ blocks * sync")?, &measurements)?;
    let bounds = |name: &str| {
        let one = first.coefficients.iter().find(|one| one.name == name);
        one.map_or(String::new(), |one| format!("{:.1} to {:.1} ms", one.low * 1e3, one.high * 1e3))
    };
    let aic = |fit: &Fit| format!("AIC {:.1}", fit.aic);
    let relative = fitted::listed(&forms, |form| percent(Some(form.median_relative_error)));
    let absolute = fitted::listed(&forms, |form| format!("{:.3} s", form.root_mean_square_error));
    let findings = [
        ("first model", "AIC -1005.8", aic(&first), true),
        ("second model", "AIC -1006.6", aic(&second), true),
        ("bounds of the intercept", "18 to 22 ms", bounds("(Intercept)"), false),
        ("overhead of O_SYNC", "41 to 97 ms", bounds("syncs"), false),
        ("200 µs a block with O_SYNC", "response time", "processor time".to_owned(), false),
        ("least squares, by absolute errors", "the form", absolute, true),
        ("least squares, by relative errors", "the form", relative, false),
    ];
    let findings = findings.map(|(item, theirs, predicted, holds)| {
        let verdict = if holds { Verdict::Holds } else { Verdict::Wrong };
        Finding::new(format!("004, {item}"), theirs, "", predicted, verdict)
    });
    Ok(Section {
        name: "osync-data",
        title: "The O_SYNC study's data".to_owned(),
        text: vec![
            "The document's two linear models of system time, from its own 640 rows by `cawl-lab regress`: the same \
             in all digits. Its wall time is clock(), which is the processor's time: all runs sum to 585 s, and they \
             took more than 30 hours. So a write with O_SYNC took some 40 ms, and the 200 µs are processor time."
                .to_owned(),
        ],
        tables: vec![
            fitted::coefficients("First model", &first),
            fitted::coefficients("Second model", &second),
            fitted::forms("Forms of the second model in tenfold cross-validation, rows above zero", &forms),
        ],
        findings: findings.into(),
        data: json!({ "first": first, "second": second, "forms": forms }),
        ..Section::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_small_calls_repeat_by_place() {
        let all = iomodel::all().unwrap();
        let found = patterns(&all).unwrap();
        let told: Vec<&str> = found.iter().map(|one| one.predicted.split(';').next().unwrap()).collect();
        assert_eq!(told, ["periods of 85.3 KiB and 4.0 KiB", "periods of 4.0 KiB"]);
    }
}
