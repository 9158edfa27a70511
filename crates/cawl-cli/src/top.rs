//! The live screen: what happens to it, kept apart from how it looks and from the terminal.
//!
//! Threads wait for keys, pushes of the daemon and signals, and hand them over as [`Input`]s; [`App`] takes
//! them one after another and is all there is to know; [`view::draw`] draws it. Only this file touches the
//! terminal.

mod app;
mod feed;
mod graph;
#[cfg(test)]
mod tests;
mod theme;
mod view;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};

use anyhow::Context;
use cawl_client::protocol::{History, HistorySpan, Push, Request, Sort, Status, View};
use cawl_client::query;
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use nix::sys::signal::{Signal, raise};
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use app::{App, Effect};
use feed::Feed;
use theme::Theme;

/// Something that happened.
enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The daemon told something.
    Pushed(Box<Push>),
    /// The daemon cannot be heard; why.
    Lost(String),
    /// A signal came.
    Signal(i32),
    /// The terminal cannot be read any more.
    Closed(io::Error),
}

/// Shows the daemon at `path` until the user has seen enough; an update every `every` seconds.
pub fn run(path: &Path, every: f64, sort: Sort) -> anyhow::Result<ExitCode> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        anyhow::bail!("top needs a terminal; `cawl-cli watch` prints a line per interval to anywhere");
    }
    let term = std::env::var("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        anyhow::bail!(
            "top cannot draw on this terminal (TERM is `{term}`); set TERM, or use `cawl-cli watch`"
        );
    }
    let theme = Theme::of_environment(|name| std::env::var(name).ok());
    // That there is a daemon is seen before the screen is touched.
    let status: Status = query::ask(path, &Request::Status(View::default()))?;
    let mut app = App::new(status, sort);
    let span = HistorySpan { last_s: Some(every * app::KEPT as f64), points: Some(app::KEPT) };
    // A daemon that keeps no history is no less worth watching: the graph then begins empty.
    if let Ok(history) = query::ask::<History>(path, &Request::History(span)) {
        app.remember(&history);
    }

    let (send, inputs) = channel();
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGCONT])?;
    let handle = signals.handle();
    let to_app = send.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if to_app.send(Input::Signal(signal)).is_err() {
                return;
            }
        }
    });
    let feed = Feed::new(path, every, send.clone());
    feed.subscribe(sort);
    let mut screen = Screen::open()?;
    std::thread::spawn(move || read_keys(&send));

    let ended = loop {
        screen.draw(&app, theme)?;
        // The app's own sender lives in the feed, so there is always somebody who could send.
        let mut next = inputs.recv().ok();
        let mut ended = None;
        while let (Some(input), None) = (next, &ended) {
            let effect = match input {
                Input::Key(key) => app.key(key),
                Input::Pushed(push) => app.push(*push),
                Input::Lost(why) => app.lost(why),
                Input::Resized => Effect::None,
                Input::Signal(SIGCONT) => Effect::Redraw,
                Input::Signal(number) => Effect::Die(number),
                Input::Closed(error) => {
                    return Err(error).context("the terminal cannot be read any more");
                }
            };
            match effect {
                Effect::None => {}
                Effect::Subscribe(sort) => feed.subscribe(sort),
                Effect::Redraw => screen.again()?,
                Effect::Suspend => screen.suspend()?,
                Effect::Quit => ended = Some(None),
                Effect::Die(number) => ended = Some(Some(number)),
            }
            // All that has come is taken before the next drawing.
            next = inputs.try_recv().ok();
        }
        if let Some(ended) = ended {
            break ended;
        }
    };
    drop(screen);
    handle.close();
    if let Some(number) = ended {
        // Whoever sent it sees that it was heeded.
        signal_hook::low_level::emulate_default_handler(number)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands over keys until the terminal or the app is gone.
fn read_keys(send: &Sender<Input>) {
    loop {
        let input = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(error) => Input::Closed(error),
        };
        let is_last = matches!(input, Input::Closed(_));
        if send.send(input).is_err() || is_last {
            return;
        }
    }
}

/// The terminal while it is ours; it is given back as it was, however this ends.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn open() -> anyhow::Result<Screen> {
        // This also sees to it that a panic's message comes after the terminal was given back.
        let terminal =
            ratatui::try_init().context("the terminal cannot be prepared; use `cawl-cli watch`")?;
        Ok(Screen { terminal })
    }

    fn draw(&mut self, app: &App, theme: Theme) -> anyhow::Result<()> {
        self.terminal
            .draw(|frame| view::draw(app, theme, frame))
            .context("the terminal cannot be drawn to")?;
        Ok(())
    }

    /// Takes the terminal again after somebody else had it.
    fn again(&mut self) -> anyhow::Result<()> {
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        // As after a change of size everything is drawn again. `Terminal::clear` would ask the terminal where its
        // cursor is, and the answer would go to the thread that waits for keys.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())?;
        Ok(())
    }

    /// Stops this process, as Ctrl-Z does; returns when it is continued.
    fn suspend(&mut self) -> anyhow::Result<()> {
        ratatui::try_restore()?;
        self.terminal.show_cursor()?;
        raise(Signal::SIGTSTP)?;
        self.again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic this was done before its message was printed, and done twice it would print over that.
        if !std::thread::panicking() {
            // The terminal may be gone; then nobody needs it.
            drop(ratatui::try_restore());
        }
        drop(self.terminal.show_cursor());
    }
}
