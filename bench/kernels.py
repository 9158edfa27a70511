#!/usr/bin/env python3
"""Writers and programs under other releases of Linux, and what the models make of them.

bench/kernels.py [--rounds N] [--only NAME,...] [--out FOLDER] LAB CLI KERNEL...
e.g. bench/kernels.py target/release/cawl-lab target/release/cawl-cli 6.1 "6.12 --disk hdd" "7.2 --processors 2"

Boots each KERNEL by `cawl-lab kernel`: a release or a path, then its options, then settings of the machine as
/sys/kernel/mm/lru_gen/enabled=y. Calibrates there, runs each scenario N times (2), and prints a table: the observed
time and by how much the predicted sum of all calls was off, in %, in each round: of `kernel` live, as calibrated
on the observed clock, the same on the time without `preempted` and `unexpected` (the daemon shares the machine's
processor), and in open loop; of `cawl` and `naive` in open loop. Level: by how much the modelled dirty level is off in
open loop, in the mean over time, in % of the hard limit. Floor: what the rounds' times differ by. With --out a second
call judges again what is there already.
"""
import argparse
import glob
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
# Limits of throttled scenarios; each writes four times the hard one.
BACKGROUND, HARD = 64 * MIB, 128 * MIB
# Seconds of throttled writing until the kernel's own limit has followed lowered ones (1/32 in 200 ms).
SETTLE = 25
GROUP = "/sys/fs/cgroup/bench"

SQLITE = """
import sqlite3
db = sqlite3.connect('f'); db.execute('pragma journal_mode=%s'); db.execute('create table t(a, b)')
for i in range(%d):
    db.execute('insert into t values(?, ?)', (i, 'x' * 100)); db.commit()
"""
SMALL = """
import os
os.mkdir('f')
for i in range(3000):
    with open('f/%d' % i, 'wb') as file: file.write(b'x' * 3000)
"""
OVER = """
import os, random
random.seed(1)
file = os.open('f', os.O_RDWR | os.O_CREAT)
for i in range(400): os.write(file, b'x' * (1 << 20))
os.fsync(file)
for i in range(6000): os.pwrite(file, b'y' * 4096, random.randrange(400 * 256) * 4096)
"""
# Chunks one after another, a part of each written over by the next; after each it sleeps or computes.
WRITER = """
import os, sys, time
chunk, total, back, think, spin = (float(word) for word in sys.argv[1:])
file, data, at = os.open('f', os.O_RDWR | os.O_CREAT), b'x' * int(chunk), 0
for i in range(int(total / chunk)):
    os.pwrite(file, data, at)
    at += int(chunk * (1 - back)) // 4096 * 4096
    end = time.monotonic() + think
    if think and not spin: time.sleep(think)
    while spin and time.monotonic() < end: pass
"""
# Pages at random places of a file that was there.
SCATTERED = """
import os, random, sys
random.seed(1)
file, pages = os.open('f', os.O_RDWR), os.stat('f').st_size // 4096
for i in range(int(sys.argv[1])): os.pwrite(file, b'y' * 4096, random.randrange(pages) * 4096)
"""


def dd(*words):
    return ["dd", "if=/dev/zero", "of=f", *words]


def python(text, *words):
    return ["python3", "-S", "-c", text, *map(str, words)]


def fio(*words):
    # A thread: under user-mode-linux of 6.1 a fork child still finds its parent's memory where MADV_DONTFORK took it away.
    return ["fio", "--thread", "--name=f", "--filename=f", "--ioengine=psync", *words]


def throttled(rate):
    """Writers beyond the dirty limits; `rate`: of writeback, in bytes/s. Think times are 0.6 of what the disk
    needs for a chunk (the dirty level rises) or 1.4 (it does not)."""
    def writer(chunk, back=0, part=0, spin=0):
        return python(WRITER, chunk, 4 * HARD, back, round(part * chunk / rate, 4), spin)
    chunk = HARD // 32
    return {
        "seq-2M": writer(HARD // 64),
        "seq-8M": writer(HARD // 16),
        "seq-64K": python(WRITER, 64 << 10, 2 * HARD, 0, 0, 0),
        "seq-think": writer(chunk, part=0.6),
        "seq-spin": writer(chunk, part=0.6, spin=1),
        "seq-long": writer(chunk, part=1.4),
        "rnd-half": writer(chunk, 0.5),
        "rnd-half-think": writer(chunk, 0.5, 0.6),
        "rnd-quarter": writer(chunk, 0.25),
        "rnd-quarter-think": writer(chunk, 0.25, 0.6),
        "scattered": python(SCATTERED, 40000),
    }


PROGRAMS = {
    "dd-1200M": dd("bs=1M", "count=1200"),
    "dd-fsync": dd("bs=1M", "count=150", "conv=fsync"),
    "dd-4k": dd("bs=4k", "count=40000"),
    "dd-dsync": dd("bs=64k", "count=300", "oflag=dsync"),
    "dd-direct": dd("bs=256k", "count=400", "oflag=direct"),
    "sqlite-600": python(SQLITE % ("delete", 600)),
    "sqlite-wal": python(SQLITE % ("wal", 1500)),
    "small-3000": python(SMALL),
    "over-6000": python(OVER),
    "tar": ["tar", "cf", "f", "ready"],
    "cp": ["cp", "-r", "ready", "f"],
    "git": ["git", "clone", "-q", "--no-local", "ready-git", "f"],
    "fio-seq": fio("--rw=write", "--bs=64k", "--size=256m", "--end_fsync=1"),
    "fio-random": fio("--rw=randwrite", "--bs=4k", "--size=64m"),
}
# In a group of its own: its limits, and the writer.
GROUPS = {
    "group-memory": ("memory.max=256M", dd("bs=1M", "count=500")),
    "group-io": ("io.max=wbps=20971520", dd("bs=1M", "count=100", "conv=fsync")),
    "group-both": ("memory.max=256M io.max=wbps=20971520", dd("bs=1M", "count=150")),
    "group-scattered": ("memory.max=256M", python(OVER)),
}
KINDS = {"throttled": throttled(1), "program": PROGRAMS, "group": GROUPS}


def chosen(scenarios, only):
    return [name for name in scenarios if name in only]


def put(file, value):
    with open(file, "w") as text:
        text.write(str(value))


def quiet(words, **options):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def prepare():
    """What tar, cp and git read: 1500 files of up to 90 KB, and a repository of them."""
    os.mkdir("ready")
    for folder in range(15):
        os.mkdir(f"ready/{folder}")
        for at in range(100):
            with open(f"ready/{folder}/{at}", "wb") as file:
                file.write(os.urandom(at * at * 9))
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "gc.auto=0"]
    quiet(["git", "init", "-q", "ready-git"])
    quiet(["cp", "-r", "ready", "ready-git/"])
    quiet(["git", "-C", "ready-git", "add", "."])
    quiet(["git", "-C", "ready-git", *identity, "commit", "-qm", "files"])


def measured(cli, name, command, at, group=""):
    """Runs it once; its trace and report go to $OUT."""
    out = os.environ["OUT"]
    quiet(["rm", "-rf", "f", "f-journal", "f-wal", "f-shm"])
    if name == "scattered":
        quiet(dd("bs=1M", "count=256", "conv=fsync"))
    os.sync()
    # Where there is one processor the daemon takes what the program leaves.
    words = ["nice", "-n", "19", cli, "run", "--no-calibrate", "--no-save", "--trace", f"{out}/{name}.{at}.cawl"]
    words += ["--report", f"{out}/{name}.{at}.json", "--", "nice", "-n", "-39", *command]
    if group:
        os.mkdir(GROUP)
        for limit in group.split():
            file, value = limit.split("=", 1)
            device = open("/sys/block/ubda/dev").read().strip() + " " if file == "io.max" else ""
            put(f"{GROUP}/{file}", device + value)
        words = ["sh", "-c", f'echo $$ >{GROUP}/cgroup.procs; exec "$@"', "sh", *words]
    begin = time.monotonic()
    done = quiet(words)
    print(f"{name}.{at}: {time.monotonic() - begin:.1f} s, code {done.returncode}", flush=True)
    if group:
        # Who was killed for want of memory leaves processes.
        put(f"{GROUP}/cgroup.kill", 1)
        while open(f"{GROUP}/cgroup.procs").read():
            time.sleep(0.1)
        os.rmdir(GROUP)
    quiet(["rm", "-rf", "f", "f-journal", "f-wal", "f-shm"])


def inside(cli, rounds, only, settings):
    """Under the other release, on its disk; what it finds goes to $OUT."""
    for setting in settings:
        put(*setting.split("=", 1))
    out = os.environ["OUT"]
    with open(f"{out}/calibrate.txt", "w") as text:
        subprocess.run([cli, "calibrate", "--quick", "."], stdout=text, stderr=text)
    with open(f"{out}/profile.toml", "w") as text:
        subprocess.run([cli, "profile", "show"], stdout=text)
    number, unit = re.search(r"^writeback +([0-9.]+) (.)B/s", open(f"{out}/calibrate.txt").read(), re.M).groups()
    writers = throttled(float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit])
    prepare()
    for at in range(rounds):
        for name in chosen(PROGRAMS, only):
            measured(cli, name, PROGRAMS[name], at)
        for name in chosen(GROUPS, only):
            limits, command = GROUPS[name]
            measured(cli, name, command, at, limits)
    if chosen(writers, only):
        put("/proc/sys/vm/dirty_background_bytes", BACKGROUND)
        put("/proc/sys/vm/dirty_bytes", HARD)
        end = time.monotonic() + SETTLE
        with open("f", "wb") as file:
            while time.monotonic() < end:
                file.write(bytes(MIB))
                if file.tell() > 4 * HARD:
                    file.seek(0)
    for at in range(rounds):
        for name in chosen(writers, only):
            measured(cli, name, writers[name], at)


def off(predicted, observed):
    return 100 * (predicted / observed - 1) if observed > 0 else float("nan")


def level(timeline):
    """By how much the modelled dirty level is off, in the mean, in % of the hard limit."""
    errors, last = [], {}
    for at in range(len(timeline["sampled"]["max"])):
        for kind in ("modelled", "sampled"):
            found = timeline[kind]["max"][at]
            last[kind] = last.get(kind) if found is None else found
        if None not in last.values():
            errors.append(abs(last["modelled"] - last["sampled"]))
    # A run of less than an interval has neither samples nor limits.
    return 100 * statistics.mean(errors) / timeline["limits"][-1]["hard"] if errors else math.nan


def row(cli, out, name):
    """What one run is off by: observed seconds; live, calibrated, undisturbed; open loop; cawl, naive; level."""
    report = json.load(open(f"{out}/{name}.json"))
    kernel, causes = report["models"][0], report["explain"]["causes"]
    observed, calibrated = kernel["observed_s"], kernel["calibrated"]["predicted_s"]
    disturbed = sum(cause["observed_s"] for cause in causes if cause["name"] in ("preempted", "unexpected"))
    again = f"{out}/{name}.again.json"
    models = [cli, "replay", "--open-loop", "--model", "all", "--report", again, f"{out}/{name}.cawl"]
    quiet(models, check=True)
    report = json.load(open(again))
    open_loop = {model["name"]: model["predicted_s"] for model in report["models"]}
    return [
        observed,
        off(kernel["predicted_s"], observed),
        off(calibrated, observed),
        off(calibrated, observed - disturbed),
        *(off(open_loop[model], observed) for model in ("kernel", "cawl", "naive")),
        level(report["timeline"]),
    ]


def table(label, cli, out, rounds, only):
    """Prints the rows of a kernel, and a line for each kind of scenario."""
    summary = []
    for kind, scenarios in KINDS.items():
        errors = []
        for name in chosen(scenarios, only):
            try:
                rows = [row(cli, out, f"{name}.{at}") for at in range(rounds)]
            except (OSError, subprocess.CalledProcessError, KeyError) as error:
                print(f"| {label} | {name} | failed: {error} |", flush=True)
                continue
            times = [columns[0] for columns in rows]
            floor = 100 * (max(times) / min(times) - 1)
            figures = [", ".join(f"{value:.2f}" if at == 0 else f"{value:+.0f}" for value in column)
                       for at, column in enumerate(zip(*rows))]
            print(f"| {label} | {name} | " + " | ".join(figures) + f" | {floor:.0f} |", flush=True)
            errors.append((floor, [statistics.median(map(abs, column)) for column in zip(*rows)]))
        if not errors:
            continue
        medians = [statistics.median(columns) for columns in zip(*(error for _, error in errors))]
        within = sum(error[2] <= max(30, 1.5 * floor) for floor, error in errors)
        summary.append(f"{label}, {kind}: median of |error| live {medians[1]:.1f}, as calibrated {medians[2]:.1f}, "
                       f"undisturbed {medians[3]:.1f}, open loop {medians[4]:.1f}, `cawl` {medians[5]:.1f}, `naive` "
                       f"{medians[6]:.1f}, level {medians[7]:.1f}; as calibrated within max(30 %, 1.5 floors): {within} of {len(errors)}")
    return summary


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--only", default=",".join(KINDS), help="kinds or names: throttled, program, group, tar")
    arguments.add_argument("--out", default=tempfile.mkdtemp())
    arguments.add_argument("--inside", metavar="CLI", help=argparse.SUPPRESS)
    arguments.add_argument("words", nargs="*", metavar="LAB CLI KERNEL...")
    args = arguments.parse_args()
    wanted = args.only.split(",")
    names = [name for kind, names in KINDS.items() for name in names if kind in wanted or name in wanted]
    if args.inside:
        return inside(args.inside, args.rounds, names, args.words)
    if len(args.words) < 3:
        arguments.error("give cawl-lab, cawl-cli and releases")
    lab, cli = map(os.path.abspath, args.words[:2])
    print(f"Load {os.getloadavg()[0]:.1f} when it began, {args.rounds} rounds.\n")
    print("| kernel | scenario | observed, s | live | as calibrated | undisturbed | open loop | `cawl` | `naive` | level | floor |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    summary = []
    for label in args.words[2:]:
        words = label.split()
        settings = [word for word in words[1:] if word.startswith("/")]
        options = [word for word in words[1:] if not word.startswith("/")]
        words[0] = words[0].rstrip("/")
        label = " ".join([os.path.basename(words[0]), *words[1:]])
        out = os.path.join(args.out, re.sub(r"[^\w.]+", "-", label))
        if not glob.glob(f"{out}/*.cawl"):
            command = [sys.executable, os.path.abspath(__file__), "--inside", cli, "--rounds", str(args.rounds)]
            command += ["--only", ",".join(names), *settings]
            boot = [lab, "kernel", words[0], "--patience", "3600", *options, "--out", out, "--", *command]
            subprocess.run(boot, stdout=sys.stderr, check=True)
        summary += table(label, cli, out, args.rounds, names)
    print(f"\nLoad {os.getloadavg()[0]:.1f} when it ended.\n")
    print("\n".join(f"- {line}" for line in summary))


if __name__ == "__main__":
    main()
