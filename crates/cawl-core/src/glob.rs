//! Patterns of file names: `*` is any text, `/` included, `?` any character.

use std::fmt;
use std::str::Chars;

use serde::{Deserialize, Serialize};

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glob(String);

impl From<&str> for Glob {
    fn from(pattern: &str) -> Glob {
        Glob(pattern.to_owned())
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Glob {
    /// True if the pattern is that of the whole text.
    pub fn fits(&self, text: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), text.chars());
        // Where to go on if what follows the latest `*` does not fit.
        let mut retry: Option<(Chars<'_>, Chars<'_>)> = None;
        loop {
            let (mut behind, mut ahead) = (pattern.clone(), rest.clone());
            match (behind.next(), ahead.next()) {
                (Some('*'), _) => {
                    pattern = behind;
                    retry = Some((pattern.clone(), rest.clone()));
                }
                (None, None) => return true,
                (Some(wanted), Some(is)) if wanted == '?' || wanted == is => {
                    (pattern, rest) = (behind, ahead);
                }
                _ => {
                    let Some((star, from)) = &mut retry else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (star.clone(), from.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_the_whole_text() {
        let fits = |pattern: &str, text: &str| Glob::from(pattern).fits(text);
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "a/b"),
            ("a?c", "aµc"),
            ("/data/*.wal", "/data/x/y.wal"),
            ("*a*b", "xaxbxb"),
            ("**", "x"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("?", ""), ("a*b", "a"), ("*a", "ab"), ("", "x"), ("A", "a")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
