"""Programs of bench/real.sh that make, rename, cut off and remove files, or store through mappings.

names.py PROGRAM FOLDER: one of the functions below, in an empty folder. names.py tree FOLDER DIRS FILES: a
tree of small files of random contents and known sizes.
"""

import mmap
import os
import random
import sys

PAGE = 4096


def put(name, data, flags=os.O_EXCL, sync=False):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    os.write(file, data)
    if sync:
        os.fsync(file)
    os.close(file)


def tree(folder, dirs, files):
    for at in range(int(dirs)):
        os.makedirs(f"{folder}/{at}", exist_ok=True)
        for file in range(int(files)):
            put(f"{folder}/{at}/{file}", os.urandom(1 + file * 80), os.O_TRUNC)


def maildir(folder):
    """Each mail is written to tmp/, made durable, and renamed to new/."""
    for name in ("tmp", "new"):
        os.mkdir(f"{folder}/{name}")
    for mail in range(2000):
        put(f"{folder}/tmp/{mail}", os.urandom(1500 + mail % 64 * 100), sync=True)
        os.rename(f"{folder}/tmp/{mail}", f"{folder}/new/{mail}")


def churn(folder):
    """Files that live shortly: a compiler's, a spooler's."""
    for at in range(20000):
        put(f"{folder}/{at}", bytes(3000))
        os.unlink(f"{folder}/{at}")


def again(folder):
    """A folder of files is removed and made anew: a build's, an installer's."""
    for _ in range(3):
        for at in range(5000):
            put(f"{folder}/{at}", bytes(3000))
        for at in range(5000):
            os.unlink(f"{folder}/{at}")


def move(folder):
    """Files are replaced by rename, and go from folder to folder."""
    os.mkdir(f"{folder}/to")
    for at in range(2500):
        put(f"{folder}/{at}", bytes(3000))
    for at in range(2500):
        os.rename(f"{folder}/{at}", f"{folder}/to/{at}")
    for at in range(2500):
        put(f"{folder}/new", bytes(5000))
        os.rename(f"{folder}/new", f"{folder}/to/{at}")


def lmdb(folder):
    """Commits as LMDB makes them: some pages, fdatasync, then the meta page, synchronously."""
    file = os.open(f"{folder}/data", os.O_RDWR | os.O_CREAT)
    meta = os.open(f"{folder}/data", os.O_RDWR | os.O_DSYNC)
    choose, end = random.Random(1), 2
    for commit in range(1500):
        for _ in range(8):
            at = end if choose.random() < 0.5 else choose.randrange(2, end + 1)
            end = max(end, at + 1)
            os.pwrite(file, os.urandom(PAGE), at * PAGE)
        os.fdatasync(file)
        os.pwrite(meta, os.urandom(152), commit % 2 * PAGE)


def mapped(folder):
    """Stores at random places of a mapping, and msync."""
    file = os.open(f"{folder}/data", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 256 << 20)
    memory, choose = mmap.mmap(file, 256 << 20), random.Random(1)
    for _ in range(40):
        for _ in range(2000):
            memory[choose.randrange(256 << 20)] = 1
        memory.flush()


globals()[sys.argv[1]](*sys.argv[2:])
