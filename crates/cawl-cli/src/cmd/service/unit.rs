//! The settings of a unit, as its files have them (systemd.syntax(7)).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

/// Folders of units below the root, in order of precedence.
const FOLDERS: [&str; 6] = [
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

pub fn name(given: &str) -> anyhow::Result<String> {
    let name = if given.ends_with(".service") { given.to_owned() } else { format!("{given}.service") };
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    ensure!(
        name.len() > ".service".len() && name.chars().all(plain),
        "`{given}` is no name of a service; `systemctl list-units --type=service` lists them"
    );
    Ok(name)
}

/// The settings of a unit's section `[Service]`.
#[derive(Debug, Default)]
pub struct Unit(Vec<(String, String)>);

impl Unit {
    /// Reads a unit with its drop-ins except cawl's own: from systemd where it runs, else from the files.
    pub fn read(root: &Path, name: &str, is_booted: bool) -> anyhow::Result<Unit> {
        let text = if is_booted { Unit::cat(name)? } else { Unit::files(root, name) };
        match text {
            Some(text) => Ok(Unit::parse(&text)),
            None => bail!("there is no unit {name}; `systemctl list-unit-files --type=service` lists them"),
        }
    }

    fn cat(name: &str) -> anyhow::Result<Option<String>> {
        let told = Command::new("systemctl").args(["cat", "--no-pager", name]).output();
        let told = told.context("systemctl cannot be run")?;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        // Before each file comes a comment with its path.
        let files = text
            .split("\n# /")
            .filter(|file| !file.lines().next().is_some_and(|path| path.ends_with(super::DROP_IN)));
        Ok(told.status.success().then(|| files.collect::<Vec<_>>().join("\n# /")))
    }

    fn files(root: &Path, name: &str) -> Option<String> {
        // `a@b.service` is an instance of `a@.service`.
        let template = name.split_once('@').map(|(first, _)| format!("{first}@.service"));
        let names: Vec<&str> = [Some(name), template.as_deref()].into_iter().flatten().collect();
        let folders = || FOLDERS.iter().map(|folder| root.join(folder));
        let mut text = names
            .iter()
            .find_map(|name| folders().find_map(|folder| fs::read_to_string(folder.join(name)).ok()))?;
        for name in names.iter().rev() {
            for folder in folders().collect::<Vec<_>>().into_iter().rev() {
                let entries = fs::read_dir(folder.join(format!("{name}.d"))).into_iter().flatten().flatten();
                let is_conf = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "conf");
                let drop_ins = entries.map(|entry| entry.path()).filter(is_conf);
                let mut drop_ins: Vec<PathBuf> =
                    drop_ins.filter(|path| !path.ends_with(super::DROP_IN)).collect();
                drop_ins.sort();
                for path in drop_ins {
                    text += &format!("\n{}", fs::read_to_string(path).unwrap_or_default());
                }
            }
        }
        Some(text)
    }

    pub fn parse(text: &str) -> Unit {
        let mut settings: Vec<(String, String)> = Vec::new();
        let mut is_service = false;
        // A backslash at the end of a line joins it with the next.
        let text = text.replace("\\\n", " ");
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
            } else if let Some((key, value)) = line.split_once('=').filter(|_| is_service) {
                let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
                // An empty value resets the setting.
                if value.is_empty() {
                    settings.retain(|(other, _)| *other != key);
                } else {
                    settings.push((key, value));
                }
            }
        }
        Unit(settings)
    }

    pub fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|(other, _)| other == key).map(|(_, value)| value.as_str()).collect()
    }

    /// The last value, for settings with one value.
    pub fn last(&self, key: &str) -> Option<String> {
        self.all(key).last().map(|value| (*value).to_owned())
    }

    pub fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| !self.all(key).is_empty())
    }

    pub fn is_on(&self, key: &str) -> bool {
        self.last(key)
            .is_some_and(|value| ["1", "yes", "true", "on"].contains(&value.to_lowercase().as_str()))
    }

    /// The value of a variable set by `Environment=`.
    pub fn variable(&self, name: &str) -> Option<String> {
        let words = self.all("Environment").into_iter().flat_map(words);
        words.filter_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned())).next_back()
    }
}

/// The words of a value; quotes group words with spaces.
fn words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in value.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (' ' | '\t', None) => words.push(std::mem::take(&mut word)),
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_add_up_and_are_taken_back() {
        let unit = Unit::parse(
            "[Unit]\nUser=no\n# User=no\n[Service]\nUser = a\nUser=b\nReadWritePaths=/a\nReadWritePaths=\nReadWritePaths=/b \\\n  /c\n\
             Environment=A=1 \"LD_PRELOAD=/x y.so\"\nEnvironment='B=2' A=3\nDynamicUser=Yes\n[Install]\nUser=no\n",
        );
        assert_eq!((unit.last("User").as_deref(), unit.all("ReadWritePaths")), (Some("b"), vec!["/b    /c"]));
        let variables = ["A", "B", "LD_PRELOAD", "C"].map(|name| unit.variable(name));
        assert_eq!(variables.map(Option::unwrap_or_default), ["3", "2", "/x y.so", ""]);
        assert!(unit.is_on("DynamicUser") && !unit.is_on("User") && !unit.has_any(&["Group"]));
    }

    #[test]
    fn names_of_services() {
        assert_eq!(name("redis").unwrap(), "redis.service");
        assert_eq!(name("postgresql@15-main.service").unwrap(), "postgresql@15-main.service");
        for wrong in ["", ".service", "../x", "a b", "a/b"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_instance_has_its_template_s_settings_and_its_own() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("lib/systemd/system/db@.service", "[Service]\nUser=db\nNice=1\n");
        write("lib/systemd/system/db@.service.d/a.conf", "[Service]\nNice=2\n");
        write("etc/systemd/system/db@one.service.d/b.conf", "[Service]\nNice=3\n");
        write("etc/systemd/system/db@one.service.d/50-cawl.conf", "[Service]\nNice=4\n");
        let unit = Unit::read(root.path(), "db@one.service", false).unwrap();
        assert_eq!(unit.all("Nice"), ["1", "2", "3"]);
        assert_eq!(unit.last("User").as_deref(), Some("db"));
        assert!(
            Unit::read(root.path(), "none.service", false)
                .unwrap_err()
                .to_string()
                .contains("list-unit-files")
        );
    }
}
