#!/usr/bin/env python3
"""What `whatif --buffer 64K` says of programs in C++, Python and Java, beside the same programs with it.

bench/buffers.py CAWL_CLI FOLDER [ROUNDS]

Needs g++, javac and a profile of the folder's device. Prints ratios of the time in calls on each file, after
over before and without waits for a processor: medians and ranges. The two runs of a round take turns.
"""

import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
APPS = os.path.join(HERE, "../tests/apps")
CLI = os.path.abspath(sys.argv[1])


def traced(words, trace):
    report = trace + ".json"
    run = [CLI, "run", "--no-save", "--trace", trace, "--report", report, "--", *words]
    subprocess.run(run, check=True, capture_output=True)
    with open(report) as file:
        files = json.load(file)["files"]
    own = lambda op: op["observed_s"] - op["causes"].get("preempted", 0)
    return {os.path.basename(file["path"]): sum(map(own, file["ops"])) for file in files}


def on_paper(trace, file, *changes):
    ask = [CLI, "whatif", trace, "--only", "*/" + file, *changes, "--json"]
    return json.loads(subprocess.run(ask, check=True, capture_output=True).stdout)["after"]["total_s"]


def shown(ratios):
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main():
    os.chdir(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    subprocess.run(["g++", "-O2", "-o", "buffered", APPS + "/buffered.cpp"], check=True)
    subprocess.run(["javac", "-d", ".", APPS + "/Buffered.java"], check=True)
    print("| program, file | observed | whatif |\n|---|---|---|")
    for name, words, files in [
        ("C++", ["./buffered"], ["lines", "records"]),
        ("Python", [sys.executable, "-B", APPS + "/buffered.py"], ["lines", "records", "pieces"]),
        ("Java", ["java", "-cp", ".", "Buffered"], ["lines", "records", "pieces"]),
    ]:
        observed, said = ({file: [] for file in files} for _ in range(2))
        for _ in range(rounds):
            default, larger = (traced([*words, size], f"{size}.trace") for size in ["0", "65536"])
            for file in files:
                observed[file].append(larger[file] / default[file])
                changed = on_paper("0.trace", file, "--buffer", "64K")
                said[file].append(changed / on_paper("0.trace", file))
        for file in files:
            print(f"| {name}, {file} | {shown(observed[file])} | {shown(said[file])} |", flush=True)


main()
