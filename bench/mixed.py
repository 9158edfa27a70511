#!/usr/bin/env python3
"""Writes in several patterns for some time: bench/mixed.py SECONDS FOLDER. Needs dd and sqlite3 (the Python module)."""
import os
import random
import sqlite3
import subprocess
import sys
import time


def main(seconds, folder):
    rnd = random.Random(1)
    end = time.monotonic() + seconds
    path = lambda name: os.path.join(folder, name)
    phases = 0
    while time.monotonic() < end:
        phases += 1
        # Sequential, beyond the limits.
        subprocess.run(["dd", "if=/dev/zero", f"of={path('dd')}", "bs=1M", "count=600", "status=none"], check=True)
        # Rewrites at random.
        with open(path("dd"), "r+b", buffering=0) as file:
            for _ in range(2000):
                file.seek(rnd.randrange(600 << 20) & ~4095)
                file.write(b"x" * 16384)
        time.sleep(1)
        # Through a buffer.
        with open(path("lines"), "w") as file:
            for n in range(200000):
                file.write(f"line {n} of a log that grows and grows\n")
        # fsync after each.
        with open(path("log"), "wb", buffering=0) as file:
            for _ in range(50):
                file.write(b"y" * 65536)
                os.fsync(file.fileno())
        base = sqlite3.connect(path("base"))
        base.execute("create table if not exists t (a integer, b text)")
        for n in range(50):
            with base:
                base.execute("insert into t values (?, ?)", (n, "z" * 500))
        base.close()
        time.sleep(2)
        for name in ("dd", "lines", "log", "base"):
            os.unlink(path(name))
    print(f"{phases} rounds")


main(float(sys.argv[1]), sys.argv[2])
