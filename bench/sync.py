#!/usr/bin/env python3
"""Costs of small writes and syncs by pattern: observed, predicted as calibrated and live, from the same traces.

Usage: bench/sync.py CAWL-CLI PROFILE [CAWL-CLI PROFILE]

Each program with its profile is a column; the first one records. Patterns: those of bench/sync.c, and
sqlite3, tar, git, rsync and dd as far as installed. Works in its own folder under TMPDIR. Medians and sums
are of single calls, in µs."""
import json, os, shutil, statistics, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
columns = [(os.path.abspath(sys.argv[i]), os.path.abspath(sys.argv[i + 1])) for i in range(1, len(sys.argv), 2)]
rounds = os.environ.get("ROUNDS", "1000")
if not columns:
    sys.exit(__doc__)


def commits(mode, count):
    """sqlite3's input for so many transactions."""
    lines = [f"pragma journal_mode={mode}; pragma synchronous=full; create table t(a integer primary key, b blob);"]
    lines += [f"insert into t(b) values(randomblob({200 + i % 700}));" for i in range(count)]
    return "\n".join(lines)


def programs(work):
    """Names, and commands with their input."""
    names = "append-fdatasync append-fsync append-1000 same-fdatasync same-fsync random log log-again rollback files".split()
    for name in names:
        yield name, ["./sync", name, rounds, "f"], None
    if shutil.which("sqlite3"):
        yield "sqlite3, log", ["sqlite3", "log.db"], commits("wal", 2500)
        yield "sqlite3, rollback", ["sqlite3", "rollback.db"], commits("delete", 1500)
    tree = os.environ.get("TREE")
    if tree:
        subprocess.run(["tar", "cf", "tree.tar", "-C", tree, "."], cwd=work, check=True)
        yield "tar x", ["sh", "-c", "mkdir tree && tar xf tree.tar -C tree"], None
        yield "rsync", ["rsync", "-a", "tree/", "copy/"], None
    if os.environ.get("REPOSITORY"):
        yield "git clone", ["git", "clone", "-q", "--no-local", os.environ["REPOSITORY"], "clone"], None
    yield "dd, 4 KiB", ["dd", "if=/dev/zero", "of=d", "bs=4k", "count=262144"], None


def calls(cawl, profile, trace, *mode):
    """Operation, observed and predicted time of each call with a prediction, in µs."""
    words = [cawl, "replay", trace, "--model", "kernel", "--profile", profile, "--calls", "--json", *mode]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as run:
        for line in run.stdout:
            call = json.loads(line)
            if call.get("predictions"):
                kind = "sync" if "sync" in call["op"] else "write"
                yield kind, call["observed_s"] * 1e6, call["predictions"][0]["predicted_s"] * 1e6


def main():
    with tempfile.TemporaryDirectory(prefix="sync-") as work:
        subprocess.run(["cc", "-O2", "-o", f"{work}/sync", f"{here}/sync.c"], check=True)
        print("| what | calls | n | observed: median, sum ms |" + " calibrated: median, sum | live: sum |" * len(columns))
        print("|---|---|---:|---:|" + "---:|---:|" * len(columns))
        for name, words, text in programs(work):
            trace = f"{work}/trace"
            run = [columns[0][0], "run", "--profile", columns[0][1], "--trace", trace, "--report", f"{work}/r.json", "--"]
            subprocess.run(run + words, cwd=work, input=text, text=True, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            modes = [["--lockstep"], ["--lockstep", "--learn"]]
            told = [list(calls(*column, trace, *mode)) for column in columns for mode in modes]
            for kind in ["write", "sync"]:
                of = [[(seen, said) for what, seen, said in run if what == kind] for run in told]
                if not of[0]:
                    continue
                seen = [seen for seen, _ in of[0]]
                total = sum(seen)
                row = f"| {name} | {kind} | {len(seen)} | {statistics.median(seen):.2f}, {total / 1e3:.1f} |"
                for at, run in enumerate(of):
                    said = [said for _, said in run]
                    off = f"{100 * (sum(said) / total - 1):+.0f} %"
                    row += f" {off} |" if at % 2 else f" {statistics.median(said):.2f}, {off} |"
                print(row, flush=True)
            for file in os.listdir(work):
                if file.startswith(("f", "d")):
                    os.remove(f"{work}/{file}")


main()
