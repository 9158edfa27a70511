//! Manual pages.

use std::collections::HashSet;

use clap::Command;

/// A program whose manual pages have a synopsis with the values of options: clap's line of usage, with each
/// option in the place of `[OPTIONS]`.
pub fn with_synopsis(program: Command) -> Command {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    each(program)
}

fn each(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let required = command.get_groups().filter(|group| group.is_required_set());
    let elsewhere: HashSet<_> = required.flat_map(|group| group.get_args()).collect();
    let options = command.get_arguments().filter(|arg| {
        let is_elsewhere = arg.is_positional() || arg.is_required_set() || elsewhere.contains(arg.get_id());
        !is_elsewhere && !arg.is_hide_set()
    });
    let options: Vec<String> = options.map(|option| format!("[{option}]")).collect();
    let usage = usage.trim_start_matches("Usage: ").replacen("[OPTIONS]", &options.join(" "), 1);
    command.override_usage(usage).mut_subcommands(each)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction, ArgGroup};

    use super::*;

    #[test]
    fn options_have_their_values_and_stand_once() {
        let flag = Arg::new("json").long("json").action(ArgAction::SetTrue);
        let to = Arg::new("to").short('t').long("to").value_name("FILE");
        let hidden = Arg::new("old").long("old").hide(true);
        let unit = Arg::new("unit").long("unit").value_name("UNIT");
        let (input, size) = (Arg::new("INPUT").num_args(0..), Arg::new("size").long("size").required(true));
        let group = ArgGroup::new("what").args(["unit", "INPUT"]).required(true);
        let sub = Command::new("sub").args([flag, to, hidden, unit, input, size]).group(group);
        let program = with_synopsis(Command::new("main").subcommand(sub));
        let usage = program.find_subcommand("sub").unwrap().clone().render_usage().to_string();
        let expected = "Usage: main sub [--json] [--to <FILE>] [--help] --size <size> <--unit <UNIT>|INPUT>";
        assert_eq!(usage, expected);
    }
}
