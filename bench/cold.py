#!/usr/bin/env python3
"""The onset of cold memory: predicted and observed.

Writes 1 GiB in calls of 1 MiB into a new file, 0 to 60 s after another file was removed, under `cawl-cli
run`. A replay in lockstep, with free memory as sampled before the first call, predicts the first of eight
consecutive cold calls; the observed onset is compared with it. Then asks `predict --offline` for the cost of
4 GiB, and writes them. Needs root, a machine whose host takes free memory back, and a profile with
memory.cold.

    bench/cold.py CAWL_CLI [FOLDER [ROUNDS]]
"""
import json, os, subprocess, sys, tempfile, time

CLI = sys.argv[1]
FOLDER = sys.argv[2] if len(sys.argv) > 2 else "."
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 10
RESTS = [0, 0.2, 0.5, 1, 2, 4, 6, 10, 20, 60]
ROW = 8


def dd(path, count, under=()):
    command = [*under, "dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={count}"]
    begin = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def onset(costs, border):
    """MB before the first row of calls that most take longer than border seconds."""
    cold = [cost > border for cost in costs]
    for at in range(len(cold) - ROW + 1):
        if cold[at] and sum(cold[at : at + ROW]) > ROW // 2:
            return at
    return len(cold)


def writing(rest):
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        before, path, trace = (os.path.join(folder, name) for name in ("before", "file", "trace"))
        dd(before, 1024)
        os.unlink(before)
        time.sleep(rest)
        run = [CLI, "run", "--trace", trace, "--report", os.path.join(folder, "report.txt"), "--"]
        dd(path, 1024, run)
        text = subprocess.run([CLI, "replay", trace, "--lockstep", "--model", "kernel", "--calls", "--json"],
                              check=True, capture_output=True, text=True).stdout
    calls = [json.loads(line) for line in text.splitlines()]
    calls = [call for call in calls if call["op"] == "write" and call["path"].endswith("/file")]
    predicted = [call["predictions"][0]["predicted_s"] for call in calls]
    observed = [call["observed_s"] for call in calls]
    # Between the cost of a warm mebibyte and of a cold one, whatever other waits the call had.
    border = 3 * sorted(observed)[len(observed) // 20]
    found = onset(predicted, 3 * min(predicted)), onset(observed, border)
    near = abs(found[0] - found[1]) <= max(64, 0.25 * found[1])
    print(f"rest {rest:4} s: cold from {found[0]:4} MB on foreseen, {found[1]:4} observed, {'near' if near else 'off'};"
          f" {sum(predicted):.2f} s foreseen, {sum(observed):.2f} observed", flush=True)
    return near


def asked(rest):
    time.sleep(rest)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = os.path.join(folder, "file")
        text = subprocess.run([CLI, "predict", "--offline", "--bytes", "4G", "--json", "--path", path], check=True,
                              capture_output=True, text=True).stdout
        said = json.loads(text)
        took = dd(path, 4096)
    low, high = said.get("p10_s") or 0, said.get("p90_s") or 0
    inside = low <= took <= high
    print(f"4 GiB after {rest:2} s: {said['cost_s']:.2f} s ({low:.2f} to {high:.2f}), of it cold {said['cold_s']:.2f};"
          f" took {took:.2f}, {'inside' if inside else 'outside'}", flush=True)
    return abs(said["cost_s"] - took) / took, inside


near = [writing(rest) for rest in RESTS[:ROUNDS]]
print(f"onset near in {sum(near)} of {len(near)}")
errors = [asked(rest) for rest in (0, 3, 10, 20, 30, 5)[: max(1, ROUNDS - 4)]]
middle = sorted(error for error, _ in errors)[len(errors) // 2]
print(f"predict off by {100 * middle:.0f} % in the median; inside in {sum(i for _, i in errors)} of {len(errors)}")
