#!/usr/bin/env python3
"""The interval of `predict`: how often it contains the outcome, and how wide it is.

Asks `predict --offline` for the cost of a program's writes, runs the program under `cawl-cli run --no-save`,
and compares with its calls. Programs: dd with and without an fsync, cp, cat into a file, of several sizes, in
turn. Uses the existing profile: run `calibrate` first.

    bench/predict.py CAWL_CLI [FOLDER [ROUNDS]]
"""
import json, os, subprocess, sys, tempfile
from statistics import median

CLI = sys.argv[1]
FOLDER = sys.argv[2] if len(sys.argv) > 2 else "."
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 4
SIZES = [("16M", 16), ("128M", 128), ("1G", 1024)]


def programs(source, to, size, mib):
    dd = ["dd", "if=/dev/zero", f"of={to}", "bs=1M", f"count={mib}"]
    yield f"dd {size}", ["--chunk", "1M"], dd
    yield f"dd {size} fsync", ["--chunk", "1M", "--fsync"], [*dd, "conv=fsync"]
    yield f"dd {size} bs=4k", ["--chunk", "4K"], ["dd", "if=/dev/zero", f"of={to}", "bs=4k", f"count={256 * mib}"]
    # The kernel copies 64 KiB at a time.
    yield f"cp {size}", ["--chunk", "64K"], ["cp", source, to]
    yield f"cat {size}", ["--chunk", "128K"], ["sh", "-c", f"cat '{source}' > '{to}'"]


held, widths, offs = [], [], []
with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
    source, to, report = (os.path.join(folder, name) for name in ("source", "to", "report.json"))
    for _ in range(ROUNDS):
        for size, mib in SIZES:
            with open(source, "wb") as file:
                file.writelines(os.urandom(1 << 20) for _ in range(mib))
                os.fsync(file.fileno())
            for name, how, command in programs(source, to, size, mib):
                ask = [CLI, "predict", "--offline", "--json", "--bytes", size, "--path", to, *how]
                said = json.loads(subprocess.run(ask, check=True, capture_output=True, text=True).stdout)
                run = [CLI, "run", "--no-save", "--no-calibrate", "--report", report, "--", *command]
                subprocess.run(run, check=True, stderr=subprocess.DEVNULL)
                took = json.load(open(report))["models"][0]["observed_s"]
                os.unlink(to)
                low, high = said["p10_s"], said["p90_s"]
                if low is None:
                    sys.exit("no profile: make one with `cawl-cli calibrate`")
                held.append(low <= took <= high)
                widths.append(high / low)
                offs.append(abs(said["cost_s"] / took - 1))
                print(f"{name:14} {said['cost_s']:7.3f} s ({low:.3f} to {high:.3f}), took {took:.3f}"
                      f"{'' if held[-1] else '  outside'}", flush=True)
print(f"intervals hold {sum(held)} of {len(held)}; p90/p10 {median(widths):.1f} in the median; "
      f"off by {100 * median(offs):.0f} % in the median")
