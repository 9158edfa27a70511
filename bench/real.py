"""The tables of bench/real.sh: a row a program, from the reports of its rounds.

real.py FOLDER GOALS LIMITS PROGRAM…: goals of the live total, the windowed and the calibrated error, and limits of
live and calibrated total, in %.
"""

import json
import sys
from itertools import combinations
from pathlib import Path
from statistics import median


def percent(values):
    return ", ".join(f"{100 * value:.1f}" for value in values)


def observed_awake(report, model):
    causes = report["explain"]["causes"]
    return model["observed_s"] - sum(cause["observed_s"] for cause in causes if cause["name"] == "preempted")


def share(report, model, name):
    causes = report["explain"]["causes"]
    return sum(cause["observed_s"] for cause in causes if cause["name"] == name) / model["observed_s"]


folder = Path(sys.argv[1])
live_goal, windowed_goal, calibrated_goal, live_limit, calibrated_limit = map(int, sys.argv[2:7])
live, windowed, calibrated, live_met, calibrated_met, all_programs = [], [], [], 0, 0, 0
# Total errors over the noise floor; two rounds may agree by chance, so no floor counts as less than this.
MIN_FLOOR = 0.03
of_floor = []
print()
print("Total errors of `kernel` in %, of each round; windowed and per call: medians of the rounds; awake: as calibrated,\n"
      "where the time in which calls waited for a processor is not counted as observed; of floor: live and as calibrated, over\n"
      "the floor or 3 %; unexpected: part of the time that has this cause, in %, median.\n")
print("| program | calls | observed, s | live | windowed | per call, median | as calibrated | awake | floor | of floor | unexpected "
      "| unmodelled |")
print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")
for name in sys.argv[7:]:
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}-[0-9]*.json"))]
    models = [report["models"][0] for report in reports]
    if not models:
        continue
    observed = [model["observed_s"] for model in models]
    # The error of another round in the model's place, per call: some programs run for a given time.
    each = [model["observed_s"] / model["calls"] for model in models]
    pairs = [abs(a - b) / of for a, b in combinations(each, 2) for of in (a, b)]
    floor = median(pairs) if pairs else 0.0
    total = [model["total_error"] for model in models]
    as_calibrated = [model["calibrated"]["total_error"] for model in models]
    awake = [observed_awake(report, model) for report, model in zip(reports, models)]
    awake = [abs(model["calibrated"]["predicted_s"] - time) / time for model, time in zip(models, awake)]
    windows = median(model["windowed_error"] for model in models)
    calls = median(model["call_error"]["median"] or 0.0 for model in models)
    unexpected = median(share(report, model, "unexpected") for report, model in zip(reports, models))
    unmodelled = sorted({op for report in reports for op in report["unmodelled"]})
    ratios = [median(errors) / max(floor, MIN_FLOOR) for errors in (total, as_calibrated)]
    of_floor.append(ratios)
    live.append(median(total))
    windowed.append(windows)
    calibrated.append(median(as_calibrated))
    all_programs += 1
    live_met += median(total) <= max(live_limit / 100, 1.5 * floor)
    calibrated_met += median(as_calibrated) <= max(calibrated_limit / 100, 1.5 * floor)
    print(f"| {name} | {median(report['calls'] for report in reports):.0f} | {median(observed):.3f} | {percent(total)} "
          f"| {100 * windows:.1f} | {100 * calls:.1f} | {percent(as_calibrated)} | {percent(awake)} | {100 * floor:.1f} "
          f"| {ratios[0]:.1f}, {ratios[1]:.1f} | {100 * unexpected:.1f} | {', '.join(unmodelled) or 'none'} |")
print()
print(f"Median over programs: live total {100 * median(live):.1f} % (goal {live_goal}), windowed {100 * median(windowed):.1f} % "
      f"(goal {windowed_goal}), as calibrated {100 * median(calibrated):.1f} % (goal {calibrated_goal}).")
print(f"Median of errors over max(floor, {100 * MIN_FLOOR:.0f} %): live {median(a for a, _ in of_floor):.2f} (goal 0.5), as calibrated "
      f"{median(b for _, b in of_floor):.2f} (goal 1.2).")
print(f"Within max({live_limit} %, 1.5 floors) live: {live_met} of {all_programs}; within max({calibrated_limit} %, 1.5 floors) as "
      f"calibrated: {calibrated_met} of {all_programs}.")
coverage = [json.loads(path.read_text())["coverage"] for path in folder.glob("*-[0-9]*.json")]
print(f"Least coverage: {min((each for each in coverage if each is not None), default=None)}.")
