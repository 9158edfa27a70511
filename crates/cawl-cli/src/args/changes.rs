//! Changes, as the options and words of `whatif` and `rerun`: those of [`KEYWORDS`].

use cawl_core::{KEYWORDS, Keyword, Request};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

/// The name of the arguments without a name.
const WORDS: &str = "changes";

/// Changes, in the order given; without ON_PAPER those of the program alone.
#[derive(Clone, Debug)]
pub struct Changes<const ON_PAPER: bool>(pub Vec<Request>);

impl<const ON_PAPER: bool> clap::Args for Changes<ON_PAPER> {
    fn augment_args(command: Command) -> Command {
        let option = |keyword: &'static Keyword| {
            let of =
                if keyword.is_of_program() { "Changes of the program" } else { "Changes of the machine" };
            let arg = Arg::new(keyword.name).long(keyword.name).help(keyword.help).help_heading(of);
            let arg = arg.action(ArgAction::Append).hide_short_help(keyword.is_expert);
            let arg = arg.value_parser(move |value: &str| keyword.request(value));
            let arg = arg.hide(!ON_PAPER && !keyword.is_of_program());
            match keyword.value {
                "" => arg.num_args(0).default_missing_value(""),
                value => arg.value_name(value).allow_negative_numbers(true),
            }
        };
        let words = Arg::new(WORDS).value_name("CHANGE").action(ArgAction::Append).num_args(1..);
        let words = words.help("Changes as `run --try` takes them: buffer=1M,fsync=none");
        let words = words.value_parser(Request::list);
        command.args(KEYWORDS.iter().map(option)).arg(words)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const ON_PAPER: bool> FromArgMatches for Changes<ON_PAPER> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let wrong = |why: String| clap::Error::raw(ErrorKind::ArgumentConflict, why);
        let mut given = Vec::new();
        for keyword in KEYWORDS {
            let requests = matches.get_many::<Request>(keyword.name).into_iter().flatten();
            let places = matches.indices_of(keyword.name).into_iter().flatten();
            given.extend(places.zip(requests.cloned().map(|request| vec![request])));
        }
        let lists = matches.get_many::<Vec<Request>>(WORDS).into_iter().flatten();
        let places = matches.indices_of(WORDS).into_iter().flatten();
        given.extend(places.zip(lists.cloned()));
        given.sort_by_key(|(place, _)| *place);
        let given = Request::joined(given.into_iter().flat_map(|(_, requests)| requests)).map_err(wrong)?;
        match given.iter().find(|request| !ON_PAPER && request.rewrite().is_none()) {
            None => Ok(Changes(given)),
            Some(request) => Err(wrong(format!(
                "{} changes the machine, which is what it is here; `cawl-cli whatif` tells what another \
                 one does",
                request.text
            ))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
