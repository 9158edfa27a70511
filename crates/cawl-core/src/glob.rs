//! Patterns of file names: `*` is any text, `/` included, `?` any character.

use std::convert::Infallible;
use std::fmt::{self, Write};
use std::str::{Chars, FromStr};

use serde::{Deserialize, Serialize};

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Glob(Vec<char>);

impl FromStr for Glob {
    type Err = Infallible;

    fn from_str(pattern: &str) -> Result<Glob, Infallible> {
        Ok(Glob::from(pattern))
    }
}

impl From<&str> for Glob {
    fn from(pattern: &str) -> Glob {
        Glob(pattern.chars().collect())
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|c| f.write_char(*c))
    }
}

impl From<String> for Glob {
    fn from(pattern: String) -> Glob {
        Glob::from(&*pattern)
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> String {
        glob.to_string()
    }
}

impl Glob {
    /// True if the pattern is that of the whole text.
    pub fn fits(&self, text: &str) -> bool {
        let (mut at, mut rest) = (0, text.chars());
        // Where to go on if what follows the latest `*` does not fit.
        let mut retry: Option<(usize, Chars<'_>)> = None;
        loop {
            let mut ahead = rest.clone();
            match (self.0.get(at), ahead.next()) {
                (Some('*'), _) => {
                    at += 1;
                    retry = Some((at, rest.clone()));
                }
                (None, None) => return true,
                (Some(wanted), Some(is)) if *wanted == '?' || *wanted == is => {
                    (at, rest) = (at + 1, ahead);
                }
                _ => {
                    let Some((star, from)) = &mut retry else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (at, rest) = (*star, from.clone());
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
