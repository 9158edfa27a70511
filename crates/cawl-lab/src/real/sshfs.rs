//! sshfs, with an sshd of its own: started for the one connection as inetd would, so it listens nowhere.
//! Keys, settings and the server's files lie in memory, in a tmpfs that goes with the mount.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::Link;
use crate::command::{self, run};
use crate::leftovers::{self, Folder};

/// Longest time in which the mount comes up.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time in which sshfs ends after it was unmounted; longer, who still uses it keeps it.
const FAREWELL: Duration = Duration::from_secs(5);

/// A running mount. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Mount {
    client: Option<Child>,
    folder: Folder,
}

impl Mount {
    /// Starts a mount; `program` is `cawl-lab`, which delays the connection.
    pub fn bring_up(program: &Path, link: Option<Link>) -> anyhow::Result<Mount> {
        let programs = [("sshd", "openssh-server"), ("sshfs", "sshfs"), ("ssh-keygen", "openssh-client")];
        let found = command::need(&programs)?;
        let mut mount = Mount { client: None, folder: Folder::make()? };
        mount.prepare(program, &found[0], link)?;
        mount.connect()?;
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.folder.mount()
    }

    fn prepare(&self, program: &Path, sshd: &Path, link: Option<Link>) -> anyhow::Result<()> {
        // A tmpfs.
        let room = self.folder.disk();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=700", leftovers::NAME]).arg(&room))?;
        fs::create_dir(room.join("files"))?;
        for key in ["host", "user"] {
            let mut generate = Command::new("ssh-keygen");
            run(generate.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(room.join(key)))?;
        }
        let at = room.display();
        let server = format!(
            "HostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
        );
        fs::write(room.join("server"), server)?;
        // It wants a folder of its own in /run: here in a namespace that ends with it.
        let sshd = sshd.display();
        let serve = format!("mount -t tmpfs none /run && mkdir /run/sshd && exec {sshd} -i -f {at}/server\n");
        fs::write(room.join("serve"), serve)?;
        let mut proxy = format!("unshare --mount sh {at}/serve");
        if let Some(Link { latency, bandwidth }) = link {
            let (micros, rate) = (latency.get() / 1e3, bandwidth.get() / 1e6);
            proxy = format!("{} relay {micros}us,{rate}MB/s -- {proxy}", program.display());
        }
        let mut client = "Host lab\n".to_owned();
        for line in [
            "User root".to_owned(),
            format!("IdentityFile {at}/user"),
            "IdentitiesOnly yes".to_owned(),
            "StrictHostKeyChecking no".to_owned(),
            "UserKnownHostsFile /dev/null".to_owned(),
            "LogLevel ERROR".to_owned(),
            format!("ProxyCommand {proxy}"),
        ] {
            writeln!(client, "  {line}")?;
        }
        Ok(fs::write(room.join("client"), client)?)
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        // In the foreground and with this process's end: what it started must not outlive it.
        let mut sshfs = Command::new("setpriv");
        sshfs.args(["--pdeathsig", "KILL", "sshfs", "-f", "-F"]).arg(self.folder.disk().join("client"));
        sshfs.arg(format!("lab:{}/files", self.folder.disk().display())).arg(self.mount_point());
        let client = self.client.insert(sshfs.spawn().context("cannot run setpriv")?);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if leftovers::is_mounted(&self.folder.mount()) {
                return Ok(());
            }
            if let Some(status) = client.try_wait()? {
                bail!("sshfs ended with {status}; its message is above");
            }
            ensure!(Instant::now() < deadline, "sshfs did not mount within {} s", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(mut client) = self.client.take() else { return };
        // One that has ended unmounts by itself.
        let is_there = client.try_wait().is_ok_and(|ended| ended.is_none());
        let unmounted = if is_there { leftovers::unmount(&self.mount_point()) } else { Ok(()) };
        if let Err(error) = unmounted.and(end(&mut client).map_err(Into::into)) {
            eprintln!("cawl-lab: cannot end sshfs: {error:#}");
        }
    }
}

/// Waits until sshfs has ended, or ends it.
fn end(client: &mut Child) -> io::Result<()> {
    let deadline = Instant::now() + FAREWELL;
    while client.try_wait()?.is_none() {
        if Instant::now() > deadline {
            client.kill()?;
            client.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
