//! The folder that a rerun writes to.
//!
//! The law: **nothing that was there before is ever opened or removed.** The folder is empty or new, or has
//! what `--prepare` made in it for the same script.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_host::output::{self, FOR_ALL};

use super::script::Script;
use crate::exit;

/// What `--prepare` leaves: the files that it made.
const PREPARED: &str = ".cawl-rerun";

/// The folder; dropping it removes what was made in it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Names that the rerun may have made.
    names: Vec<String>,
    /// The folder is the rerun's own.
    is_new: bool,
    keeps: bool,
    /// Its files are there.
    pub is_prepared: bool,
}

impl Folder {
    /// Takes the folder. `prepares`: it must not be prepared yet.
    pub fn take(path: &Path, script: &Script, prepares: bool) -> anyhow::Result<Folder> {
        let is_new = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => {
                let about =
                    || format!("cannot make the folder {}; name another one with --dir", path.display());
                return Err(error).with_context(about);
            }
        };
        let mut folder =
            Folder { path: path.to_owned(), names: Vec::new(), is_new, keeps: false, is_prepared: false };
        if !is_new {
            folder.scan(script, prepares)?;
        }
        folder.names = script.names.iter().skip(1).cloned().collect();
        Ok(folder)
    }

    fn scan(&mut self, script: &Script, prepares: bool) -> anyhow::Result<()> {
        let path = self.path.display();
        let refused = |why: String| Err(exit::Usage(why).into());
        if !self.path.is_dir() {
            return refused(format!("{path} is no folder; name an empty one, or a new one, with --dir"));
        }
        let about = || format!("cannot read the folder {path}");
        let count = fs::read_dir(&self.path).with_context(about)?.count();
        if count == 0 {
            return Ok(());
        }
        let Ok(prepared) = fs::read_to_string(self.path.join(PREPARED)) else {
            return refused(format!("{path} is not empty; name an empty folder, or a new one, with --dir"));
        };
        if prepares {
            return refused(format!(
                "{path} is prepared already; run without --prepare, or name another folder"
            ));
        }
        let (is_new, files) = prepared.split_once('\n').unwrap_or_default();
        let is_whole = script.fills.iter().all(|fill| {
            let meta = fs::symlink_metadata(self.path.join(&script.names[fill.file as usize]));
            meta.is_ok_and(|meta| meta.is_file() && meta.len() == fill.size)
        });
        if files != listed(script) || count != script.fills.len() + 1 || !is_whole {
            return refused(format!(
                "{path} was prepared for another trace or other changes, or was changed since; name an empty folder"
            ));
        }
        self.is_new = is_new == "new";
        self.is_prepared = true;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the files for a rerun.
    pub fn leave_prepared(&mut self, script: &Script) -> anyhow::Result<()> {
        let text = format!("{}\n{}", if self.is_new { "new" } else { "old" }, listed(script));
        let file = self.path.join(PREPARED);
        output::write(&file, FOR_ALL, text).with_context(|| format!("cannot write {}", file.display()))?;
        self.keeps = true;
        Ok(())
    }

    /// Leaves the files to the user.
    pub fn keep(&mut self) {
        self.keeps = true;
        if self.is_prepared {
            drop(fs::remove_file(self.path.join(PREPARED)));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keeps {
            return;
        }
        if !self.names.is_empty() {
            // What cannot be removed is not there.
            self.names.iter().for_each(|name| drop(fs::remove_file(self.path.join(name))));
            drop(fs::remove_file(self.path.join(PREPARED)));
        }
        if self.is_new {
            drop(fs::remove_dir(&self.path));
        }
    }
}

/// The files that are made before.
fn listed(script: &Script) -> String {
    script.fills.iter().map(|fill| format!("{} {}\n", fill.size, script.names[fill.file as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rerun::script::Fill;

    fn script() -> Script {
        let names = [".", "0-source", "1-data"].map(str::to_owned).to_vec();
        Script { names, fills: vec![Fill { file: 2, size: 4 }], ..Script::default() }
    }

    #[test]
    fn only_its_own_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let folder = Folder::take(&path, &script(), false).unwrap();
        fs::write(path.join("1-data"), "data").unwrap();
        fs::write(path.join("foreign"), "").unwrap();
        drop(folder);
        assert!(path.join("foreign").exists() && !path.join("1-data").exists());
        let refused = Folder::take(&path, &script(), false).unwrap_err();
        assert!(refused.to_string().contains("is not empty"), "{refused}");
        assert!(path.join("foreign").exists());
        fs::remove_file(path.join("foreign")).unwrap();
        drop(Folder::take(&path, &script(), false).unwrap());
        assert!(path.exists(), "it was there before");
    }

    #[test]
    fn what_was_prepared_is_taken_once_and_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let mut folder = Folder::take(&path, &script(), true).unwrap();
        fs::write(path.join("1-data"), "data").unwrap();
        folder.leave_prepared(&script()).unwrap();
        drop(folder);
        let says = |script: &Script, prepares, text: &str| {
            let refused = Folder::take(&path, script, prepares).unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        };
        says(&script(), true, "is prepared already");
        says(&Script { fills: Vec::new(), ..script() }, false, "for another trace");
        fs::write(path.join("1-data"), "changed").unwrap();
        says(&script(), false, "changed since");
        fs::write(path.join("1-data"), "data").unwrap();
        assert!(path.join("1-data").exists(), "a refusal removes nothing");
        assert!(Folder::take(&path, &script(), false).unwrap().is_prepared);
        assert!(!path.exists());
    }
}
