//! `design`: which machine to buy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use cawl_console::outputs::{self, Kind};
use cawl_console::{bold, columns, counted, exit, line, table, time, wrapped};
use cawl_core::Ratio;
use cawl_host::output;
use serde::Serialize;

use crate::args::DesignArgs;
use crate::design::{By, Design, Times, Traces, Work, Workflows, front, run};
use crate::experiment::plot::front::{Picture, Point, png, svg};

const SCHEMA: u32 = 1;
const SVG: Kind = Kind { name: "picture of cawl", is: |head, _| head.starts_with("<svg") };
const PNG: Kind =
    Kind { name: "PNG picture", is: |head, _| head.get(..6).is_some_and(|head| head.ends_with("PNG")) };

/// What `--json` prints.
#[derive(Serialize)]
struct Answer {
    schema: u32,
    currency: String,
    by: &'static str,
    traces: usize,
    workflows: usize,
    /// On the machines of the traces, or the hosts of the workflows.
    now: Seconds,
    /// In calls when they were traced.
    observed_s: Option<f64>,
    /// By price, then by time.
    machines: Vec<Row>,
    /// Names of the choices.
    #[serde(skip)]
    choices: Vec<String>,
}

#[derive(Clone, Copy, Serialize)]
struct Seconds {
    calls_s: f64,
    lost_s: f64,
    elapsed_s: f64,
}

#[derive(Serialize)]
struct Row {
    /// Option by choice.
    options: BTreeMap<String, String>,
    price: f64,
    #[serde(flatten)]
    times: Seconds,
    /// The time that counts over that now; None where that is 0.
    ratio: Option<f64>,
    /// Of the time in calls over that now.
    calls_ratio: Option<f64>,
    calls_interval: Option<[f64; 2]>,
    /// No other machine beats it in price and time.
    front: bool,
    /// The options in the choices' order.
    #[serde(skip)]
    names: String,
    #[serde(skip)]
    counts: f64,
}

impl From<&Times> for Seconds {
    fn from(times: &Times) -> Seconds {
        let [calls_s, lost_s, elapsed_s] =
            [times.calls, times.lost, times.elapsed].map(|time| time.as_seconds());
        Seconds { calls_s, lost_s, elapsed_s }
    }
}

pub fn design(args: &DesignArgs) -> anyhow::Result<ExitCode> {
    let draw = args.plot.as_deref().map(|file| drawing(file).map(|draw| (file, draw))).transpose()?;
    let design = Design::read(&args.choices)?;
    let is_workflow = |path: &PathBuf| path.extension().is_some_and(|it| it == "json" || it == "toml");
    let workflows = args.works.iter().filter(|path| is_workflow(path)).count();
    let work: Box<dyn Work> = if workflows == args.works.len() {
        Box::new(Workflows::read(&args.works, args.hosts.cluster()?, args.hosts.cached)?)
    } else if workflows == 0 {
        exit::usage(!args.hosts.is_given(), || {
            "--cluster, --processors, --profile and --cached are of workflows; a trace has its machine"
                .to_owned()
        })?;
        Box::new(Traces::read(&args.works)?)
    } else {
        let why = "traces and workflows have no common time; give either".to_owned();
        return Err(exit::Usage(why).into());
    };
    design.check(work.as_ref())?;
    let machines = design.machines();
    design.remarks().for_each(|remark| cawl_console::tell(format_args!("cawl-lab: {remark}")));
    let times = run(&machines, work.as_ref())?;
    let points: Vec<_> =
        machines.iter().zip(&times).map(|(machine, times)| (machine.price(), args.by.of(times))).collect();
    let on_front = front(&points);
    let now = args.by.of(&work.now()).as_seconds();
    let rows = machines.iter().zip(&times).zip(0..).map(|((machine, times), at)| {
        let names = || machine.0.iter().map(|option| option.name.clone());
        let counts = args.by.of(times).as_seconds();
        Row {
            options: design.choices.iter().map(|choice| choice.name.clone()).zip(names()).collect(),
            price: machine.price(),
            times: times.into(),
            ratio: (now > 0.0).then(|| counts / now),
            calls_ratio: times.ratio.map(|ratio| ratio.value),
            calls_interval: times.ratio.map(|Ratio { interval: (low, high), .. }| [low, high]),
            front: on_front.contains(&at),
            names: names().collect::<Vec<_>>().join(", "),
            counts,
        }
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| a.price.total_cmp(&b.price).then(a.counts.total_cmp(&b.counts)));
    let answer = Answer {
        schema: SCHEMA,
        currency: design.currency.clone(),
        by: args.by.name(),
        traces: args.works.len() - workflows,
        workflows,
        now: (&work.now()).into(),
        observed_s: work.observed().map(|time| time.as_seconds()),
        machines: rows,
        choices: design.choices.iter().map(|choice| choice.name.clone()).collect(),
    };
    if let Some((file, draw)) = draw {
        let about = || format!("cannot write {}; name another file", file.display());
        output::write(file, output::FOR_ALL, draw(&answer.picture(now))?).with_context(about)?;
    }
    cawl_console::answer(args.json, &answer, |terminal| Ok(answer.text(args, terminal)))
}

/// A price: whole, or with two digits.
fn amount(price: f64) -> String {
    if price.fract().abs() < 0.005 { format!("{price:.0}") } else { format!("{price:.2}") }
}

type Draw = fn(&Picture) -> anyhow::Result<Vec<u8>>;

/// What draws into a file of this name.
fn drawing(file: &Path) -> anyhow::Result<Draw> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    let (kind, draw): (_, Draw) = match ending {
        Some("svg") => (&SVG, svg),
        Some("png") => (&PNG, png),
        _ => return Err(exit::Usage(format!("--plot {}: name a .svg or .png", file.display())).into()),
    };
    outputs::check(file, kind)?;
    Ok(draw)
}

impl Answer {
    fn works(&self) -> String {
        match self.workflows {
            0 => counted(self.traces as u64, "trace"),
            workflows => counted(workflows as u64, "workflow"),
        }
    }

    fn price(&self) -> String {
        if self.currency.is_empty() { "price".to_owned() } else { format!("price, {}", self.currency) }
    }

    fn picture(&self, now: f64) -> Picture {
        let point = |row: &Row| Point { price: row.price, seconds: row.counts, front: row.front };
        Picture {
            title: format!("{} of {}, by price", self.by, self.works()),
            price: self.price(),
            time: self.by,
            points: self.machines.iter().map(point).collect(),
            now,
        }
    }

    fn text(&self, args: &DesignArgs, terminal: bool) -> String {
        let mut out = String::new();
        let Seconds { calls_s, lost_s, elapsed_s } = self.now;
        let [calls, lost, elapsed] = [calls_s, lost_s, elapsed_s].map(time);
        let count = self.works();
        line(
            &mut out,
            "now",
            &format!("{count}: elapsed {elapsed}, in calls {calls}, lost {lost}"),
            terminal,
        );
        if let Some(observed) = self.observed_s {
            let off = (calls_s / observed - 1.0) * 100.0;
            let said = format!("{} in calls when traced; on paper {calls} ({off:+.0} %)", time(observed));
            line(&mut out, "observed", &said, terminal);
        }
        let on_front = self.machines.iter().filter(|row| row.front).count();
        let beaten = self.machines.len() - on_front;
        let hint = if args.all || beaten == 0 { "" } else { " (--all lists them)" };
        let machines = counted(self.machines.len() as u64, "machine");
        let said = format!("{machines}; {on_front} on the front by {}, {beaten} beaten{hint}", self.by);
        line(&mut out, "choices", &said, terminal);
        out.push('\n');
        let mut number = 0;
        let shown: Vec<&Row> = self.machines.iter().filter(|row| args.all || row.front).collect();
        let figures = shown.iter().map(|row| {
            number += usize::from(row.front);
            let ratio = match (args.by, row.ratio, row.calls_interval) {
                (By::Calls, Some(ratio), Some([low, high])) => {
                    format!("{ratio:.2} × ({low:.2} to {high:.2})")
                }
                (_, Some(ratio), _) => format!("{ratio:.2} ×"),
                _ => "-".to_owned(),
            };
            let Seconds { calls_s, lost_s, elapsed_s } = row.times;
            let first = if row.front { number.to_string() } else { String::new() };
            let [elapsed, calls, lost] = [elapsed_s, calls_s, lost_s].map(time);
            [first, amount(row.price), elapsed, calls, lost, ratio]
        });
        let price = self.price().to_uppercase();
        let lines = table(&["", &price, "ELAPSED", "IN CALLS", "LOST", "OF NOW"], [], figures);
        let width = lines.lines().map(columns).max().unwrap_or(0) + 2;
        let names = std::iter::once(self.choices.join(", ").to_uppercase());
        let names = names.chain(shown.iter().map(|row| row.names.clone()));
        for (at, (figures, names)) in lines.lines().zip(names).enumerate() {
            let pad = " ".repeat(width - columns(figures));
            let text = format!("{figures}{pad}{}", wrapped(&names, width));
            out.extend([&if at == 0 { bold(&text, terminal) } else { text }, "\n"]);
        }
        out
    }
}
