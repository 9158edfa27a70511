//! The live screen: its state apart from its drawing and from the terminal.
//!
//! Threads wait for keys, the daemon's pushes and signals, and send them as [`Input`]s; [`App`] takes them in
//! order and is the whole state; [`view::draw`] draws it. Only this file touches the terminal.

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
use std::sync::Arc;
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

enum Input {
    Key(KeyEvent),
    Resized,
    Pushed(Box<Push>),
    /// The daemon cannot be reached, and why.
    Lost(String),
    Signal(i32),
    /// The terminal cannot be read.
    Closed(io::Error),
}

/// Shows the daemon at `path` until the user quits; an update every `every` seconds.
pub fn run(path: &Path, every: f64, sort: Sort) -> anyhow::Result<ExitCode> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        anyhow::bail!(
            "top needs a terminal; `cawl-cli status --watch` prints a line per interval to anywhere"
        );
    }
    let term = std::env::var("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        anyhow::bail!(
            "top cannot draw on this terminal (TERM is `{term}`); set TERM, or use `cawl-cli status --watch`"
        );
    }
    let theme = Theme::of_environment(|name| std::env::var(name).ok());
    // A missing daemon is reported before the screen changes.
    let status: Status = query::ask(path, &Request::Status(View::default()))?;
    let mut app = App::new(status, sort);
    let span = HistorySpan { last_s: Some(every * app::KEPT as f64), points: Some(app::KEPT) };
    // Without a history the graph begins empty.
    if let Ok(history) = query::ask::<History>(path, &Request::History(span)) {
        app.remember(history);
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
    let feed = Arc::new(Feed::new(path, every, send.clone()));
    feed.subscribe(sort);
    let mut screen = Screen::open()?;
    std::thread::spawn(move || read_keys(&send));

    let ended = loop {
        screen.draw(&app, theme)?;
        // The feed holds a sender, so the channel stays open.
        let mut next = inputs.recv().ok();
        let mut ended = None;
        while let (Some(input), None) = (next, &ended) {
            let effect = match input {
                Input::Key(key) => app.key(key),
                Input::Pushed(push) => app.push(*push),
                Input::Lost(why) => app.lost(why),
                Input::Resized => Effect::None,
                Input::Signal(SIGCONT) => Effect::Redraw,
                Input::Signal(number) => Effect::End(Some(number)),
                Input::Closed(error) => {
                    return Err(error).context("the terminal cannot be read any more");
                }
            };
            match effect {
                Effect::None => {}
                Effect::Subscribe(sort) => feed.subscribe(sort),
                Effect::Redraw => screen.again()?,
                Effect::Suspend => screen.suspend()?,
                Effect::End(by) => ended = Some(by),
            }
            // Takes all waiting inputs before the next drawing.
            next = inputs.try_recv().ok();
        }
        if let Some(ended) = ended {
            break ended;
        }
    };
    drop(screen);
    handle.close();
    if let Some(number) = ended {
        // Ends by the signal, so that its sender sees that.
        signal_hook::low_level::emulate_default_handler(number)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends keys until the terminal or the app is gone.
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

/// The terminal in raw mode; restored when dropped.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn open() -> anyhow::Result<Screen> {
        // Also restores the terminal before a panic's message is printed.
        let terminal =
            ratatui::try_init().context("the terminal cannot be prepared; use `cawl-cli status --watch`")?;
        Ok(Screen { terminal })
    }

    fn draw(&mut self, app: &App, theme: Theme) -> anyhow::Result<()> {
        self.terminal
            .draw(|frame| view::draw(app, theme, frame))
            .context("the terminal cannot be drawn to")?;
        Ok(())
    }

    /// Sets the terminal up again after a stop.
    fn again(&mut self) -> anyhow::Result<()> {
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        // Draws everything again, as after a resize. `Terminal::clear` would ask the terminal for its cursor,
        // and the thread that reads keys would get the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())?;
        Ok(())
    }

    /// Stops this process, as Ctrl-Z does; returns when it continues.
    fn suspend(&mut self) -> anyhow::Result<()> {
        ratatui::try_restore()?;
        self.terminal.show_cursor()?;
        raise(Signal::SIGTSTP)?;
        self.again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic the hook has restored it already; a second time would overwrite the message.
        if !std::thread::panicking() {
            // The terminal may be gone.
            drop(ratatui::try_restore());
        }
        drop(self.terminal.show_cursor());
    }
}
