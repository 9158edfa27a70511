//! What there is to choose from: a TOML file of choices, each with its alternatives.

use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use cawl_core::{Effect, Request};
use serde::Deserialize;

use super::Work;

/// Machines that are run at most.
const MAX: usize = 4096;
/// A price at most.
const DEAREST: f64 = 1e12;

/// What there is to choose from. One option of each choice is bought.
#[derive(Debug)]
pub struct Design {
    /// The file, for messages.
    file: String,
    pub currency: String,
    pub choices: Vec<Choice>,
}

/// Alternatives.
#[derive(Debug)]
pub struct Choice {
    pub name: String,
    options: Vec<Bought>,
}

/// An alternative.
#[derive(Debug)]
pub struct Bought {
    pub name: String,
    price: f64,
    changes: Vec<Request>,
}

/// An option of each choice, in the choices' order.
#[derive(Clone, Debug, Default)]
pub struct Machine<'a>(pub Vec<&'a Bought>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    currency: String,
    choice: Vec<ChoiceText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceText {
    name: String,
    option: Vec<OptionText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionText {
    name: String,
    price: f64,
    #[serde(default)]
    change: String,
}

impl Machine<'_> {
    pub fn price(&self) -> f64 {
        self.0.iter().map(|option| option.price).sum()
    }

    pub fn changes(&self) -> anyhow::Result<Vec<Request>> {
        let all = self.0.iter().flat_map(|option| option.changes.iter().cloned());
        Request::joined(all).map_err(|why| anyhow!(why))
    }
}

impl Design {
    /// Reads a file.
    ///
    /// # Errors
    /// Where the file is not as it should be; the message names file, choice and option.
    pub fn read(path: &Path) -> anyhow::Result<Design> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the choices {}", path.display()))?;
        Design::parse(&text, path)
    }

    /// Reads the text of a file, to whose folder the paths in it are relative.
    pub(super) fn parse(text: &str, path: &Path) -> anyhow::Result<Design> {
        let file = path.display().to_string();
        let read: FileText = toml::from_str(text).with_context(|| format!("cannot use {file}"))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let options = read.choice.iter().flat_map(|choice| choice.option.iter().map(|option| &option.name));
        let names = options.chain(read.choice.iter().map(|choice| &choice.name)).chain([&read.currency]);
        let strange = names.into_iter().find(|name| name.contains(char::is_control));
        ensure!(strange.is_none(), "{file}: names are of one line, without control characters");
        ensure!(!read.choice.is_empty(), "{file} has no choice; add a [[choice]]");
        let mut choices: Vec<Choice> = Vec::new();
        for ChoiceText { name, option } in read.choice {
            let known = choices.iter().any(|choice| choice.name == name);
            ensure!(!known, "{file} has two choices `{name}`; put their options into one");
            ensure!(!option.is_empty(), "{file}: choice `{name}` has no option; add a [[choice.option]]");
            let mut options: Vec<Bought> = Vec::new();
            for option in option {
                let about = || format!("{file}: choice `{name}`, option `{}`", option.name);
                let known = options.iter().any(|other| other.name == option.name);
                ensure!(!known, "{}: there are two of this name; rename one", about());
                let is_price = option.price.is_finite() && option.price >= 0.0;
                ensure!(is_price, "{}: the price {} is not 0 or more", about(), option.price);
                ensure!(option.price <= DEAREST, "{}: a price is at most 10^12", about());
                let changes = changes(&option.change, folder).with_context(about)?;
                options.push(Bought { name: option.name, price: option.price, changes });
            }
            choices.push(Choice { name, options });
        }
        let count = choices.iter().fold(1, |count: usize, choice| count.saturating_mul(choice.options.len()));
        ensure!(
            count <= MAX,
            "{file} makes {count} machines, of which at most {MAX} are run; remove options, or keep to the \
             choices that `cawl-cli whatif --sensitivity` shows to matter"
        );
        Ok(Design { file, currency: read.currency, choices })
    }

    /// What is not known of options, for people.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        self.choices
            .iter()
            .flat_map(|choice| &choice.options)
            .flat_map(|option| &option.changes)
            .filter_map(Request::remark)
    }

    /// All machines.
    pub fn machines<'a>(&'a self) -> Vec<Machine<'a>> {
        self.choices.iter().fold(vec![Machine::default()], |machines, choice| {
            let with = |machine: &Machine<'a>, option: &'a Bought| {
                Machine(machine.0.iter().copied().chain([option]).collect())
            };
            machines
                .iter()
                .flat_map(|machine| choice.options.iter().map(|option| with(machine, option)))
                .collect()
        })
    }

    /// An error, with file, choices and options, if the work cannot be run on one of the machines.
    pub fn check(&self, work: &dyn Work) -> anyhow::Result<()> {
        let named = |options: &[(&Choice, &Bought)]| {
            let one = |(choice, option): &(&Choice, &Bought)| {
                format!("choice `{}`, option `{}`", choice.name, option.name)
            };
            format!("{}: {}", self.file, options.iter().map(one).collect::<Vec<_>>().join(", "))
        };
        for machine in self.machines() {
            let check = |options: &[&Bought]| work.check(&Machine(options.to_vec()).changes()?);
            let Err(error) = check(&machine.0) else { continue };
            let pairs: Vec<_> = self.choices.iter().zip(machine.0).collect();
            // Of one option, if it has the same error alone.
            let alone = pairs.iter().find(|(_, option)| {
                check(&[option]).is_err_and(|alone| alone.to_string() == error.to_string())
            });
            let options = alone.map_or(&pairs[..], std::slice::from_ref);
            return Err(error.context(named(options)));
        }
        let profiles = self.choices.iter().filter(|choice| {
            choice
                .options
                .iter()
                .flat_map(|option| &option.changes)
                .any(|one| matches!(one.effect, Effect::Profile(_)))
        });
        let names: Vec<_> = profiles.map(|choice| format!("`{}`", choice.name)).collect();
        ensure!(
            names.len() < 2,
            "{}: the choices {} have profiles, each of a whole machine; name profiles in one of them",
            self.file,
            names.join(" and ")
        );
        Ok(())
    }
}

/// The changes of an option. Files are relative to the folder.
fn changes(text: &str, folder: &Path) -> anyhow::Result<Vec<Request>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut changes = Request::list(text.trim()).map_err(|why| anyhow!(why))?;
    for one in &mut changes {
        match &mut one.effect {
            Effect::Profile(file) => *file = folder.join(&file),
            Effect::Move(_, place) => *place = folder.join(&place).display().to_string(),
            _ => {}
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: &str = r#"
        currency = "EUR"
        [[choice]]
        name = "disk"
        [[choice.option]]
        name = "SATA"
        price = 80
        [[choice.option]]
        name = "NVMe"
        price = 149.5
        change = "scale=bandwidth=4,latency=0.5,profile=nvme.toml"
    "#;
    const MEMORY: &str = r#"
        [[choice]]
        name = "memory"
        option = [{ name = "16 GB", price = 50, change = "ram=16G" }, { name = "64 GB", price = 200, change = "ram=64G" }]
    "#;

    fn parse(text: &str) -> anyhow::Result<Design> {
        Design::parse(text, Path::new("shop/design.toml"))
    }

    #[test]
    fn one_option_of_each_choice_is_bought() {
        let design = parse(DISK).unwrap();
        assert_eq!((design.currency.as_str(), design.machines().len()), ("EUR", 2));
        let both = parse(&format!("{}{MEMORY}", DISK.replace(",profile=nvme.toml", ""))).unwrap();
        let prices: Vec<f64> = both.machines().iter().map(Machine::price).collect();
        assert_eq!(prices, [130.0, 280.0, 199.5, 349.5]);
        let last = both.machines().pop().unwrap();
        let words: Vec<String> = last.changes().unwrap().into_iter().map(|one| one.text).collect();
        assert_eq!(words, ["--scale bandwidth=4", "--scale latency=0.5", "--ram 64G"]);
    }

    #[test]
    fn files_are_beside_the_file() {
        let design = parse(DISK).unwrap();
        let profile = design.machines()[1].changes().unwrap().pop().unwrap();
        assert_eq!(profile.effect, Effect::Profile("shop/nvme.toml".into()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let many: String = (0..13).map(|at| MEMORY.replace("memory", &format!("memory {at}"))).collect();
        for (text, says) in [
            (DISK.replace("price = 80", "cost = 80"), "unknown field `cost`"),
            (DISK.replace("80", "-1"), "choice `disk`, option `SATA`: the price -1 is not 0 or more"),
            (DISK.replace("scale=", "skale="), "option `NVMe`: there is no change `skale"),
            (DISK.replace("bandwidth=4", "speed=4"), "there is no part `speed`; there are bandwidth"),
            (DISK.replace("NVMe", "SATA"), "there are two of this name"),
            (format!("{MEMORY}{MEMORY}"), "two choices `memory`"),
            ("choice = []".to_owned(), "add a [[choice]]"),
            ("[[choice]]\nname = \"a\"\noption = []".to_owned(), "choice `a` has no option"),
            (many, "makes 8192 machines, of which at most 4096"),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains("shop/design.toml") && error.contains(says), "{error}");
        }
    }
}
