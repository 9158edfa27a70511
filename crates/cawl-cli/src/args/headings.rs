//! The list of commands in the help, under headings, which clap has for options only.

use std::fmt::Write as _;

use clap::Subcommand as _;
use clap::builder::Styles;

use super::Command;

/// Each command that the help lists, under its heading.
const HEADINGS: [(&str, &[&str]); 5] = [
    ("Trace", &["run", "attach", "doctor", "import", "export"]),
    ("Understand", &["replay", "explain", "diff"]),
    ("Change", &["advise", "whatif", "rerun", "check"]),
    ("Machine", &["calibrate", "predict"]),
    ("Watch", &["status", "top", "service"]),
];

/// The help of the program, as a template of clap.
pub fn template() -> String {
    let (commands, styles) = (Command::augment_subcommands(clap::Command::new("")), Styles::styled());
    let (bold, name) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (heading, names) in HEADINGS {
        let _ = writeln!(text, "{bold}{heading}:{bold:#}");
        for command in names.iter().filter_map(|name| commands.find_subcommand(name)) {
            let about = command.get_about().unwrap_or_default();
            let _ = writeln!(text, "  {name}{:<9}{name:#}  {about}", command.get_name());
        }
        text.push('\n');
    }
    text + &format!("{bold}Options:{bold:#}\n{{options}}")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn every_visible_command_stands_once_under_a_heading() {
        let program = Args::command();
        let mut visible: Vec<&str> =
            program.get_subcommands().filter(|of| !of.is_hide_set()).map(|of| of.get_name()).collect();
        let mut listed: Vec<&str> = HEADINGS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible);
        for help in
            [Args::command().render_help(), Args::command().render_long_help()].map(|it| it.to_string())
        {
            let is_command = |line: &&str| {
                let name = line.strip_prefix("  ").and_then(|rest| rest.split("  ").next());
                name.is_some_and(|name| visible.contains(&name.trim_end()))
            };
            assert_eq!(help.lines().filter(is_command).count(), visible.len(), "{help}");
            assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        }
    }
}
