//! `fit`: a host profile from recorded runs.

use std::process::ExitCode;

use anyhow::Context;
use cawl_console::{outputs, shown, tell};
use cawl_host::output;

use super::recordings;
use crate::args::FitArgs;

pub fn fit(args: &FitArgs) -> anyhow::Result<ExitCode> {
    outputs::check(&args.output, &outputs::PROFILE)?;
    let runs = recordings::traced(&args.dir, recordings::read(&args.dir, &args.runs, &[])?)?;
    let mut profile = crate::recorded::fit(&runs)
        .with_context(|| format!("cannot fit a profile to {}", args.dir.display()))?;
    if let Some(name) = args.dir.canonicalize().ok().as_deref().and_then(|dir| dir.file_name()) {
        profile.name = name.to_string_lossy().into_owned();
    }
    // The core has no clock, so the time of creation is set here.
    profile.created = Some(cawl_host::wall_clock());
    let file = args.output.display();
    output::write(&args.output, output::FOR_ALL, profile.to_toml())
        .with_context(|| format!("cannot write the profile {file}"))?;
    let (memory, device) = (&profile.memory, &profile.device);
    tell(format_args!("{} from {} runs is now in {file}", shown(&profile.name), runs.len()));
    tell(format_args!("page cache: fresh {}, cached {}", memory.fresh.value, memory.cached.value));
    tell(format_args!(
        "device: direct {}, writeback {}, synchronous call {}, fsync {}",
        device.write.value, device.writeback.value, device.sync_call.value, device.fsync.value
    ));
    Ok(ExitCode::SUCCESS)
}
