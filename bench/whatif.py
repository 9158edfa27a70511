#!/usr/bin/env python3
"""What `whatif` says against what a changed program really does.

Each program is traced, `whatif` is asked about a change, and the program is traced with the change made in it (dd's
flags, sqlite's pragmas, setvbuf, fewer fsyncs, another order). Compared are the ratios of the time in calls without
waits for a processor, after over before: of each round, whose two runs follow each other in turns, and then the
median of the rounds. The floor is how far the rounds' ratios lie apart: their mean distance from that median, and not
less than half a percent. Calibrates first.
Writes a table in Markdown to stdout.

    bench/whatif.py CAWL_CLI [PLACE [ROUNDS [NAME…]]]

PLACE is a folder, or a disk of the lab (ssd, hdd, nvme; as root, with cawl-lab beside CAWL_CLI), on which programs
write fewer bytes: an eighth on the hdd, half on the others.
"""
import contextlib, json, os, subprocess, sys, tempfile
from statistics import mean, median

CLI = sys.argv[1]
PLACE = sys.argv[2] if len(sys.argv) > 2 else "."
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
NAMES = sys.argv[4:]
IS_DISK = PLACE in ("ssd", "hdd", "nvme")
LEAST = 0.005
SCALE = {"hdd": 8, "ssd": 2, "nvme": 2}.get(PLACE, 1)

STREAM = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    FILE *f = fopen(argv[1], "w");
    size_t size = strtoul(argv[2], 0, 10);
    int lines = atoi(argv[3]);
    setvbuf(f, malloc(size), _IOFBF, size);
    for (int i = 0; i < lines; i++) fprintf(f, "%d: a line of a log that somebody may want to read %d\n", i, i * 7);
    return fclose(f);
}
"""
# Appends of 4 KiB, with an fsync after every so many; "end": one.
COMMITS = """
import os, sys
to, every, sync, count = sys.argv[1], sys.argv[2], getattr(os, sys.argv[3]), int(sys.argv[4])
fd, data = os.open(to, os.O_WRONLY | os.O_CREAT, 0o600), b"x" * 4096
for n in range(1, count + 1):
    os.write(fd, data)
    if every.isdigit() and int(every) and n % int(every) == 0: sync(fd)
if every == "end": sync(fd)
os.close(fd)
"""
# Pages of a file written in a random order, with an fsync after every 512.
RANDOM = """
import os, random, sys
to, order, every, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
fd, data = os.open(to, os.O_WRONLY | os.O_CREAT, 0o600), b"x" * 4096
places = list(range(count)); random.Random(7).shuffle(places)
if order == "append": places.sort()
for at in range(0, count, 512):
    part = places[at:at + 512]
    if order == "sorted": part.sort()
    for place in part: os.pwrite(fd, data, place * 4096)
    if every and (at // 512 + 1) % every == 0: os.fsync(fd)
os.close(fd)
"""
SQL = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for pragma in sys.argv[3:]: db.execute("PRAGMA " + pragma).fetchall()
db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text)")
for n in range(int(sys.argv[2])): db.execute("INSERT INTO t VALUES (?, ?)", (n, "x" * 200))
db.close()
"""


def programs(to, stream):
    def dd(size, mib, *more):
        count = mib * (1 << 20) // SCALE // size
        return ["dd", "if=/dev/zero", f"of={to}", f"bs={size}", f"count={count}", *more]

    def commits(every, sync):
        return ["python3", "-c", COMMITS, to, every, sync, str(480 // SCALE)]

    def random(order, every):
        return ["python3", "-c", RANDOM, to, order, every, str(8192 // SCALE)]

    def lines(size):
        return [stream, to, size, "200000"]

    def sql(*pragmas):
        return ["python3", "-c", SQL, to, str(300 // SCALE), *pragmas]

    k, m = 1 << 10, 1 << 20
    yield "dd 64K", dd(64 * k, 64), [
        ("--merge 1M", dd(m, 64)), ("--split 4K", dd(4 * k, 64)), ("--split 16K", dd(16 * k, 64)),
        ("--dsync on", dd(64 * k, 64, "oflag=dsync")), ("--sync on", dd(64 * k, 64, "oflag=sync")),
        ("--direct on", dd(64 * k, 64, "oflag=direct"))]
    yield "dd 4K dsync", dd(4 * k, 8, "oflag=dsync"), [
        ("--dsync off", dd(4 * k, 8)), ("--merge 16K", dd(16 * k, 8, "oflag=dsync")),
        ("--merge 64K", dd(64 * k, 8, "oflag=dsync")), ("--merge 1M", dd(m, 8, "oflag=dsync")),
        ("--direct on", dd(4 * k, 8, "oflag=dsync,direct")), ("--sync on", dd(4 * k, 8, "oflag=sync"))]
    yield "dd 1M fsync", dd(m, 256, "conv=fsync"), [
        ("--fsync none", dd(m, 256)), ("--fdatasync", dd(m, 256, "conv=fdatasync")),
        ("--split 64K", dd(64 * k, 256, "conv=fsync")), ("--dsync on", dd(m, 256, "conv=fsync", "oflag=dsync")),
        ("--direct on", dd(m, 256, "conv=fsync", "oflag=direct")),
        ("--merge 4M", dd(4 * m, 256, "conv=fsync"))]
    yield "commits", commits("1", "fsync"), [
        ("--fsync every=4", commits("4", "fsync")), ("--fsync every=16", commits("16", "fsync")),
        ("--fsync end", commits("end", "fsync")), ("--fsync none", commits("0", "fsync")),
        ("--fdatasync", commits("1", "fdatasync")),
        ("--fsync every=4 --fdatasync", commits("4", "fdatasync"))]
    yield "random 4K", random("random", "1"), [
        ("--sort", random("sorted", "1")), ("--append-only", random("append", "1")),
        ("--fsync every=4", random("random", "4")), ("--fsync none", random("random", "0")),
        ("--fsync every=4 --sort", random("sorted", "4")),
        ("--fsync none --append-only", random("append", "0"))]
    yield "stream 4K", lines("4096"), [
        (f"--buffer {size}", lines(size)) for size in ("512", "1024", "16384", "65536", "262144", "1048576")]
    yield "sqlite", sql("synchronous=FULL"), [
        ("--fsync none", sql("synchronous=OFF")),
        # Without a journal there is no directory to sync either.
        (f"--drop *-journal --drop {os.path.dirname(to)}",
         sql("synchronous=FULL", "journal_mode=MEMORY")),
        ("--drop *-journal --fsync none", sql("synchronous=OFF", "journal_mode=MEMORY"))]


@contextlib.contextmanager
def place():
    """Where programs write: a folder of its own, of the folder or the disk that is asked for."""
    if not IS_DISK:
        with tempfile.TemporaryDirectory(dir=os.path.abspath(PLACE)) as folder:
            yield folder
        return
    lab = [os.path.join(os.path.dirname(CLI), "cawl-lab"), "--disk", PLACE, "--supervised"]
    with subprocess.Popen(lab, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as disk:
        yield os.path.join(json.loads(disk.stdout.readline())["mount"], "files")
        disk.stdin.close()


def traced(command, to, trace, report):
    for name in os.listdir(os.path.dirname(to)):
        os.unlink(os.path.join(os.path.dirname(to), name))
    os.sync()
    run = [CLI, "run", "--profile", PROFILE, "--report", report, "--trace", trace, "--", *command]
    subprocess.run(run, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    told = json.load(open(report))["explain"]
    waited = sum(one["observed_s"] for one in told["causes"] if one["name"] in ("preempted", "discard"))
    return told["observed_s"] - waited


print("| program | change | said | interval | real | off | floor | holds |\n|---|---|---:|---|---:|---:|---:|---|")
holds, signs = [], []
with place() as folder, tempfile.TemporaryDirectory() as own:
    os.makedirs(folder, exist_ok=True)
    PROFILE = os.path.join(own, "profile.toml")
    subprocess.run([CLI, "calibrate", "--quick", "-o", PROFILE, folder], check=True, capture_output=True)
    source, stream, report = (os.path.join(own, name) for name in ("stream.c", "stream", "report.json"))
    open(source, "w").write(STREAM)
    subprocess.run(["cc", "-O2", "-o", stream, source], check=True)
    for name, command, changes in programs(os.path.join(folder, "file"), stream):
        if NAMES and name not in NAMES:
            continue
        to = os.path.join(folder, "file")
        for change, changed in changes:
            before, after, said = [], [], []
            trace, other = (os.path.join(own, name) for name in ("trace.cawl", "changed.cawl"))
            for at in range(ROUNDS):
                runs = [(before, command, trace), (after, changed, other)]
                for found, program, record in runs if at % 2 == 0 else reversed(runs):
                    found.append(traced(program, to, record, report))
                ask = [CLI, "whatif", trace, "--json", *change.split()]
                said.append(json.loads(subprocess.run(ask, check=True, capture_output=True, text=True).stdout))
            told = median(one["ratio"] for one in said)
            low, high = (median(one["interval"][end] for one in said) for end in (0, 1))
            ratios = [after / before for before, after in zip(before, after)]
            real = median(ratios)
            floor = max(LEAST, mean(abs(ratio / real - 1) for ratio in ratios))
            off = told / real - 1
            holds.append(abs(off) <= max(0.15, 1.5 * floor))
            if abs(real - 1) > floor:
                signs.append((told < 1) == (real < 1))
            change = change.replace(folder, "FOLDER")
            print(f"| {name} | `{change}` | {told:.3f} | {low:.3f} to {high:.3f} | {real:.3f} | {100 * off:+.0f} % | "
                  f"{100 * floor:.0f} % | {'yes' if holds[-1] else 'no'} |", flush=True)
print(f"\nWithin 15 % or 1.5 × the floor: {sum(holds)} of {len(holds)}; the right side of 1, where the real change "
      f"exceeds the floor: {sum(signs)} of {len(signs)}.")
