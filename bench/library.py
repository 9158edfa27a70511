#!/usr/bin/env python3
"""What a call through libcawl takes beyond the same call in Rust: `bench/library.py [RUNS]`.

The work `sequential` of crates/cawl-core/benches/work.rs and bench/library.c: writes of 4 KiB that append to a file,
throttled most of the time. In instructions (callgrind), and in ns of the processor: quantiles of interleaved runs,
since what else the machine does only adds to the time. 20 ns are allowed; bench/accept counts the instructions.
"""

import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).resolve().parent.parent


def build(folder):
    """Both programs, in Rust and in C, without the number of calls."""
    built = subprocess.run(["cargo", "bench", "-q", "-p", "cawl-core", "--bench", "work", "--no-run", "--locked",
                            "--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found = [json.loads(line) for line in built.stdout.splitlines()]
    rust = next(one["executable"] for one in found if one.get("executable"))
    for steps in [["-S", ROOT / "crates/cawl-ffi", "-B", f"{folder}/build", f"-DCMAKE_INSTALL_PREFIX={folder}",
                   "-DCMAKE_INSTALL_LIBDIR=lib"], ["--build", f"{folder}/build", "--target", "install"]]:
        subprocess.run(["cmake", *steps], check=True, stdout=subprocess.DEVNULL)
    flags = [f"-I{folder}/include", f"-L{folder}/lib", "-lcawl", f"-Wl,-rpath,{folder}/lib"]
    subprocess.run(["cc", "-O2", "-o", f"{folder}/library", ROOT / "bench/library.c", *flags], check=True)
    return [rust, "sequential"], [f"{folder}/library"]


def instructions(command, calls):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out.name}", *command, str(calls)],
                       check=True)
        return int(re.search(r"^(?:summary|totals): (\d+)", Path(out.name).read_text(), re.M)[1])


def beyond(both):
    """Instructions of a call in Rust and in C."""
    return [(instructions(command, 21000) - instructions(command, 1000)) / 20000 for command in both]


def ns(command, calls=400_000):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([*command, str(calls)], check=True)
    return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) / calls * 1e9


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory(prefix="cawl-library-", dir="/var/tmp") as folder:
        both = build(folder)
        rows = [("instructions", *beyond(both))]
        timed = [[ns(command) for command in both] for _ in range(runs)]
    tenths = [quantiles(column, n=10) for column in zip(*timed)]
    rows += [(f"ns, {name} of {runs}", *(of[at] for of in tenths)) for name, at in [("10 %", 0), ("median", 4)]]
    print("| a write of 4 KiB | Rust | C | beyond |\n|---|---|---|---|")
    for name, rust, c in rows:
        print(f"| {name} | {rust:.0f} | {c:.0f} | {c - rust:.0f} |")


if __name__ == "__main__":
    main()
