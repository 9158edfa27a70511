//! The words of a command line: those that have another spelling now, and those that cannot be used.

use std::ffi::OsString;

use crate::print::tell;
use crate::shown::shown;

/// What clap makes of the words. Where it cannot use them, the process ends with its error, which is that of
/// the words as [`shown`] has them, since clap prints them as they are.
pub fn parsed<T>(words: Vec<OsString>, parse: impl Fn(Vec<OsString>) -> Result<T, clap::Error>) -> T {
    let shown = |word: &OsString| shown(&word.to_string_lossy()).into_owned().into();
    let told = words.iter().map(shown).collect();
    parse(words).unwrap_or_else(|error| {
        let Err(error) = parse(told) else {
            // The words are refused for their unseen characters only.
            tell(error.to_string().trim_end());
            std::process::exit(error.exit_code())
        };
        error.exit()
    })
}

/// An option of a command: command, old option, and what stands in its place. At the `=` that this ends with,
/// the option's value follows.
pub type Respelled = (&'static str, &'static str, &'static str);

/// The words of a command line in today's spelling. Each that was changed is told on stderr.
pub fn respelled(words: impl IntoIterator<Item = OsString>, old: &[Respelled]) -> Vec<OsString> {
    let mut words = words.into_iter();
    let mut all: Vec<OsString> = words.by_ref().take(2).collect();
    let command = all.last().cloned().unwrap_or_default();
    while let Some(word) = words.next() {
        if word == "--" {
            all.push(word);
            break;
        }
        let text = word.to_string_lossy();
        let (name, value) = text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value)));
        let Some((.., now)) = old.iter().find(|(of, old, _)| command == *of && name == *old) else {
            all.push(word);
            continue;
        };
        let value = match value {
            Some(value) => OsString::from(value),
            None if now.ends_with('=') => words.next().unwrap_or_default(),
            None => OsString::new(),
        };
        let mut now = OsString::from(now);
        now.push(value);
        tell(format_args!("`{name}` has another spelling now: {}", now.display()));
        all.push(now);
    }
    all.extend(words);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_options_are_read_in_their_new_spelling() {
        let old = [("look", "--fast", "--speed=2"), ("look", "--every", "--set=interval=")];
        let now = |line: &str| -> Vec<String> {
            let words = respelled(line.split(' ').map(OsString::from), &old);
            words.into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        for (given, expected) in [
            ("it look at --fast", "it look at --speed=2"),
            ("it look --every 5s x", "it look --set=interval=5s x"),
            ("it look --every=5s --all", "it look --set=interval=5s --all"),
            ("it other --fast", "it other --fast"),
            ("it look -- --fast", "it look -- --fast"),
        ] {
            assert_eq!(now(given).join(" "), expected);
        }
    }
}
