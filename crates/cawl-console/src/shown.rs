//! Makes text safe for a terminal.
//!
//! The law: **no name controls the terminal or imitates a line of ours.** Names of programs, files and
//! profiles are arbitrary, and a trace may come from anywhere. Names go through [`shown`] when they are put
//! into a text, and whole texts through [`page`] before output.

use std::borrow::Cow;

/// The escape sequences of [`crate::bold`] and [`crate::warn`].
pub const BOLD: &str = "\x1b[1m";
pub const YELLOW: &str = "\x1b[33m";
pub const PLAIN: &str = "\x1b[0m";

/// A name in one line; characters that control the terminal or the direction of text, or that are not seen,
/// are escaped.
pub fn shown(name: &str) -> Cow<'_, str> {
    escaped(name, |_, _| 0)
}

/// A text of lines, with our own emphasis if it goes to a terminal, and everything else escaped as in
/// [`shown`].
pub fn page(text: &str, terminal: bool) -> Cow<'_, str> {
    escaped(text, |c, rest| match c {
        '\n' => 1,
        '\x1b' if terminal => {
            [BOLD, YELLOW, PLAIN].into_iter().find(|own| rest.starts_with(own)).map_or(0, str::len)
        }
        _ => 0,
    })
}

/// True for what is escaped in names and pages: commands, and other characters of format (Unicode's category
/// Cf), by which names differ that look the same.
fn is_unseen(c: char) -> bool {
    is_command(c)
        || matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}')
        || matches!(c, '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}')
        || matches!(c, '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

/// True for control characters, marks of text direction, and line separators.
pub fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes what is not seen. `own` returns the length of a permitted sequence that starts here, or zero.
fn escaped(text: &str, own: impl Fn(char, &str) -> usize) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_unseen) {
        let (before, command) = rest.split_at(at);
        out.push_str(before);
        let Some(c) = command.chars().next() else { break };
        let taken = match own(c, command) {
            0 => {
                out.extend(c.escape_default());
                c.len_utf8()
            }
            length => {
                out.push_str(&command[..length]);
                length
            }
        };
        rest = &command[taken..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_become_text() {
        assert!(matches!(shown("/data/größe 文 e\u{301} 👩💻"), Cow::Borrowed(_)));
        assert_eq!(
            shown("a\u{200b}b\u{200d}\u{ad}\u{feff}\u{e0041}"),
            r"a\u{200b}b\u{200d}\u{ad}\u{feff}\u{e0041}"
        );
        assert_eq!(shown("a\x1b]0;t\x07\nb\u{9b}2J\u{7f}"), r"a\u{1b}]0;t\u{7}\nb\u{9b}2J\u{7f}");
        assert_eq!(shown("\u{202e}fdp\u{2069}.exe\u{2028}"), r"\u{202e}fdp\u{2069}.exe\u{2028}");
        for c in (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| is_unseen(*c)) {
            assert!(shown(&c.to_string()).is_ascii(), "{c:?}");
        }
    }

    #[test]
    fn a_page_keeps_its_lines_and_its_own_emphasis() {
        let text = format!("{BOLD}a{PLAIN}\nb\x1b[2J\r");
        assert_eq!(page(&text, true), format!("{BOLD}a{PLAIN}\n{}", r"b\u{1b}[2J\r"));
        assert_eq!(page(&text, false), format!("{}\n{}", r"\u{1b}[1ma\u{1b}[0m", r"b\u{1b}[2J\r"));
    }
}
