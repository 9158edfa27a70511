//! `completions` and `man`: completions for shells, and manual pages.

use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::render;

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "cawl-cli", &mut text);
    clap_complete::generate(args.shell, &mut cawld::program::command(), "cawld", &mut text);
    render::data(&String::from_utf8(text)?)
}

pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Args::command(), folder))
        .and_then(|()| clap_mangen::generate_to(cawld::program::command(), folder))
        .with_context(|| format!("cannot write the pages into {}; name another folder", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
