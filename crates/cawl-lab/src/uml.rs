//! A machine of its own: user-mode-linux. Its root is this machine's, so it has the same programs; it boots in
//! seconds, and nothing is changed here.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::command::{self, Lacking};

const KERNEL: &str = "linux.uml";

/// What a machine is to do.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    /// A folder here, where it leaves what it finds; `$out` in the script.
    pub out: &'a Path,
    /// Process 1, for sh; it ends with `halt -f -p`.
    pub script: &'a str,
    /// Bytes of the disk /dev/ubda, if there is one.
    pub disk: Option<u64>,
    /// Most time for all of it.
    pub patience: Duration,
}

impl Machine<'_> {
    /// Boots the machine, and waits until it has stopped. An error is [`Lacking`] if there is no such kernel.
    pub fn boot(&self) -> anyhow::Result<()> {
        let out = self.out;
        let init = out.join("init");
        fs::write(&init, format!("#!/bin/sh\nout={}\n{}", quoted(&out.to_string_lossy()), self.script))?;
        command::run(Command::new("chmod").arg("+x").arg(&init))?;
        let mut machine = Command::new(KERNEL);
        machine.args(["mem=2G", "rootfstype=hostfs", "rootflags=/", "rw", "con=null", "con0=fd:0,fd:1"]);
        machine.arg(format!("init={}", init.display()));
        if let Some(bytes) = self.disk {
            let image = out.join("image");
            fs::File::create(&image)?.set_len(bytes)?;
            machine.arg(format!("ubd0={}", image.display()));
        }
        // It keeps a socket in the home's .uml.
        machine.arg(format!("uml_dir={}/", out.display())).env("HOME", out).env("TMPDIR", out);
        machine.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = machine.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Lacking(format!("there is no {KERNEL}; apt-get install user-mode-linux")).into()
            }
            _ => anyhow::Error::from(error).context(KERNEL),
        })?;
        let deadline = Instant::now() + self.patience;
        while child.try_wait().context(KERNEL)?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                anyhow::bail!("{KERNEL} did not stop within {} s", self.patience.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// A word for sh.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
