#!/usr/bin/env python3
"""Three programs with a planted fault: is its remedy advised first, and does it gain what was predicted?

Usage: bench/advise.py CAWL-CLI [DIR]

Runs each program of bench/advise.c, then with the fix made in the program, ROUNDS times each in turn (default 5),
advises on the last trace, and prints a table in Markdown: the first advice, the ratio of the time in calls after over
before as predicted for the fix from each trace and as observed (medians), and the noise: the largest part by which a
run of either kind is off its median. DIR (default: a new folder under TMPDIR) is on the disk to measure.

Limits are lowered for the third program if LIMITS=BACKGROUND,HARD is set, in bytes, which needs root; its fix
is then limits eight times as high, and they are set back at the end. Without it, it is throttled only where the
machine's limits are below 1 GiB, and its fix is to append."""
import json, os, statistics, subprocess, sys, tempfile

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
here = os.path.dirname(os.path.abspath(__file__))
cawl = os.path.abspath(sys.argv[1])
rounds = int(os.environ.get("ROUNDS", "5"))
SETTINGS = ["dirty_background_bytes", "dirty_bytes", "dirty_background_ratio", "dirty_ratio"]
# Program, its argument with the fault and with the fix, and the fix as `whatif` has it.
PROGRAMS = [
    ("1 B appends, fsync each", "appends", "1", "16", ["--fsync", "every=16"]),
    ("512 B records, no stream buffer", "stream", "0", "65536", ["--buffer", "64K"]),
    ("4 KiB at random, rewritten", "rewrite", "random", "append", ["--append-only"]),
]


def setting(name, value=None):
    """A setting of the kernel's, set if there is a value."""
    path = f"/proc/sys/vm/{name}"
    if value is not None:
        with open(path, "w") as file:
            file.write(value)
    with open(path) as file:
        return file.read().strip()


def in_calls(program, work, trace):
    """Records the program; what its calls took without waits for a processor, in seconds."""
    os.sync()
    report = f"{work}/report.json"
    words = [cawl, "run", "--no-save", "--trace", trace, "--report", report, "--", f"{work}/advise", *program]
    subprocess.run(words, cwd=work, check=True, stdout=subprocess.DEVNULL)
    with open(report) as file:
        explained = json.load(file)["explain"]
    waited = sum(cause["observed_s"] for cause in explained["causes"] if cause["name"] == "preempted")
    os.remove(program[1])
    return explained["observed_s"] - waited


def asked(*words):
    return json.loads(subprocess.run([cawl, *words, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def limit(values):
    for name, value in zip(("dirty_background_bytes", "dirty_bytes"), values):
        setting(name, str(value))


def compare(name, kind, fault, fix, change, work, limits=None):
    file = f"{work}/out"
    before, after, said = [], [], []
    for at in range(rounds):
        if limits:
            limit(limits[0])
        before.append(in_calls([kind, file, fault], work, f"{work}/fault.trace"))
        said.append(asked("whatif", f"{work}/fault.trace", *change))
        if limits:
            limit(limits[1])
        after.append(in_calls([kind, file, fix], work, f"{work}/fix.trace"))
    advice = asked("advise", f"{work}/fault.trace")["advice"]
    first = advice[0]["what"] if advice else "nothing"
    others = [other["what"] for other in advice[0]["alternatives"]] if advice else []
    was, now = statistics.median(before), statistics.median(after)
    predicted = statistics.median(one["ratio"] for one in said)
    noise = max(abs(run / was - 1) for run in before), max(abs(run / now - 1) for run in after)
    low, high = (statistics.median(one["interval"][end] for one in said) for end in (0, 1))
    print(f"| {name} | {first}{'; or ' + ', '.join(others) if others else ''} | {' '.join(change)} "
          f"| {predicted:.3f} ({low:.3f} to {high:.3f}) | {now / was:.3f} | {was * 1e3:.1f} ms "
          f"| {now * 1e3:.1f} ms | {max(noise) * 100:.0f} % |", flush=True)


def main():
    limits = os.environ.get("LIMITS")
    saved = {name: setting(name) for name in SETTINGS}
    place = os.path.abspath(sys.argv[2]) if len(sys.argv) == 3 else None
    with tempfile.TemporaryDirectory(prefix="advise-", dir=place) as work:
        subprocess.run(["cc", "-O2", "-o", f"{work}/advise", f"{here}/advise.c"], check=True)
        print("| program | first advice | fix | predicted ratio | observed | before | after | noise |")
        print("|---|---|---|---:|---:|---:|---:|---:|")
        try:
            for name, kind, *rest in PROGRAMS:
                lower = kind == "rewrite" and limits
                if lower:
                    # Under low limits the remedy is of the machine: limits eight times as high.
                    low = [int(limit) for limit in limits.split(",")]
                    high = [8 * limit for limit in low]
                    rest = ["random", "random", ["--limits", ",".join(map(str, high))]]
                compare(name, kind, *rest, work, (low, high) if lower else None)
        finally:
            # Of bytes and ratio the one that is not zero is set; it clears the other.
            for name in SETTINGS if limits else []:
                if saved[name] != "0":
                    setting(name, saved[name])


main()
