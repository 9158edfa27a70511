//! A program that does nothing but read, to be traced: `cawl-lab read`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

/// What to read.
#[derive(Args, Debug)]
pub struct ReaderArgs {
    /// The file
    file: PathBuf,
    /// Bytes of a read
    #[arg(long)]
    block: usize,
    /// Number of reads, at places that are the same each time and do not follow one another
    #[arg(long)]
    calls: u64,
}

/// Reads blocks of a file at random places.
pub fn read(args: &ReaderArgs) -> anyhow::Result<()> {
    let file = File::open(&args.file)?;
    let blocks = file.metadata()?.len() / args.block.max(1) as u64;
    ensure!(blocks > 0, "the file is shorter than a block");
    let mut data = vec![0; args.block];
    let mut state = 1_u64;
    for _ in 0..args.calls {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.read_exact_at(&mut data, (state >> 20) % blocks * args.block as u64)?;
    }
    Ok(())
}
