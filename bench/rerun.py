#!/usr/bin/env python3
"""How near `rerun` of an unchanged trace comes to the program that was traced.

Each round traces a program and makes its calls again. Compared is the time in calls, the program's without waits for a
processor (it shares two processors with the daemon, a rerun does not); the floor is the mean distance of the rounds
from their median, of both. Writes a table in Markdown to stdout.

    bench/rerun.py CAWL_CLI [FOLDER [ROUNDS]]
"""
import json, os, shutil, subprocess, sys, tempfile
from statistics import mean, median

CLI = sys.argv[1]
PLACE = sys.argv[2] if len(sys.argv) > 2 else "."
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5

SQL = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text)")
for n in range(300): db.execute("INSERT INTO t VALUES (?, ?)", (n, "x" * 200))
db.close()
"""


def programs(source, archive, to):
    yield "dd", ["dd", "if=/dev/zero", f"of={to}/file", "bs=64K", "count=4000", "conv=fsync"]
    yield "dd dsync", ["dd", "if=/dev/zero", f"of={to}/file", "bs=4K", "count=1000", "oflag=dsync"]
    yield "sqlite", [sys.executable, "-c", SQL, f"{to}/db"]
    yield "tar", ["tar", "xf", archive, "-C", to]
    yield "rsync", ["rsync", "-a", source, to]


def clean(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()


print("| program | calls | program, ms | rerun, ms | off | floor | late, p99 µs | holds |\n|---|---:|---:|---:|---:|---:|---:|---|")
with tempfile.TemporaryDirectory(dir=PLACE) as folder, tempfile.TemporaryDirectory() as own:
    source, archive = os.path.join(own, "source"), os.path.join(own, "archive.tar")
    os.makedirs(source)
    for n in range(2000):
        with open(os.path.join(source, f"file{n}"), "wb") as file:
            file.write(os.urandom(500 + n * 37 % 20000))
    subprocess.run(["tar", "cf", archive, "-C", own, "source"], check=True)
    to, again = os.path.join(folder, "to"), os.path.join(folder, "again")
    trace, report = os.path.join(own, "trace.cawl"), os.path.join(own, "report.json")
    for name, command in programs(source, archive, to):
        first, second, late, calls = [], [], [], 0
        for at in range(ROUNDS + 1):
            clean(to)
            os.makedirs(to)
            run = [CLI, "run", "--no-save", "--no-calibrate", "--trace", trace, "--report", report, "--", *command]
            subprocess.run(run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            told = json.load(open(report))["explain"]
            waited = sum(one["observed_s"] for one in told["causes"] if one["name"] in ("preempted", "discard"))
            clean(to)
            rerun = [CLI, "rerun", trace, "--dir", again, "--json"]
            made = json.loads(subprocess.run(rerun, check=True, capture_output=True, text=True).stdout)
            clean(again)
            if at > 0:  # The first warms up.
                first.append(told["observed_s"] - waited)
                second.append(made["rerun"]["total_s"])
                late.append(made["late"]["p99_s"])
                calls = made["rerun"]["calls"]
        off = median(second) / median(first) - 1
        floor = sum(mean(abs(one / median(runs) - 1) for one in runs) for runs in (first, second))
        print(f"| {name} | {calls} | {1e3 * median(first):.1f} | {1e3 * median(second):.1f} | {100 * off:+.0f} % | "
              f"{100 * floor:.0f} % | {1e6 * median(late):.0f} | {'yes' if abs(off) <= 1.5 * floor else 'no'} |", flush=True)
