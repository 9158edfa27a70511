"""`cawl-lab verify strangers`: programs do under the tracer what they do without, in the roots of other systems.

run.py CLI PROGRAMS CACHE [NAME…]: each program of the table PROGRAMS (or those whose name, group or root is
given), untraced, then traced, in a root of Debian 11, 12 and 13 made by debootstrap and kept in the folder CACHE, as
root and as a user. Where the root's C library can run CLI, that runs inside; else outside, with the tracer's
library made visible inside. A line a group; what differs and what cannot be had is named. Exit status 1 if
something differs.
"""

import filecmp
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOTS = {"bullseye": 11, "bookworm": 12, "trixie": 13}
USERS = {"root": 0, "user": 1000}
# Seconds for one program.
LIMIT = 60
INSTALLED = "var/lib/cawl-strangers"


def run(command, limit=900, **options):
    """A command with a time limit: its status and what it wrote; everything it started is ended."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True, **options)
    try:
        out, err = process.communicate(timeout=limit)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return "time", out, err


def table(path):
    """Programs as (group, name, packages, comparison, command)."""
    group = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif group == "stressors" and line and not line.startswith("#"):
            for name in line.split():
                command = f"stress-ng --{name} 1 --{name}-ops 64 --verify -t 2 -q --temp-path ."
                yield group, name, ["stress-ng"], "status", command
        elif line and not line.startswith("#"):
            name, packages, comparison, command = (part.strip() for part in line.split("|", 3))
            yield group, name, packages.split(), comparison, command


class Root:
    """A root of a release, with what is mounted in it while it is in use."""

    def __init__(self, release, cache):
        self.release, self.folder = release, cache / release
        self.mounts = []
        if not self.folder.exists():
            made = cache / f"{release}.{os.getpid()}"
            status, out, err = run(["debootstrap", "--variant=minbase", release, made], limit=600)
            if status != 0:
                shutil.rmtree(made, ignore_errors=True)
                raise RuntimeError(f"debootstrap {release}: {(out + err).decode(errors='replace')[-300:]}")
            made.rename(self.folder)
        for name, source, kind in [("proc", "proc", "proc"), ("dev", "/dev", "bind"), ("dev/pts", "/dev/pts", "bind"),
                                   ("dev/shm", "tmpfs", "tmpfs"), ("sys", "/sys", "bind"), ("run", "tmpfs", "tmpfs"), ("tmp", "tmpfs", "tmpfs")]:
            self.mount(name, source, kind)
        (self.folder / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
        passwd = self.folder / "etc/passwd"
        if "stranger" not in passwd.read_text():
            with passwd.open("a") as lines:
                lines.write("stranger:x:1000:1000::/home/stranger:/bin/sh\n")
        self.have = set(self.noted().get("have", []))
        self.lack = set(self.noted().get("lack", []))

    def mount(self, name, source, kind):
        at = self.folder / name
        at.mkdir(parents=True, exist_ok=True)
        how = ["--bind"] if kind == "bind" else ["-t", kind]
        subprocess.run(["mount", *how, source, at], check=True)
        self.mounts.append(at)

    def close(self):
        for at in reversed(self.mounts):
            subprocess.run(["umount", "-l", at], check=False)

    def noted(self):
        note = self.folder / INSTALLED
        return json.loads(note.read_text()) if note.exists() else {}

    def inside(self, command, user=0, **options):
        who = ["--userspec", f"{user}:{user}"] if user else []
        return run(["chroot", *who, self.folder, *command], **options)

    def has(self, packages):
        """True if all are installed; of names with commas between, one is enough."""
        return all(self.have & set(package.split(",")) for package in packages)

    def install(self, packages):
        """Installs what is not there; what the release does not have is noted."""
        new = sorted(set(packages) - self.have - self.lack)
        if not new:
            return
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "HOME": "/root"}
        (self.folder / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (self.folder / "usr/sbin/policy-rc.d").chmod(0o755)
        self.inside(["apt-get", "-qq", "update"], env=env)
        _, known, _ = self.inside(["apt-cache", "-q", "policy", *new], env=env)
        candidates = dict(re.findall(r"^(\S+):\n.*\n  Candidate: (\S+)", known.decode(), re.M))
        served = [name for name in new if candidates.get(name, "(none)") != "(none)"]
        apt = ["apt-get", "-qq", "-y", "--no-install-recommends", "install"]
        status, _, _ = self.inside([*apt, *served], env=env, limit=1800)
        for name in [] if status == 0 else served:
            self.inside([*apt, name], env=env, limit=600)
        _, listed, _ = self.inside(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"], env=env)
        there = {line.split()[0] for line in listed.decode().splitlines() if line.endswith(" installed")}
        self.have |= set(new) & there
        self.lack |= set(new) - there
        note = self.folder / INSTALLED
        note.write_text(json.dumps({"have": sorted(self.have), "lack": sorted(self.lack)}))


class Tracing:
    """How a program of a root is traced."""

    def __init__(self, root, cli):
        self.root, self.cli = root, cli
        at = root.folder / "usr/local/bin"
        at.mkdir(parents=True, exist_ok=True)
        shutil.copy2(cli, at / "cawl-cli")
        status, _, _ = root.inside(["/usr/local/bin/cawl-cli", "--version"])
        self.is_inside = status == 0
        traced = "cawl-cli run --no-calibrate --no-save --report /tmp/report.$$.json --"
        (at / "plainly").write_text('#!/bin/sh\nexec "$@"\n')
        (at / "traced").write_text(f'#!/bin/sh\nexec {traced} "$@"\n')
        for name in ["plainly", "traced"]:
            (at / name).chmod(0o755)
        if not self.is_inside:
            # The library of another folder than the root's own /run.
            os.makedirs("/run/cawl", exist_ok=True)
            root.mount("run/cawl", "/run/cawl", "bind")

    def command(self, script, traced, user):
        """The command line, and the variables for the script."""
        who = ["--userspec", f"{user}:{user}"] if user else []
        chroot = ["chroot", *who, self.root.folder, "sh", "-c"]
        outside = "$TRACED" in script
        if not traced:
            return [*chroot, f"cd $W; {script}"], "plainly"
        if outside:
            return ([*chroot, f"cd $W; {script}"], "traced") if self.is_inside else (None, None)
        if self.is_inside:
            return [*chroot, f"cd $W; exec traced sh -c \"$SCRIPT\""], "plainly"
        report = f"{self.root.folder}/tmp/report.json"
        run_it = [self.cli, "run", "--no-calibrate", "--no-save", "--report", report, "--"]
        return [*run_it, *chroot, f"cd $W; exec sh -c \"$SCRIPT\""], "plainly"

    def outcome(self, script, traced, user):
        """Status, output and files of a program; None if it cannot be traced so."""
        command, wrapper = self.command(script, traced, user)
        if command is None:
            return None
        work = tempfile.mkdtemp(prefix="w", dir=self.root.folder / "tmp")
        os.chown(work, user, user)
        os.chmod(work, 0o700)
        inside = "/tmp/" + Path(work).name
        home = self.root.folder / f"tmp/home{user}"
        home.mkdir(exist_ok=True)
        os.chown(home, user, user)
        for report in (self.root.folder / "tmp").glob("report*.json"):
            report.unlink()
        env = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": f"/tmp/home{user}", "LC_ALL": "C.UTF-8",
               "W": inside, "SCRIPT": script, "TRACED": wrapper, "TERM": "dumb"}
        status, out, err = run(command, limit=LIMIT, env=env)
        files = {str(path.relative_to(work)): path.stat().st_size for path in sorted(Path(work).rglob("*")) if path.is_file()}
        shutil.rmtree(work, ignore_errors=True)
        text = [part.replace(inside.encode(), b"@") for part in (out, err)]
        seen = any(json.loads(report.read_bytes() or b"{}").get("calls") for report in (self.root.folder / "tmp").glob("report*.json"))
        return {"status": status, "stdout": text[0], "stderr": text[1], "files": files, "seen": seen}


def differs(plain, again, traced, comparison):
    """What is another thing under the tracer; what differs between two plain runs is not compared."""
    what = ["status"] if comparison == "status" else ["status", "stdout", "stderr", "files"]
    found = [name for name in what if plain[name] != traced[name]]
    if found and again is not None:
        found = [name for name in found if plain[name] == again()[name]]
    return [f"{name} {short(plain[name])} → {short(traced[name])}" for name in found]


def short(value):
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text.replace("\n", "~")[-160:]


def main():
    cli, programs, cache, *names = sys.argv[1:]
    cache = Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    chosen = list(table(Path(programs)))
    roots = [name for name in names if name in ROOTS] or list(ROOTS)
    words = [name for name in names if name not in ROOTS]
    chosen = [one for one in chosen if not words or one[0] in words or one[1] in words]
    began, bad = time.monotonic(), 0
    print("| root | user | group | same | traced | differ | not to be had |\n|---|---|---|---:|---:|---:|---|")
    for release in roots:
        try:
            root = Root(release, cache)
        except (RuntimeError, OSError) as error:
            print(f"SKIPPED: {release}: {error}", file=sys.stderr)
            continue
        try:
            root.install([name for one in chosen for package in one[2] for name in package.split(",")])
            tracing = Tracing(root, cli)
            for user, uid in USERS.items():
                for group in dict.fromkeys(one[0] for one in chosen):
                    same, seen, different, lacking = 0, 0, [], []
                    for _, name, packages, comparison, script in (one for one in chosen if one[0] == group):
                        if not root.has(packages):
                            lacking.append(name)
                            continue
                        plain = tracing.outcome(script, False, uid)
                        traced = tracing.outcome(script, True, uid)
                        if traced is None:
                            lacking.append(name)
                            continue
                        seen += traced["seen"]
                        found = differs(plain, lambda: tracing.outcome(script, False, uid), traced, comparison)
                        if found:
                            # Once more: a program may meet a bad moment.
                            again = tracing.outcome(script, True, uid)
                            found = found and differs(plain, None, again, comparison)
                        same += not found
                        if found:
                            different.append(name)
                            print(f"  {release} {user} {group} {name}: {'; '.join(found)}", file=sys.stderr, flush=True)
                    bad += len(different)
                    print(f"| {release} | {user} | {group} | {same} | {seen} | {len(different)} | {', '.join(lacking) or 'none'} |", flush=True)
        finally:
            root.close()
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes; " + (f"{bad} differ" if bad else "nothing differs"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
