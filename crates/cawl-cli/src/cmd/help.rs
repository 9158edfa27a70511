//! `completions` and `man`: completions for shells, and manual pages.

use std::process::ExitCode;
use std::{fs, io};

use anyhow::Context;
use cawl_console::with_synopsis;
use clap::Command;

use crate::args::{CompletionsArgs, ManArgs, command};
use crate::{outputs, render};

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "cawl-cli", &mut text);
    clap_complete::generate(args.shell, &mut cawld::program::command(), "cawld", &mut text);
    render::data(&String::from_utf8(text)?)
}

pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let folder = &args.folder;
    let about = || format!("cannot write the pages into {}; name another folder", folder.display());
    fs::create_dir_all(folder).with_context(about)?;
    // Beside it, so that none is written where one of them would take a stranger's place.
    let made = tempfile::tempdir_in(folder).with_context(about)?;
    // Also of commands and options that the short help does not list: the pages are all there is to read.
    let full = |of: Command| of.hide(false).mut_args(|arg| arg.hide_short_help(false));
    for program in [full(command()).mut_subcommands(full), full(cawld::program::command())] {
        clap_mangen::generate_to(with_synopsis(program), &made).with_context(about)?;
    }
    let pages = fs::read_dir(&made)?.map(|page| Ok(page?.file_name())).collect::<io::Result<Vec<_>>>()?;
    pages.iter().try_for_each(|page| outputs::check(&folder.join(page), &outputs::PAGE))?;
    pages
        .iter()
        .try_for_each(|page| fs::rename(made.path().join(page), folder.join(page)))
        .with_context(about)?;
    Ok(ExitCode::SUCCESS)
}
