//! The terminal's abilities.

use cawl_core::{Cause, Regime};
use ratatui::style::{Color, Style};

/// Only the eight colours that every colour terminal has are used, and everything they say is also said in
/// letters or signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    pub colour: bool,
    /// Characters beyond ASCII can be shown.
    pub unicode: bool,
}

impl Theme {
    /// From NO_COLOR (no-color.org), TERM and the locale.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Theme {
        let filled = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(filled).unwrap_or_default();
        let locale = locale.to_lowercase();
        let term = variable("TERM").unwrap_or_default();
        // The console's font lacks most of the signs in any locale.
        let unicode = (locale.contains("utf-8") || locale.contains("utf8")) && term != "linux";
        let colour = filled("NO_COLOR").is_none() && !term.starts_with("vt1") && !term.ends_with("-m");
        Theme { colour, unicode }
    }

    /// The first sign if the terminal can show it, else the second.
    pub fn sign(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }

    /// In this colour if the terminal has colours.
    pub fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub fn regime(self, regime: Regime) -> Style {
        self.fg(match regime {
            Regime::Free => Color::Green,
            Regime::Flush => Color::Yellow,
            Regime::Throttle => Color::Red,
        })
    }

    pub fn cause(self, cause: Cause) -> Style {
        self.fg(match cause {
            Cause::Throttle => Color::Red,
            Cause::Unexpected => Color::Cyan,
            Cause::Lock | Cause::Preempted => Color::Blue,
            Cause::ColdMemory | Cause::FlusherBeside => Color::Yellow,
            cause if cause.is_device() => Color::Magenta,
            _ => Color::Green,
        })
    }

    pub fn warning(self) -> Style {
        self.fg(Color::Red).bold()
    }

    pub fn label(self) -> Style {
        self.fg(Color::Cyan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Theme {
        Theme::of_environment(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn terminals() {
        let all = Theme { colour: true, unicode: true };
        assert_eq!(of(&[("TERM", "xterm"), ("LANG", "en_US.UTF-8")]), all);
        assert_eq!(of(&[("TERM", "screen"), ("LC_ALL", "C.utf8"), ("LANG", "C")]), all);
        assert_eq!(
            of(&[("TERM", "xterm"), ("LC_ALL", "C"), ("LANG", "C.UTF-8")]),
            Theme { unicode: false, ..all }
        );
        assert_eq!(of(&[("TERM", "linux"), ("LANG", "C.UTF-8")]), Theme { unicode: false, ..all });
        assert_eq!(
            of(&[("TERM", "xterm"), ("LANG", "C.UTF-8"), ("NO_COLOR", "1")]),
            Theme { colour: false, ..all }
        );
        assert_eq!(of(&[("TERM", "xterm"), ("LANG", "C.UTF-8"), ("NO_COLOR", "")]), all);
    }
}
