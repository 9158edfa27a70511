//! What a file is called.
//!
//! A file is shown by its last name, and with its first one if it was renamed: what a program wrote
//! to `t.tmp` is found again as `t.final`.

use crate::record::FileFacts;

/// A file's last name, and its first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileName {
    path: String,
    first: Option<String>,
    /// The user (uid) whose program told of it ([`FileFacts::owner`]).
    owner: u32,
}

impl FileName {
    /// A record told its name.
    pub fn set_path(&mut self, facts: &FileFacts) {
        if facts.renamed && !self.path.is_empty() && self.path != facts.path {
            self.first.get_or_insert_with(|| self.path.clone());
        }
        self.path.clone_from(&facts.path);
        self.owner = facts.owner;
        self.first.take_if(|first| *first == facts.path);
    }

    /// Its path, as far as known; else empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The user (uid) whose program told of it ([`FileFacts::owner`]); 0: root, or the user who records.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The path that it had before it was renamed for the first time.
    pub fn first_path(&self) -> Option<&str> {
        self.first.as_deref()
    }
}

/// Both names for people: `/tmp/t.final (was t.tmp)`.
pub fn renamed_path(path: &str, first: Option<&str>) -> String {
    let folder = |path: &str| path.rfind('/').map_or(0, |at| at + 1);
    match first {
        None => path.to_owned(),
        Some(first) if first[..folder(first)] == path[..folder(path)] => {
            format!("{path} (was {})", &first[folder(first)..])
        }
        Some(first) => format!("{path} (was {first})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_is_told_with_the_first() {
        let mut name = FileName::default();
        let mut told = |path: &str, renamed| {
            name.set_path(&FileFacts { path: path.to_owned(), renamed, ..FileFacts::default() });
            renamed_path(name.path(), name.first_path())
        };
        assert_eq!(told("/d/t.tmp", false), "/d/t.tmp");
        assert_eq!(told("/d/t.tmp", false), "/d/t.tmp");
        assert_eq!(told("/d/t.1", true), "/d/t.1 (was t.tmp)");
        assert_eq!(told("/e/t.2", true), "/e/t.2 (was /d/t.tmp)");
        // Another process, which knows only the present name.
        assert_eq!(told("/e/t.2", false), "/e/t.2 (was /d/t.tmp)");
        assert_eq!(told("/d/t.tmp", true), "/d/t.tmp");
        // A file that is elsewhere in the tree, too: it was not renamed.
        assert_eq!(told("/bind/t.tmp", false), "/bind/t.tmp");
    }
}
