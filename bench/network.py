#!/usr/bin/env python3
"""What open, read, write, close and fsync cost on network filesystems: emulated ones of each policy, sshfs and NFS.

Each workload runs on a fresh mount (`cawl-lab run PLACE`), recorded by `cawl-cli run`, three times; the
quickest one counts. A cell of the table is the number of calls on files of the mount and their mean time; places that
this machine cannot have are left out with a word. Needs root. Writes a table in Markdown to stdout.

    bench/network.py CAWL_CLI CAWL_LAB [LATENCY,BANDWIDTH [PLACE…]]
"""
import json, os, subprocess, sys, tempfile

CLI, LAB = (os.path.abspath(program) for program in sys.argv[1:3])
LINK = sys.argv[3] if len(sys.argv) > 3 else "150us,100MB/s"
POLICIES = ["none", "read-only", "write-through", "write-back"]
PLACES = {policy: f"{LINK},policy={policy}" for policy in POLICIES} | {kind: f"{kind},{LINK}" for kind in ["sshfs", "nfs"]}
NAMES = sys.argv[4:] or list(PLACES)
DD = "dd if=/dev/zero of=f status=none"
WORK = {
    "dd, 1024 × 4 KiB": f"{DD} bs=4k count=1024",
    "dd, 32 × 1 MiB": f"{DD} bs=1M count=32",
    "dd, 256 × 4 KiB, fsync": f"{DD} bs=4k count=256 conv=fsync",
    "tar x, 100 × 20 KiB": "tar xf ARCHIVE",
    "8 MiB written, cat twice": f"{DD} bs=1M count=8; cat f >/dev/null; cat f >/dev/null",
}
ROUNDS = 3
OPERATIONS = ["open", "read", "write", "fsync", "close"]


def time(seconds):
    for unit, size in [("s", 1), ("ms", 1e-3)]:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def measure(folder, place, work):
    """Calls and seconds of each operation on files of the mount; a word instead if it cannot be had."""
    report = os.path.join(folder, "report.json")
    inner = [CLI, "run", "--no-calibrate", "--report", report, "--", "sh", "-c", work]
    ended = subprocess.run([LAB, "run", PLACES[place], "--", *inner], capture_output=True, text=True)
    if ended.returncode != 0:
        return (ended.stderr.strip().splitlines() or ["no message"])[-1]
    found = {}
    for file in json.load(open(report))["files"]:
        if file["path"].startswith(("/run/nfs/", f"{tempfile.gettempdir()}/cawl-lab-")):
            for row in file["ops"]:
                calls, seconds = found.get(row["op"], (0, 0))
                found[row["op"]] = (calls + row["calls"], seconds + row["observed_s"])
    os.remove(report)
    return found


def quickest(rounds):
    """The round that took least time in calls; a word if one could not be had."""
    words = [found for found in rounds if isinstance(found, str)]
    return words[0] if words else min(rounds, key=lambda found: sum(seconds for _, seconds in found.values()))


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/t")
        for number in range(100):
            open(f"{folder}/t/{number}", "wb").write(os.urandom(20 << 10))
        archive = f"{folder}/t.tar"
        subprocess.run(["tar", "cf", archive, "-C", folder, "t"], check=True)
        found = {}
        for name in list(NAMES):
            for what, work in WORK.items():
                work = work.replace("ARCHIVE", archive)
                found[what, name] = quickest([measure(folder, name, work) for _ in range(ROUNDS)])
                if isinstance(found[what, name], str):
                    print(f"SKIPPED: {name}: {found[what, name]}", file=sys.stderr)
                    NAMES.remove(name)
                    break
    print(f"Link: {LINK}. Calls × mean time.\n")
    print("| work | call | " + " | ".join(NAMES) + " |\n|---|---|" + "---:|" * len(NAMES))
    for what in WORK:
        for operation in OPERATIONS:
            cells = [found[what, name].get(operation) for name in NAMES]
            if any(cells):
                told = [f"{cell[0]} × {time(cell[1] / cell[0])}" if cell else "" for cell in cells]
                print(f"| {what} | {operation} | " + " | ".join(told) + " |")


main()
