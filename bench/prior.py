#!/usr/bin/env python3
"""The first answer on a machine that was never measured, by what equal machines know.

bench/prior.py [--machines N] [--kinds ssd,hdd,nvme] [--kernel RELEASE] [--out FOLDER] LAB CLI

Makes N machines of each kind: emulated disks whose parts differ by 10 to 30 %, on this machine's kernel or on one
of user-mode-linux. Each is calibrated (--quick). Then each comes up again as a new one that knows only the others'
profiles; programs are recorded there, and their traces are replayed with each profile that a new machine could
begin with:

defaults  nothing was measured       prior     the others' profiles, merged: calibrate --from, --no-check
brief     two seconds, as `run` has  narrowed  the same, and two seconds: calibrate --from
own       calibrated by --quick, before

Prints by how much the predicted sum of all calls is off, in %: as calibrated, and live, where each call is learned
from. A machine more, whose disk writes at a third and flushes in five times the time, must be named.
"""
import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib

# MB/s, µs, ms, ms, MB/s, requests at a time.
KINDS = {"ssd": (400, 30, 0, 0.5, 500, 4), "hdd": (150, 100, 8, 10, 160, 1), "nvme": (2000, 15, 0, 0.05, 2500, 8)}
PROFILES = ["defaults", "prior", "brief", "narrowed", "own"]

SQLITE = """
import sqlite3
db = sqlite3.connect('f'); db.execute('create table t(a, b)')
for i in range(60):
    db.execute('insert into t values(?, ?)', (i, 'x' * 100)); db.commit()
"""
SMALL = """
import os
os.mkdir('f')
for i in range(400):
    with open('f/%d' % i, 'wb') as file:
        file.write(b'x' * 8000)
        if i % 20 == 0: file.flush(); os.fsync(file.fileno())
"""
RANDOM = """
import os, random
random.seed(1)
file = os.open('g', os.O_RDONLY)
for i in range(150): os.pread(file, 4096, random.randrange(16384) * 4096)
"""
PROGRAMS = {
    "dd-dsync": ["dd", "if=/dev/zero", "of=f", "bs=64k", "count=100", "oflag=dsync"],
    "dd-fsync": ["dd", "if=/dev/zero", "of=f", "bs=1M", "count=128", "conv=fsync"],
    "sqlite": ["python3", "-S", "-c", SQLITE],
    "small": ["python3", "-S", "-c", SMALL],
    "cat-cold": ["dd", "if=g", "of=/dev/null", "bs=128k"],
    "random-read": ["python3", "-S", "-c", RANDOM],
}


def quiet(words, **options):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)


def calibrate(cli, *words):
    ended = quiet([cli, "calibrate", *words, "."])
    if ended.returncode:
        print(f"calibrate {' '.join(words)}: {ended.stderr.strip()}", file=sys.stderr, flush=True)
    return ended


def inside(cli, out, others):
    """On the machine, whose disk is the current folder: alone it is calibrated, with others it is a new one."""
    if not others:
        return calibrate(cli, "--quick", "--max-seconds", "12", "-o", f"{out}/own.toml")
    with open(f"{out}/defaults.toml", "w") as file:
        file.write(quiet([cli, "profile", "show"]).stdout)
    others = f"{out}/others"
    calibrate(cli, "--from", others, "--no-check", "-o", f"{out}/prior.toml")
    calibrate(cli, "--brief", "-o", f"{out}/brief.toml")
    found = calibrate(cli, "--from", others, "--json", "-o", f"{out}/narrowed.toml")
    with open(f"{out}/from.json", "w") as file:
        file.write(found.stdout)
    with open("g", "wb") as file:
        file.write(os.urandom(1 << 20) * 64)
        file.flush()
        os.fsync(file.fileno())
    for name, command in PROGRAMS.items():
        os.sync()
        with open("g", "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        quiet([cli, "run", "--no-calibrate", "--no-save", "--trace", f"{out}/{name}.cawl", "--", *command])
        quiet(["rm", "-rf", "f", "f-journal"])


def on(args, spec, out, others=""):
    """Brings the machine up and goes inside; `others`: it has their profiles in the folder of this name."""
    os.makedirs(out, exist_ok=True)
    home = tempfile.mkdtemp(dir=args.out)
    env = {**os.environ, "HOME": home, "XDG_DATA_HOME": home}
    words = [sys.executable, os.path.abspath(__file__), "--inside", "--out", out, args.cli, others]
    if args.kernel:
        subprocess.run([args.lab, "kernel", args.kernel, "--disk", spec, "--out", out, "--", *words], check=True, env=env)
        return
    lab = subprocess.Popen(["chrt", "--fifo", "10", args.lab, "--supervised", "--disk", spec],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        mount = json.loads(lab.stdout.readline())["mount"]
        subprocess.run(words, cwd=mount, env=env, check=True)
    finally:
        lab.stdin.close()
        lab.wait()


def machines(kind, count):
    """Each part is 10 to 30 % better or worse than that of the kind."""
    random.seed(kind)
    for _ in range(count):
        vary = [math.exp(random.choice([-1, 1]) * random.uniform(0.1, 0.26)) for _ in range(5)]
        write, latency, seek, flush, read = (part * by for part, by in zip(KINDS[kind], vary))
        yield f"{write:.4g},{latency:.4g},{seek:.4g},{flush:.4g},read={read:.4g},depth={KINDS[kind][5]},size=4"


def failing(kind):
    write, latency, seek, flush, read, depth = KINDS[kind]
    return f"{write / 3:.4g},{latency},{seek},{5 * flush},read={read},depth={depth},size=4"


def errors(args, out, name):
    """By profile: off as calibrated, and live, in %."""
    found = {}
    for profile in PROFILES:
        file = f"{out}/{profile}.toml"
        report = f"{out}/{name}.{profile}.json"
        words = [args.cli, "replay", "--profile", file, "--report", report, f"{out}/{name}.cawl"]
        if not os.path.exists(file) or quiet([*words[:2], "--live", *words[2:]]).returncode:
            continue
        kernel = json.load(open(report))["models"][0]
        off = [100 * abs(predicted / kernel["observed_s"] - 1)
               for predicted in (kernel["calibrated"]["predicted_s"], kernel["predicted_s"])]
        found[profile] = off
    return found


def figures(rows, at):
    medians = {name: [off[name][at] for off in rows if name in off] for name in PROFILES}
    return " | ".join(f"{statistics.median(all):.1f}" if all else "-" for all in medians.values())


def judge(args, kind, outs):
    by_program = {name: [errors(args, out, name) for out in outs] for name in PROGRAMS}
    by_program["all"] = [off for rows in by_program.values() for off in rows]
    for name, rows in by_program.items():
        print(f"| {kind} | {name} | {figures(rows, 0)} | {figures(rows, 1)} |", flush=True)
    return by_program["all"]


def constants(file, table="", found=None):
    """Name, value and percentiles of all that was measured."""
    tables = tomllib.load(open(file, "rb")) if found is None else found
    for name, of in tables.items():
        if isinstance(of, dict) and of.get("samples"):
            yield table + name, of
        elif isinstance(of, dict):
            yield from constants(file, f"{table}{name}.", of)


def held(outs):
    """How many constants as measured on the machine itself are within the percentiles of the prior."""
    within = []
    for out in outs:
        prior = dict(constants(f"{out}/prior.toml"))
        within += [prior[name]["p10"] <= own["value"] <= prior[name]["p90"]
                   for name, own in constants(f"{out}/own.toml") if "p10" in prior.get(name, {})]
    return f"{sum(within)} of {len(within)}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--machines", type=int, default=5)
    arguments.add_argument("--kinds", default="ssd,hdd,nvme")
    arguments.add_argument("--kernel", default="")
    arguments.add_argument("--out", default=tempfile.mkdtemp())
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("lab", metavar="LAB")
    arguments.add_argument("cli", metavar="CLI")
    args = arguments.parse_args()
    if args.inside:
        return inside(args.lab, os.environ.get("OUT") or args.out, args.cli)
    args.lab, args.cli, args.out = map(os.path.abspath, (args.lab, args.cli, args.out))
    os.makedirs(args.out, exist_ok=True)
    kinds = {kind: list(machines(kind, args.machines)) for kind in args.kinds.split(",")}
    where = {kind: [f"{args.out}/{kind}{at}" for at in range(args.machines)] for kind in kinds}
    for kind, specs in kinds.items():
        for spec, out in zip([*specs, failing(kind)], [*where[kind], f"{args.out}/{kind}-failing"]):
            on(args, spec, out)
    for kind, specs in kinds.items():
        for spec, out in zip(specs, where[kind]):
            others = f"{out}/others"
            os.makedirs(others, exist_ok=True)
            for other in [*where[kind], f"{args.out}/{kind}-failing"]:
                if other != out and os.path.exists(f"{other}/own.toml"):
                    shutil.copy(f"{other}/own.toml", f"{others}/{os.path.basename(other)}.toml")
            on(args, spec, out, "others")
    print("| kind | program |", " | ".join(PROFILES), "|", " | ".join(f"{name}, live" for name in PROFILES), "|")
    print("|---|---|" + "---:|" * 10, flush=True)
    every = [off for kind in kinds for off in judge(args, kind, where[kind])]
    print(f"| all | all | {figures(every, 0)} | {figures(every, 1)} |")
    for kind in kinds:
        named, holds = [], 0
        for out in where[kind]:
            found = json.loads(open(f"{out}/from.json").read() or "{}")
            named += [odd["label"] for odd in found.get("outliers", [])]
            holds += found.get("holds", False)
        counts = ", ".join(f"{label} {named.count(label)} times" for label in sorted(set(named))) or "nobody"
        print(f"{kind}: {holds} of {args.machines} were found to be of the kind; left out: {counts}; constants within "
              f"p10 and p90: {held(where[kind])}")


if __name__ == "__main__":
    main()
