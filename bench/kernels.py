#!/usr/bin/env python3
"""Programs under other releases of Linux, and what the models make of them.

bench/kernels.py [--rounds N] [--out FOLDER] LAB CLI RELEASE...   e.g. target/release/cawl-lab target/release/cawl-cli 6.1 6.12

Boots each release by `cawl-lab kernel`, calibrates there, runs each program N times (2), and prints a table:
the observed time, and by how much the predicted sum was off, in %: of `kernel` live, as calibrated, and as
calibrated on the time without `preempted` and `unexpected` (user-mode-linux has one processor, which the daemon
shares); of `cawl` and `naive` as calibrated.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SQLITE = """
import sqlite3
db = sqlite3.connect('f'); db.execute('create table t(a, b)')
for i in range(600):
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


def dd(*words):
    return ["dd", "if=/dev/zero", "of=f", *words]


PROGRAMS = {
    "dd-1200M": dd("bs=1M", "count=1200"),
    "dd-fsync": dd("bs=1M", "count=150", "conv=fsync"),
    "dd-4k": dd("bs=4k", "count=40000"),
    "dd-dsync": dd("bs=64k", "count=300", "oflag=dsync"),
    "sqlite-600": ["python3", "-S", "-c", SQLITE],
    "small-3000": ["python3", "-S", "-c", SMALL],
    "over-6000": ["python3", "-S", "-c", OVER],
}


def inside(cli, rounds):
    """Under the other release, on its disk; what it finds goes to $OUT."""
    out = os.environ["OUT"]
    with open(f"{out}/calibrate.txt", "w") as text:
        subprocess.run([cli, "calibrate", "--quick", "."], stdout=text, stderr=text)
    for at in range(rounds):
        for name, command in PROGRAMS.items():
            os.sync()
            words = [cli, "run", "--no-calibrate", "--trace", f"{out}/{name}.{at}.cawl"]
            words += ["--report", f"{out}/{name}.{at}.json", "--", *command]
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            subprocess.run("rm -rf f f-journal", shell=True)


def off(predicted, observed):
    return 100 * (predicted / observed - 1) if observed > 0 else float("nan")


def row(cli, out, name):
    """What one run is off by: observed seconds, live, calibrated, undisturbed, cawl, naive."""
    report = json.load(open(f"{out}/{name}.json"))
    kernel, causes = report["models"][0], report["explain"]["causes"]
    observed, calibrated = kernel["observed_s"], kernel["calibrated"]["predicted_s"]
    disturbed = sum(cause["observed_s"] for cause in causes if cause["name"] in ("preempted", "unexpected"))
    again = f"{out}/{name}.again.json"
    models = [cli, "replay", "--lockstep", "--model", "cawl,naive", "--report", again, f"{out}/{name}.cawl"]
    subprocess.run(models, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    others = {model["name"]: model["predicted_s"] for model in json.load(open(again))["models"]}
    return [
        observed,
        off(kernel["predicted_s"], observed),
        off(calibrated, observed),
        off(calibrated, observed - disturbed),
        *(off(others[model], observed) for model in ("cawl", "naive")),
    ]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--out", default=tempfile.mkdtemp())
    arguments.add_argument("--inside", metavar="CLI", help=argparse.SUPPRESS)
    arguments.add_argument("words", nargs="*", metavar="LAB CLI RELEASE...")
    args = arguments.parse_args()
    if args.inside:
        return inside(args.inside, args.rounds)
    if len(args.words) < 3:
        arguments.error("give cawl-lab, cawl-cli and releases")
    lab, cli = map(os.path.abspath, args.words[:2])
    print("| kernel | program | observed, s | live | as calibrated | undisturbed | `cawl` | `naive` |")
    print("|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for release in args.words[2:]:
        out = os.path.join(args.out, os.path.basename(release))
        command = [sys.executable, os.path.abspath(__file__), "--inside", cli, "--rounds", str(args.rounds)]
        subprocess.run([lab, "kernel", release, "--out", out, "--", *command], check=True)
        for name in PROGRAMS:
            rows = [row(cli, out, f"{name}.{at}") for at in range(args.rounds)]
            figures = [", ".join(f"{value:.2f}" if at == 0 else f"{value:+.0f}" for value in column)
                       for at, column in enumerate(zip(*rows))]
            print(f"| {release} | {name} | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    main()
