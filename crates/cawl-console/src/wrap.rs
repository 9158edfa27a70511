//! Texts and tables in 80 columns.

use unicode_width::UnicodeWidthChar;

/// Columns of a text for people.
pub const WIDTH: usize = 80;
/// Blanks between columns of a table.
pub const GAP: usize = 2;

/// The text in lines of at most [`WIDTH`] columns, where it begins at column `indent`, as further lines do. A
/// number stays with its unit; a longer word is broken.
pub fn wrapped(text: &str, indent: usize) -> String {
    let room = WIDTH.saturating_sub(indent).max(1);
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(number) if is_unit(word) && number.ends_with(|c: char| c.is_ascii_digit()) => {
                number.extend([" ", word]);
            }
            _ => words.extend(pieces(word, room)),
        }
    }
    let (mut out, mut used) = (String::new(), 0);
    for (at, word) in words.iter().enumerate() {
        let width = columns(word);
        if at > 0 && used + 1 + width > room {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = 0;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out
}

/// Columns that a table of [`WIDTH`] leaves for one of its columns, whose cells are still to be made.
pub fn room(header: &[&str], rows: &[impl AsRef<[String]>], column: usize) -> usize {
    let width =
        |at: usize| rows.iter().map(|row| columns(&row.as_ref()[at])).fold(columns(header[at]), usize::max);
    WIDTH.saturating_sub((0..header.len()).filter(|at| *at != column).map(|at| width(at) + GAP).sum())
}

/// Columns that a text takes: emphasis none, and a wide character two.
pub fn columns(text: &str) -> usize {
    visible(text).filter(|(_, is_visible)| *is_visible).map(|(c, _)| width(c)).sum()
}

/// Columns that a character takes.
pub fn width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Each character, and whether it is seen.
fn visible(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut inside = false;
    text.chars().map(move |c| {
        let hidden = inside || c == '\x1b';
        inside = hidden && c != 'm';
        (c, !hidden)
    })
}

const UNITS: [&str; 15] =
    ["%", "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ns", "µs", "ms", "s", "min", "h", "d"];

fn is_unit(word: &str) -> bool {
    let unit = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
    UNITS.contains(&unit)
}

/// A word in parts of at most `room` columns.
fn pieces(word: &str, room: usize) -> Vec<String> {
    let (mut pieces, mut used) = (vec![String::new()], 0);
    for (c, is_visible) in visible(word) {
        let wide = if is_visible { width(c) } else { 0 };
        if wide > 0 && used > 0 && used + wide > room {
            pieces.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{bold, short, warn};

    #[test]
    fn lines_break_at_words_and_not_before_a_unit() {
        let text = format!("{} 12.5 ms {}", "a".repeat(60), "b".repeat(100));
        let lines = wrapped(&text, 11);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0], format!("{} 12.5 ms", "a".repeat(60)));
        assert_eq!(
            (lines[1], lines[2]),
            (
                &*format!("{}{}", " ".repeat(11), "b".repeat(69)),
                &*format!("{}{}", " ".repeat(11), "b".repeat(31))
            )
        );
        let close = wrapped(&format!("{} 12.5 ms", "a".repeat(64)), 11);
        assert!(close.ends_with("\n           12.5 ms"), "{close}");
        assert_eq!(wrapped("two  blanks", 11), "two  blanks");
    }

    #[test]
    fn a_wide_character_takes_two_columns() {
        let text = wrapped(&"文".repeat(100), 11);
        assert!(text.lines().all(|line| columns(line) <= WIDTH), "{text}");
        assert_eq!(text.lines().next().map(columns), Some(68));
        assert_eq!(columns("e\u{301}文a"), 4);
        let path = short(&format!("/data/{}/x", "文".repeat(50)), WIDTH);
        assert!(path.ends_with("文/x") && (WIDTH - 1..=WIDTH).contains(&columns(&path)), "{path}");
    }

    #[test]
    fn emphasis_takes_no_room() {
        for long in [bold(&"word ".repeat(13), true), warn(&"x".repeat(69), true)] {
            assert_eq!(wrapped(&long, 11), long);
        }
    }
}
