#!/usr/bin/env python3
"""The workflows of crates/cawl-lab/workflows for real, beside what the models say: on this disk, and on emulated ones.

usage: bench/workflows.py FOLDER [DISK...]   (here ssd hdd; here: that of the temporary folder, calibrated before each)
Each workflow's answer is kept in FOLDER as JSON; what is there already is not run again. As root. Prints the table in
bench/runs. Where other programs compute, raise the priority of this: of its autogroup, and of the kernel's workers."""
import json, pathlib, subprocess, sys, tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent
FOLDER, DISKS = pathlib.Path(sys.argv[1]), sys.argv[2:] or ["here", "ssd", "hdd"]
LAB, CLI = REPO / "target/release/cawl-lab", REPO / "target/release/cawl-cli"
REPEATS = "3"

def run(workflow, disk):
    place = ["--disk", disk]
    if disk == "here":
        here = tempfile.gettempdir()
        subprocess.run([CLI, "calibrate", "--quick", here], check=True, stdout=subprocess.DEVNULL)
        place = ["--run", here]
    command = [LAB, "workflow", workflow, *place, "--repeats", REPEATS, "--json"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout

FOLDER.mkdir(exist_ok=True)
print("| workflow | disk | runs, s | floor | kernel | its calls | naive | cawl | run delay, s | others |")
print("|---|---|---|---:|---:|---:|---:|---:|---:|---:|")
met = []
for disk in DISKS:
    for workflow in sorted((REPO / "crates/cawl-lab/workflows").glob("*.toml")):
        kept = FOLDER / f"{workflow.stem}-{disk}.json"
        if not kept.exists():
            kept.write_bytes(run(workflow, disk))
        found = json.loads(kept.read_text())
        models = {model["model"]: model for model in found["models"]}
        error = lambda model, of="error": f"{models[model][of] * 100:+.1f}"
        met.append(models["kernel"]["is_within"])
        print(f"| {workflow.stem} | {disk} | {', '.join(f'{span:.2f}' for span in found['makespans_s'])} "
              f"| {found['floor'] * 100:.1f} | {error('kernel')} | {error('kernel', 'error_of_calls')} "
              f"| {error('naive')} | {error('cawl')} | {found['sums']['preempted_s']:.1f} "
              f"| {max(busy or 0 for busy in found['disturbed']):.1f} |", flush=True)
print(f"\nWithin max(10 %, 1.5 floors): {sum(met)} of {len(met)}.")
