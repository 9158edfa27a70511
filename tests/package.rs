//! The Debian package: installed, used and purged on a copy of this system that only the test sees.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::unistd::geteuid;

use cawl_kit::{Dir, Running, built, find, skipped};

/// Below $D: an overlay of this system, changed by the package. systemd does not run there: commands to it
/// are written down.
const SYSTEM: &str = r#"
set -e
mount -t tmpfs none "$D/system"
cd "$D/system"
mkdir changed aside root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/changed,workdir=$PWD/aside" root || exit 77
for folder in run tmp var/lib/cawl; do mkdir -p "root/$folder"; mount -t tmpfs none "root/$folder"; done
umount root/var/lib/cawl
rm -rf root/usr/local/lib/cawl root/var/cache/cawl root/var/lib/cawl
mount -t proc proc root/proc
mount --rbind /dev root/dev
mkdir -p root/run/systemd/system
mv root/usr/bin/systemctl root/usr/bin/systemctl.real
printf '#!/bin/sh\necho "$*" >> /tmp/asked\n' > root/usr/bin/systemctl
chmod 755 root/usr/bin/systemctl
rm -f root/usr/sbin/policy-rc.d
cp "$D/cawl.deb" root/tmp
inside() { chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C "$@"; }
package() { inside dpkg --no-triggers --path-include='*' "$@" >&2; }

package --install /tmp/cawl.deb
mv root/tmp/asked "$D/asked-at-installation" 2>/dev/null || :
inside cawld --version
inside cawl-cli run --no-calibrate -- dd if=/dev/zero of=/tmp/data bs=1M count=3 2>&1 | grep '^calls .*3 MiB to files'
inside bash -c 'source /usr/share/bash-completion/completions/cawld && complete -p cawl-cli'
inside bash -c 'source /usr/share/bash-completion/completions/cawld && complete -p cawld'
ls root/usr/share/man/man1/cawl-cli-export.1* root/usr/share/man/man1/cawld.1* >&2
for page in root/usr/share/man/man1/cawl-ship*; do [ ! -e "$page" ] || echo "of another package: $page"; done
cd root/usr/share/doc/cawl
grep -o '\](\([^)]*\))' README.md | tr -d ']()' | while read -r file; do [ -e "$file" ] || echo "no $file"; done
cd "$D/system"
mkdir -p root/etc/systemd/system/other.service.d root/etc/systemd/system/mine.service.d
echo '[Service]' > root/etc/systemd/system/mine.service.d/50-cawl.conf
printf '[Service]\nExecStart=/usr/bin/true\n' > root/etc/systemd/system/other.service
inside cawl-cli service enable other >&2
ls root/usr/local/lib/cawl/*.so root/etc/systemd/system/other.service.d/50-cawl.conf >&2
inside SYSTEMD_OFFLINE=1 systemctl.real enable cawld >&2
ls root/etc/systemd/system/sockets.target.wants/cawld.socket >&2

rm -f root/tmp/asked
package --remove cawl
mv root/tmp/asked "$D/asked-at-removal"
ls root/usr/local/lib/cawl/*.so >&2
package --purge cawl
rm root/etc/systemd/system/mine.service.d/50-cawl.conf
find changed root/run ! -type c -iname '*cawl*'
"#;

#[test]
fn the_manual_pages_in_the_package_are_those_of_the_programs() {
    let pages = |folder: &Path| -> BTreeMap<_, _> {
        let entries = fs::read_dir(folder).expect("a readable folder").map(|entry| entry.expect("an entry"));
        entries.map(|entry| (entry.file_name(), fs::read_to_string(entry.path()).expect("text"))).collect()
    };
    let dir = Dir::new();
    let folder = dir.path().join("man");
    let mut command = dir.cawl(&["man"]);
    command.arg(&folder);
    Running::start(command).finish().success();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/man");
    // That of cawl-ship is compared in its crate.
    let mut kept = pages(&kept);
    kept.remove(OsStr::new("cawl-ship.1"));
    let same = pages(&folder) == kept;
    assert!(same, "not the same any more; do: cargo run -p cawl-cli -- man contrib/man");
}

#[test]
fn the_debian_package_installs_runs_and_leaves_nothing() {
    for program in ["cargo-deb", "dpkg", "deb-systemd-helper", "unshare"] {
        if find(program).is_none() {
            return;
        }
    }
    if !geteuid().is_root() {
        return skipped("only root can install a package");
    }
    let dir = Dir::new();
    // Instead of a release build, which takes minutes.
    let release = dir.path().join("target/release");
    fs::create_dir_all(&release).expect("a new folder");
    for program in ["cawl-cli", "cawld"] {
        symlink(built(program), release.join(program)).expect("a new link");
    }
    let mut command = dir.command(env!("CARGO"));
    command
        .args(["deb", "-p", "cawl-cli", "--no-build", "--strip", "--fast", "--output"])
        .arg(dir.path().join("cawl.deb"));
    command
        .env("CARGO_TARGET_DIR", dir.path().join("target"))
        .env("HOME", std::env::var_os("HOME").unwrap_or_default());
    for name in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    Running::start(command).finish().success();

    fs::create_dir(dir.path().join("system")).expect("a new folder");
    let mut command = dir.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SYSTEM]).env("D", dir.path());
    let done = Running::start(command).finish();
    if done.status.code() == Some(77) {
        return skipped("no overlay can be mounted here");
    }
    let done = done.success();
    let said: Vec<&str> = done.stdout.lines().collect();
    let [version, report, completions, daemons] = said[..] else {
        panic!("links that lead nowhere, and what stays behind, are listed last: {done:#?}")
    };
    assert_eq!(version, concat!("cawld ", env!("CARGO_PKG_VERSION")));
    assert!(report.starts_with("calls ") && completions.ends_with(" cawl-cli"), "{said:?}");
    assert!(daemons.ends_with(" cawld"), "{said:?}");
    let asked = |when: &str| fs::read_to_string(dir.path().join(when)).unwrap_or_default();
    let (at_installation, at_removal) = (asked("asked-at-installation"), asked("asked-at-removal"));
    assert!(!at_installation.contains("start") && !at_installation.contains("enable"), "{at_installation}");
    assert!(at_removal.contains("stop cawld.service cawld.socket"), "{at_removal}");
}
