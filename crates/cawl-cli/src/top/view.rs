//! Draws the screen.

use ratatui::Frame;
use ratatui::layout::Constraint::{Fill, Length, Min};
use ratatui::layout::{Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::border;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use cawl_client::protocol::Sort;

use super::app::{App, Keys, Snapshot, Tab};
use super::graph::Graph;
use super::theme::Theme;
use crate::render::causes::{largest, shares};
use crate::render::compact::{self, within};
use crate::render::rows::{COLUMNS, Row, cells, fitting, name_of, short_program, width_of};
use crate::render::watch::{regime, time_of_day};
use crate::render::{short, shown};

/// Smallest screen that holds everything.
pub const SMALLEST: (u16, u16) = (80, 24);

/// Width from which on tables have two causes, and devices.
const WIDE: u16 = 100;

pub fn draw(app: &App, theme: Theme, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return too_small(frame, area);
    }
    let facts = facts(app, theme);
    // The additional rows of a tall screen are shared, more of them for the tables.
    let graph = (6 + (area.height - SMALLEST.1) * 2 / 5).min(18);
    let middle = facts.len() as u16;
    let above = [1, 1, graph, middle, 1, 1, 1].map(Length);
    let rows = above.into_iter().chain([Min(1), Length(1)]);
    let [head, state, levels, middle, why, tab, header, table, foot] = Layout::vertical(rows).areas(area);
    two_ends(frame, head, title(app, theme));
    two_ends(frame, state, level(app, theme, state.width));
    let Snapshot { history, status, .. } = app.shown();
    frame.render_widget(Graph { history, status, zoom: app.zoom, theme }, levels);
    two_columns(frame, middle, facts);
    frame.render_widget(causes(app, theme, why.width), why);
    frame.render_widget(tabs(app, theme), tab);
    let columns = Columns::of(app, area.width);
    frame.render_widget(columns.header(app, theme), header);
    let rows = app.rows();
    let visible =
        rows.iter().skip(app.first.min(rows.len().saturating_sub(1))).take(usize::from(table.height));
    let lines: Vec<Line<'_>> = visible.map(|row| columns.row(row, theme)).collect();
    let text = if lines.is_empty() { Text::raw(nothing(app)) } else { Text::from(lines) };
    frame.render_widget(Paragraph::new(text), table);
    frame.render_widget(bottom(app, theme), foot);
    if app.keys == Keys::Help {
        help(frame, area, theme);
    }
}

fn too_small(frame: &mut Frame<'_>, area: Rect) {
    let text = format!(
        "This terminal is {}x{}; top needs {}x{}. Make it larger, or use `cawl-cli status --watch`. q quits.",
        area.width, area.height, SMALLEST.0, SMALLEST.1
    );
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}

/// Text at both ends of a line; the left one is cut where they meet.
fn two_ends(frame: &mut Frame<'_>, area: Rect, (left, right): (Line<'_>, Line<'_>)) {
    let width = (right.width() as u16).min(area.width);
    frame.render_widget(left, area);
    frame.render_widget(right, Rect { x: area.right() - width, width, ..area });
}

fn title(app: &App, theme: Theme) -> (Line<'_>, Line<'_>) {
    let status = &app.shown().status;
    let node = if status.node.is_empty() { "cawld".to_owned() } else { short(&shown(&status.node), 20) };
    let (model, mode) = (shown(&status.model), status.mode.name());
    let (profile, up) = (short(&shown(&status.profile), 14), compact::seconds(status.uptime_s));
    let about = format!(" by model {model} ({mode}), profile {profile}, up {up}");
    let flag = |text: &'static str| Span::styled(text, theme.warning().reversed());
    let flag = match (&app.trouble, app.is_paused()) {
        (Some(_), _) => flag(" NO DAEMON "),
        (None, true) => flag(" PAUSED "),
        (None, false) => Span::raw(""),
    };
    let clock = Span::raw(format!(" {} UTC", time_of_day(status.time_s)));
    (vec![node.bold(), Span::raw(about)].into(), vec![flag, clock].into())
}

fn level(app: &App, theme: Theme, width: u16) -> (Line<'_>, Line<'_>) {
    let status = &app.shown().status;
    let style = theme.regime(status.state).bold().reversed();
    let state = Span::styled(format!(" {} ", regime(status.state).to_uppercase()), style);
    let dirty = |bytes: u64| if bytes == 0 { "0 B".to_owned() } else { compact::bytes(bytes) };
    let sampled = status.sampled_dirty_bytes.map_or("unknown".to_owned(), dirty);
    let mut text = format!(" dirty {} modelled, {sampled} sampled", dirty(status.modelled_dirty_bytes));
    if status.hard_bytes > 0 {
        let part = status.modelled_dirty_bytes as f64 / status.hard_bytes as f64;
        text += &format!(", {} of hard", compact::percent(part));
    }
    let mut key = Vec::new();
    if width >= WIDE {
        key = vec![
            Span::styled(theme.sign("█", "#"), theme.regime(status.state)),
            Span::raw(" modelled  "),
            Span::styled(theme.sign("•", "o"), theme.fg(Color::Cyan)),
            Span::raw(" sampled "),
        ];
    }
    (vec![state, Span::raw(text)].into(), key.into())
}

type Fact = (&'static str, String, Style);

/// Pairs of facts, for two columns.
fn facts(app: &App, theme: Theme) -> Vec<[Fact; 2]> {
    let shown = app.shown();
    let status = &shown.status;
    let plain = Style::new();
    let warn_if = |condition: bool| if condition { theme.warning() } else { plain };
    let rate = compact::rate_or_zero;
    let percent = |part: Option<f64>| part.map_or("-".to_owned(), compact::percent);
    let forecast = status.forecast.unwrap_or_default();
    let or_unknown = |text: String| if status.forecast.is_some() { text } else { "-".to_owned() };
    let is_soon = status.forecast.and_then(|next| next.throttle_s).is_some_and(|seconds| seconds < 10.0);
    let dirtying = format!("{} + {} untraced", rate(status.dirtying_rate), rate(status.untraced_rate));
    let modelled = status.writeback_rate.map_or("none".to_owned(), rate);
    let writeback = match status.sampled_writeback_rate {
        Some(sampled) => format!("{modelled}, kernel's {}", rate(sampled)),
        None => modelled,
    };
    let lost = shown.in_calls.map_or("-".to_owned(), |(observed, lost)| {
        format!("{} s/s of {} in calls", per_second(lost), per_second(observed))
    });
    let is_losing = shown.in_calls.is_some_and(|(_, lost)| lost > 0.005);
    // The kernel's own throttling, independent of the model.
    let paused = shown.paused.map(|paused| format!(", paused {} s/s", per_second(paused)));
    let let_through =
        status.throttled_rate.map_or("everything".to_owned(), rate) + &paused.unwrap_or_default();
    let is_paused = shown.paused.is_some_and(|paused| paused > 0.005);
    let cpu = status.sampler.cpu_fraction * 100.0;
    let sampler = format!("{cpu:.2} % CPU, I/O stall {}", percent(status.sampler.pressure));
    let clean = match forecast.clean_s {
        None => "not within 1 h".to_owned(),
        seconds => format!("{}, if writing stops", within(seconds)),
    };
    let error = format!("{} total, {} windowed", percent(status.error.total), percent(status.error.windowed));
    let clients = format!("{}, {} drops", status.clients, status.drops);
    let (flush, throttle) = (within(forecast.background_s), within(forecast.throttle_s));
    vec![
        [("dirtying", dirtying, plain), ("flush", or_unknown(flush), plain)],
        [("writeback", writeback, plain), ("throttle", or_unknown(throttle), warn_if(is_soon))],
        [("let thru", let_through, warn_if(is_paused)), ("clean", or_unknown(clean), plain)],
        [("lost", lost, warn_if(is_losing)), ("error", error, plain)],
        [("clients", clients, warn_if(status.drops > 0)), ("sampler", sampler, plain)],
    ]
}

/// Seconds per second: many programs can spend tens, which must fit into half of 80 columns.
fn per_second(time: f64) -> String {
    if time < 9.995 { format!("{time:.2}") } else { format!("{time:.0}") }
}

/// The causes of the time in calls over the latest seconds: a bar of their shares, and the largest by name.
fn causes(app: &App, theme: Theme, width: u16) -> Line<'static> {
    let mut spans = vec![Span::raw(format!("{:<10}", "causes")).bold()];
    let Some((span, seconds)) = app.shown().causes.filter(|(_, seconds)| seconds.total() > 0.0) else {
        spans.push(Span::raw("-"));
        return Line::from(spans);
    };
    let (bar, end) = (usize::from(width) / 4, " s/s");
    let (mut full, mut shown) = (0.0, 0);
    let sorted = largest(&seconds, usize::MAX);
    for (cause, part) in &sorted {
        full += part / seconds.total() * bar as f64;
        let cells = (full.round() as usize).saturating_sub(shown);
        shown += cells;
        // Without colours the initials are told.
        let sign = if theme.colour { theme.sign("█", "#") } else { &cause.name()[..1] };
        spans.push(Span::styled(sign.repeat(cells), theme.cause(*cause)));
    }
    let mut left = usize::from(width).saturating_sub(10 + bar + end.len());
    for (at, (cause, part)) in sorted.iter().enumerate() {
        let (comma, rate) = (if at == 0 { " " } else { ", " }, per_second(part / span));
        let taken = comma.len() + cause.name().len() + 1 + rate.len();
        if taken > left || (at > 0 && part / span < 0.005) {
            break;
        }
        left -= taken;
        spans.push(Span::raw(comma));
        spans.push(Span::styled(cause.name(), theme.cause(*cause)));
        spans.push(Span::raw(format!(" {rate}")));
    }
    spans.push(Span::raw(end));
    Line::from(spans)
}

fn two_columns(frame: &mut Frame<'_>, area: Rect, facts: Vec<[Fact; 2]>) {
    let halves: [Rect; 2] = Layout::horizontal([Fill(1), Fill(1)]).spacing(1).areas(area);
    for (y, pair) in (0..).zip(facts) {
        for ((label, text, style), half) in pair.into_iter().zip(halves) {
            let line = Line::from(vec![format!("{label:<10}").bold(), Span::styled(text, style)]);
            frame.render_widget(line, Rect { y: half.y + y, height: 1, ..half });
        }
    }
}

fn tabs(app: &App, theme: Theme) -> Line<'_> {
    let shown = app.shown();
    let tab = |tab: Tab, name: &str| {
        let count = shown.tables[tab as usize].len() as u64 + shown.omitted[tab as usize];
        let span = Span::raw(format!(" {name} {count} "));
        if app.tab == tab { span.bold().reversed() } else { span }
    };
    let mut spans = vec![tab(Tab::Programs, "Programs"), Span::raw(" "), tab(Tab::Files, "Files")];
    spans.push(Span::raw(format!("  by {}", order(app.sort))));
    if !app.filter.is_empty() {
        let filter = format!("  only `{}`: {}", app.filter, app.rows().len());
        spans.push(Span::styled(filter, theme.warning()));
    }
    if app.first > 0 {
        spans.push(Span::raw(format!("  from row {}", app.first + 1)));
    }
    Line::from(spans)
}

fn order(sort: Sort) -> String {
    match sort {
        Sort::Lost => "time lost".to_owned(),
        other => name_of(other).to_owned(),
    }
}

fn nothing(app: &App) -> &'static str {
    match (app.filter.is_empty(), app.tab) {
        (false, _) => "nothing passes the filter; / and Esc clear it",
        (true, Tab::Programs) => "no traced program is connected: start one with `cawl-cli run --socket`",
        (true, Tab::Files) => "no traced program has written to a file",
    }
}

struct Columns {
    tab: Tab,
    /// The [`COLUMNS`] shown.
    figures: Vec<usize>,
    /// Number of causes, and their width.
    causes: (usize, usize),
    /// Width of the pid or device; None: not shown.
    of: Option<usize>,
    name: usize,
}

impl Columns {
    /// Names are not shortened below this for further figures.
    const NAME: usize = 18;

    fn of(app: &App, width: u16) -> Columns {
        let (is_wide, width) = (width >= WIDE, usize::from(width));
        let of = match app.tab {
            Tab::Programs => Some(7),
            Tab::Files => is_wide.then_some(9),
        };
        let causes = if is_wide { (2, 38) } else { (1, 23) };
        let others = causes.1 + 1 + of.map_or(0, |of| of + 1);
        let figures = fitting(app.sort, width.saturating_sub(others + Columns::NAME), 1);
        let taken = others + figures.iter().map(|at| width_of(*at) + 1).sum::<usize>();
        Columns { tab: app.tab, figures, causes, of, name: width.saturating_sub(taken) }
    }

    fn header(&self, app: &App, theme: Theme) -> Line<'static> {
        let mut spans = Vec::new();
        for at in &self.figures {
            let name = COLUMNS[*at];
            let is_sorted = name_of(app.sort).eq_ignore_ascii_case(name);
            let style = if is_sorted { theme.label().bold().underlined() } else { theme.label() };
            let blanks = " ".repeat(width_of(*at) - name.len());
            spans.extend([Span::raw(blanks), Span::styled(name, style), Span::raw(" ")]);
        }
        let (of, name) = match self.tab {
            Tab::Programs => ("PID", "PROGRAM"),
            Tab::Files => ("DEVICE", "FILE"),
        };
        let (most, width) = self.causes;
        let causes = if most == 1 { "MAIN CAUSE" } else { "CAUSES" };
        spans.push(Span::styled(format!("{causes:<width$} "), theme.label()));
        if let Some(width) = self.of {
            spans.push(Span::styled(format!("{of:>width$} "), theme.label()));
        }
        spans.push(Span::styled(name, theme.label()));
        Line::from(spans)
    }

    fn row(&self, row: &Row, theme: Theme) -> Line<'static> {
        // Names are shown as they are; our own signs are replaced by ASCII.
        let drawn =
            |text: String| if theme.unicode { text } else { text.replace('µ', "u").replace('…', "~") };
        let cells = cells(row);
        let figure = |at: &usize| format!("{:>width$} ", cells[*at], width = width_of(*at));
        let (most, width) = self.causes;
        let main = largest(&row.causes, 1).first().map_or_else(Style::new, |(cause, _)| theme.cause(*cause));
        let causes = format!("{:<width$} ", shares(&row.causes, most));
        let mut name = self.of.map_or(String::new(), |width| format!("{:>width$} ", short(&row.of, width)));
        name += &match self.tab {
            Tab::Programs => short_program(&row.name, self.name),
            Tab::Files => short(&row.name, self.name),
        };
        let figures = drawn(self.figures.iter().map(figure).collect());
        Line::from(vec![Span::raw(figures), Span::styled(causes, main), Span::raw(drawn(name))])
    }
}

fn bottom(app: &App, theme: Theme) -> Line<'_> {
    if app.keys == Keys::Filter {
        return Line::from(vec![
            "filter: ".bold(),
            Span::raw(app.filter.as_str()),
            " ".reversed(),
            Span::raw("  Enter keeps it, Esc clears it"),
        ]);
    }
    if let Some(trouble) = &app.trouble {
        return Line::styled(format!("trying again: {}", shown(trouble)), theme.warning());
    }
    if let Some(note) = &app.note {
        return Line::styled(note.as_str(), theme.warning());
    }
    let keys = [
        ("Tab", if app.tab == Tab::Programs { "files" } else { "programs" }),
        ("s", "sort"),
        ("/", "filter"),
        ("p", if app.is_paused() { "go on" } else { "pause" }),
        ("z", if app.zoom { "limits" } else { "zoom" }),
        ("?", "help"),
        ("q", "quit"),
    ];
    Line::from_iter(keys.into_iter().flat_map(|(key, does)| [key.bold(), Span::raw(format!(" {does}   "))]))
}

const HELP: &str = "\
Tab        programs or files          s, S   next or previous order
/          only names that contain…   p, space   pause, go on
Up, Down, PgUp, PgDn, Home, End       move through the table
z          the graph up to its highest level, or to the hard limit
Ctrl-L     draw again                 q, Esc, Ctrl-C   quit

Bars: dirty bytes as modelled, the latest on the right. Dots: as the
kernel counts them. Lines: above `flush` the kernel writes back, above
`throttle` it slows writers down, to stay below `hard`.
flush, throttle: time until then at the present rate of writing.
lost: seconds that traced programs lose each second.
causes: what the time in calls went into, over the latest 3 s.
error: of predictions made before the call was seen, latest 60 s.
LOST: time in calls (OBSERVED) above what they take undisturbed.
THROTTLED: paused by the kernel. SYNC: of calls that waited for the
device. MAIN CAUSE: what took most of the OBSERVED time. PREDICTED:
the model's prediction of it.

Any key closes this.";

fn help(frame: &mut Frame<'_>, area: Rect, theme: Theme) {
    let text = if theme.unicode { HELP.to_owned() } else { HELP.replace('…', "...") };
    let width = 2 + HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 2;
    let height = 2 + HELP.lines().count() as u16;
    let (width, height) = (width.min(area.width), height.min(area.height));
    let at = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let ascii = border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    };
    let block =
        Block::bordered().border_set(if theme.unicode { border::PLAIN } else { ascii }).title(" Help ");
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(text).block(block), at);
}
