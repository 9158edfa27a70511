//! Keys and pushes in, screens out.

use cawl_client::protocol::{
    CauseSeconds, Cost, ErrorStatus, FileStatus, Files, Forecast, History, HistoryPoint, ProcessStatus,
    Processes, Push, Sort, Status,
};
use cawl_core::{Cause, CauseTimes, Regime};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::app::{App, Effect, KEPT, Tab};
use super::theme::Theme;
use super::view;

const ALL: Theme = Theme { colour: true, unicode: true };
const PLAIN: Theme = Theme { colour: false, unicode: false };

fn status(uptime: f64, state: Regime, modelled_mib: u64) -> Status {
    let cost = Cost { observed_s: uptime * 0.75, lost_s: uptime * 0.5, ..Cost::default() };
    Status {
        node: "vm1".to_owned(),
        time_s: 1_700_000_000.0 + uptime,
        model: "kernel".to_owned(),
        profile: "lab".to_owned(),
        state,
        modelled_dirty_bytes: modelled_mib << 20,
        sampled_dirty_bytes: Some((modelled_mib << 20) * 9 / 10),
        background_bytes: 32 << 20,
        freerun_bytes: 80 << 20,
        hard_bytes: 128 << 20,
        writeback_rate: Some(98.7e6),
        sampled_writeback_rate: Some(97.6e6),
        throttled_rate: (state == Regime::Throttle).then_some(98e6),
        dirtying_rate: 123.4e6,
        untraced_rate: 1.5e6,
        error: ErrorStatus { total: Some(0.042), windowed: Some(0.081), dirty: Some(0.01), calls: 1234 },
        forecast: Some(Forecast {
            rate: 125e6,
            background_s: Some(0.0),
            throttle_s: Some(2.5),
            clean_s: Some(1.23),
            ..Forecast::default()
        }),
        clients: 2,
        uptime_s: uptime,
        cost,
        ..Status::default()
    }
}

fn process(pid: u32, program: &str, throttled_s: f64, sync_s: f64, bytes: u64) -> ProcessStatus {
    let cost = Cost {
        observed_s: 20.0,
        predicted_s: 19.0,
        throttled_s,
        sync_s,
        lost_s: throttled_s + sync_s,
        rate: 5e6,
    };
    let times = CauseTimes::from([(Cause::ColdMemory, 44), (Cause::Call, 33), (Cause::Copy, 23)]);
    let causes_s = CauseSeconds::from(&times);
    ProcessStatus { pid, program: program.to_owned(), calls: 1000, bytes, cost, causes_s }
}

fn file(path: &str, throttled_s: f64, bytes: u64) -> FileStatus {
    let cost = Cost { throttled_s, lost_s: throttled_s, ..Cost::default() };
    FileStatus { path: path.to_owned(), device: "254:1".to_owned(), bytes, cost, ..FileStatus::default() }
}

fn busy() -> Status {
    status(1.0, Regime::Throttle, 96)
}

/// A screen after some pushes.
fn app() -> App {
    let mut app = App::new(status(10.0, Regime::Free, 10), Sort::Lost);
    for (n, (state, level)) in
        [(Regime::Free, 20), (Regime::Flush, 50), (Regime::Throttle, 96)].into_iter().enumerate()
    {
        app.push(Push::Status(Box::new(status(11.0 + n as f64, state, level))));
    }
    let processes = vec![
        process(100, "dd", 1.0, 0.0, 9 << 30),
        process(4_194_304, "/usr/bin/postgres", 2.0, 5.0, 1 << 20),
        process(102, "tar", 0.5, 0.0, 1 << 30),
    ];
    app.push(Push::Processes(Processes { schema: 1, omitted: 4, more: 4, processes }));
    let files = vec![file("/var/lib/pg/wal/000000010000000000000001", 2.0, 5), file("/tmp/out", 1.0, 9)];
    app.push(Push::Files(Files { schema: 1, omitted: 0, more: 0, files }));
    app
}

fn press(app: &mut App, code: KeyCode) -> Effect {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_in(app: &mut App, text: &str) {
    for c in text.chars() {
        assert_eq!(press(app, KeyCode::Char(c)), Effect::None);
    }
}

/// The lines of the screen, and every colour on it.
fn screen(app: &App, theme: Theme, width: u16, height: u16) -> (Vec<String>, Vec<Color>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(app, theme, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    let colours = buffer.content.iter().flat_map(|cell| [cell.fg, cell.bg]).collect();
    (lines, colours)
}

fn shown(app: &App) -> String {
    screen(app, ALL, 80, 24).0.join("\n")
}

/// The first line that has this text.
fn line<'a>(lines: &'a [String], text: &str) -> &'a str {
    lines.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("no `{text}` in {lines:#?}"))
}

#[test]
fn eighty_by_twenty_four() {
    let (lines, _) = screen(&app(), ALL, 80, 24);
    assert_eq!(lines[0], "vm1 by model kernel (lockstep), profile lab, up 13 s                22:13:33 UTC");
    assert!(
        lines[1].starts_with(" THROTTLE  dirty 96 MiB modelled, 86.4 MiB sampled, 75 % of hard"),
        "{lines:#?}"
    );
    for (name, row) in [("◂ hard 128 MiB", 2), ("◂ throttle 80 MiB", 4), ("◂ flush 32 MiB", 6)] {
        assert!(lines[row].ends_with(name), "{name} is not in row {row}: {lines:#?}");
    }
    // The latest level is rightmost: above `throttle`, below `hard`, the sample a little lower.
    assert_eq!(lines[7].chars().nth(59), Some('█'), "{lines:#?}");
    for told in [
        "dirtying  123 MB/s + 1.5 MB/s untraced",
        "writeback 98.7 MB/s, kernel's 97.6 MB/s",
        "let thru  98 MB/s",
        "lost      0.50 s/s of 0.75 in calls",
        "clients   2, 0 drops",
        "flush     now",
        "throttle  in 2.5 s",
        "clean     in 1.23 s, if writing stops",
        "error     4.2 % total, 8.1 % windowed",
        " Programs 7   Files 2   by time lost",
        "    LOST OBSERVED      RATE MAIN CAUSE                  PID PROGRAM",
        "     7 s     20 s    5 MB/s cold memory 44 %        4194304 /usr/bin/postgres",
    ] {
        line(&lines, told);
    }
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("postgres") < at(" dd") && at(" dd") < at(" tar"), "{lines:#?}");
    assert!(
        lines[23].starts_with("Tab files   s sort   / filter   p pause   z zoom   ? help   q quit"),
        "{lines:#?}"
    );
}

/// The kernel's pauses are shown whatever the model predicts, and as a rate over several readings.
#[test]
fn pauses_of_the_kernel() {
    let mut app = app();
    let mut tell = |uptime: f64, paused: Option<f64>| {
        let mut free = status(uptime, Regime::Free, 1);
        free.sampler.paused_s = paused;
        app.push(Push::Status(Box::new(free)));
        let (lines, _) = screen(&app, PLAIN, 80, 24);
        line(&lines, "let thru").to_owned()
    };
    assert!(!tell(20.0, None).contains("paused"), "unknown");
    assert!(!tell(21.0, Some(5.0)).contains("paused"), "since when is not known");
    tell(21.5, Some(8.0));
    assert!(tell(23.0, Some(9.0)).contains("everything, paused 2.00 s/s"));
    assert!(tell(24.0, Some(9.0)).contains("paused 2.00 s/s"), "the next reading is to come");
    assert!(tell(25.0, Some(9.0)).contains("paused 0.00 s/s"));
    assert!(!tell(1.0, Some(0.5)).contains("paused"), "another daemon");
}

/// The largest figures are not cut off.
#[test]
fn large_figures_fit_into_eighty_columns() {
    let mut app = app();
    let cost = Cost { observed_s: 2e4, lost_s: 1e4, ..Cost::default() };
    let mut extreme = status(20.0, Regime::Throttle, 96);
    (extreme.dirtying_rate, extreme.untraced_rate) = (999.4e6, 999.4e6);
    (extreme.writeback_rate, extreme.sampled_writeback_rate) = (Some(999.4e6), Some(999.4e6));
    extreme.error = ErrorStatus { total: Some(99.9), windowed: Some(99.9), ..ErrorStatus::default() };
    extreme.sampler.cpu_fraction = 0.9999;
    extreme.sampler.pressure = Some(1.0);
    (extreme.clients, extreme.drops) = (999_999, 999_999_999_999);
    extreme.throttled_rate = None;
    extreme.sampler.paused_s = Some(0.0);
    app.push(Push::Status(Box::new(extreme.clone())));
    extreme.sampler.paused_s = Some(1e5);
    extreme.uptime_s += 100.0;
    extreme.cost = cost;
    app.push(Push::Status(Box::new(extreme)));
    let (lines, _) = screen(&app, PLAIN, 80, 24);
    for whole in [
        "999 MB/s + 999 MB/s untraced ",
        "999 MB/s, kernel's 999 MB/s ",
        " s/s of 200 in calls ",
        "999999999999 drops ",
        "99.99 % CPU, I/O stall 100 %",
        "let thru  everything, paused 1000 s/s ",
    ] {
        assert!(lines.iter().any(|line| line.contains(whole)), "`{whole}` is not in {lines:#?}");
    }
}

#[test]
fn a_larger_screen_shows_more() {
    let (lines, _) = screen(&app(), ALL, 120, 40);
    line(&lines, "█ modelled  • sampled");
    line(
        &lines,
        "OBSERVED PREDICTED     BYTES      RATE CAUSES                                     PID PROGRAM",
    );
    line(&lines, " cold memory 44 %, call 33 %            4194304 /usr/bin/postgres");
    let levels = lines.iter().filter(|line| line.contains('█') || line.contains('┄')).count();
    assert!(levels >= 9, "{lines:#?}");
}

#[test]
fn without_colours_and_signs() {
    let (lines, colours) = screen(&app(), PLAIN, 80, 24);
    assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
    assert!(colours.iter().all(|colour| *colour == Color::Reset), "colours were used");
    line(&lines, "< throttle 80 MiB");
    assert!(screen(&app(), ALL, 80, 24).1.contains(&Color::Red), "the test sees colours");
}

#[test]
fn a_screen_too_small_says_so() {
    for (width, height) in [(79, 24), (80, 23), (20, 5)] {
        let text = screen(&app(), ALL, width, height).0.join(" ");
        assert!(text.contains("needs") && !text.contains("OBSERVED"), "{text}");
    }
    // An empty screen does not panic.
    screen(&app(), ALL, 1, 1);
}

#[test]
fn tab_and_sort() {
    let mut app = app();
    press(&mut app, KeyCode::Tab);
    assert_eq!(app.tab, Tab::Files);
    let text = shown(&app);
    assert!(
        text.contains("…10000000000000001") && text.contains("OBSERVED     BYTES      RATE MAIN CAUSE"),
        "{text}"
    );
    for (_, expected) in (0..4).zip([Sort::Throttled, Sort::Sync, Sort::Observed, Sort::Bytes]) {
        assert_eq!(press(&mut app, KeyCode::Char('s')), Effect::Subscribe(expected));
    }
    assert_eq!(app.rows()[0].name, "/tmp/out");
    assert_eq!(press(&mut app, KeyCode::Char('S')), Effect::Subscribe(Sort::Observed));
    for _ in 0..4 {
        press(&mut app, KeyCode::Char('s'));
    }
    assert_eq!(app.sort, Sort::Lost, "the orders go round");
}

#[test]
fn filter() {
    let mut app = app();
    press(&mut app, KeyCode::Char('/'));
    // Outside the filter these keys are commands.
    type_in(&mut app, "POSTq");
    assert!(
        shown(&app).contains("filter: POSTq") && shown(&app).contains("nothing passes"),
        "{}",
        shown(&app)
    );
    press(&mut app, KeyCode::Backspace);
    assert_eq!(app.rows().len(), 1);
    press(&mut app, KeyCode::Enter);
    assert!(shown(&app).contains("only `POST`: 1") && !shown(&app).contains(" tar"), "{}", shown(&app));
    press(&mut app, KeyCode::Char('/'));
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::None, "leaves the filter, not the program");
    assert_eq!(app.rows().len(), 3);
    press(&mut app, KeyCode::Char('/'));
    type_in(&mut app, "102");
    assert_eq!(app.rows()[0].name, "tar", "a pid counts as well");
}

#[test]
fn pause() {
    let mut app = app();
    press(&mut app, KeyCode::Char('p'));
    app.push(Push::Status(Box::new(status(20.0, Regime::Free, 1))));
    assert!(shown(&app).contains("PAUSED") && shown(&app).contains("96 MiB modelled"), "{}", shown(&app));
    press(&mut app, KeyCode::Char(' '));
    assert!(!shown(&app).contains("PAUSED") && shown(&app).contains("1 MiB modelled"), "{}", shown(&app));
}

#[test]
fn zoom() {
    let low = |n: u64| Push::Status(Box::new(status(20.0 + n as f64, Regime::Free, n)));
    let mut app = App::new(status(19.0, Regime::Free, 1), Sort::Lost);
    for n in [4, 7, 10] {
        app.push(low(n));
    }
    let levels = |app: &App| screen(app, PLAIN, 80, 24).0[2..8].to_vec();
    let bars = |lines: &[String]| lines.iter().filter(|line| line.contains('#')).count();
    let whole = levels(&app);
    assert!(bars(&whole) <= 1 && whole[0].ends_with("hard 128 MiB"), "{whole:#?}");
    press(&mut app, KeyCode::Char('z'));
    let zoomed = levels(&app);
    assert!(bars(&zoomed) >= 4 && zoomed[0].ends_with("up to 10.5 MiB"), "{zoomed:#?}");
    press(&mut app, KeyCode::Char('z'));
    assert_eq!(levels(&app), whole);
}

#[test]
fn a_long_title_leaves_room_for_what_matters() {
    let mut app = App::new(Status { node: "n".repeat(90), profile: "p".repeat(90), ..busy() }, Sort::Lost);
    app.lost("gone".to_owned());
    let title = screen(&app, ALL, 80, 24).0[0].clone();
    assert!(title.ends_with(" NO DAEMON  22:13:21 UTC"), "{title}");
}

#[test]
fn help() {
    let mut app = app();
    press(&mut app, KeyCode::Char('?'));
    let (lines, _) = screen(&app, PLAIN, 80, 24);
    assert!(line(&lines, "Ctrl-L").contains("draw again"));
    line(&lines, "Any key closes this.");
    assert_eq!(press(&mut app, KeyCode::Char('q')), Effect::None);
    assert!(!shown(&app).contains("Any key"));
}

#[test]
fn leaving() {
    for code in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(press(&mut app(), code), Effect::End(None));
    }
    let mut app = app();
    press(&mut app, KeyCode::Char('/'));
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(app.key(control('c')), Effect::End(None));
    assert_eq!(app.key(control('z')), Effect::Suspend);
    assert_eq!(app.filter, "", "control keys are no text");
}

#[test]
fn a_daemon_that_goes_and_comes() {
    let mut app = app();
    app.lost("the daemon at /s hung up".to_owned());
    let text = shown(&app);
    assert!(text.contains("NO DAEMON") && text.contains("trying again: the daemon at /s hung up"), "{text}");
    // The known data stay on the screen; the new daemon counts from zero.
    assert!(text.contains("96 MiB modelled"));
    app.push(Push::Status(Box::new(status(0.5, Regime::Free, 3))));
    let text = shown(&app);
    assert!(text.contains("connected again at 22:13:20 UTC") && !text.contains("NO DAEMON"), "{text}");
    assert!(text.contains("lost      -"), "{text}");
    press(&mut app, KeyCode::Down);
    assert!(!shown(&app).contains("connected again"));
}

#[test]
fn moving_through_a_long_table() {
    let mut app = app();
    let processes =
        (0..100).map(|n| process(n, &format!("program{n:02}"), f64::from(100 - n), 0.0, 1)).collect();
    app.push(Push::Processes(Processes { schema: 1, omitted: 0, more: 0, processes }));
    assert!(shown(&app).contains("program00"));
    press(&mut app, KeyCode::PageDown);
    press(&mut app, KeyCode::Down);
    assert!(shown(&app).contains("program11") && !shown(&app).contains("program10"), "{}", shown(&app));
    press(&mut app, KeyCode::End);
    assert!(shown(&app).contains("program99"));
    press(&mut app, KeyCode::Down);
    assert!(shown(&app).contains("program99"), "the last row stays in sight");
    press(&mut app, KeyCode::Home);
    press(&mut app, KeyCode::Up);
    assert!(shown(&app).contains("program00"));
    // Fewer rows than the cursor has passed.
    press(&mut app, KeyCode::End);
    app.push(Push::Processes(Processes::default()));
    assert!(shown(&app).contains("no traced program is connected"), "{}", shown(&app));
}

#[test]
fn the_past_is_bounded_and_shown() {
    let mut app = app();
    let point = |n: u64| HistoryPoint {
        modelled_dirty_bytes: n << 20,
        state: Regime::Flush,
        ..HistoryPoint::default()
    };
    app.remember(History { schema: 1, points: (0..2 * KEPT as u64).map(point).collect() });
    assert_eq!(app.shown().history.len(), KEPT);
    app.push(Push::Status(Box::new(status(14.0, Regime::Free, 3))));
    assert_eq!(app.shown().history.len(), KEPT);
    assert_eq!(app.shown().history.back().map(|point| point.modelled_dirty_bytes), Some(3 << 20));
    // Levels far above the limits stretch the graph.
    assert!(screen(&app, PLAIN, 80, 24).0[3].contains('#'));
}

#[test]
fn a_daemon_that_knows_little_is_shown() {
    let app = App::new(Status::default(), Sort::Lost);
    for theme in [ALL, PLAIN] {
        let text = screen(&app, theme, 80, 24).0.join("\n");
        assert!(text.contains("unknown sampled") && !text.contains("NaN"), "{text}");
    }
}
