# buffered: files with buffers of the size of the argument; 0: the default. `lines` is text, `records` has
# pieces of 64 bytes with a flush after half of them, `pieces` pieces of several sizes, `large` pieces that
# pass the buffer by, and `mixed` is written without a buffer.
import os, random, sys
size = int(sys.argv[1]) or -1
with open("lines", "w", buffering=size if size > 0 else 4096) as f:
    for n in range(20000):
        f.write(f"line {n * n} {'x' * (n % 7)}\n")
with open("records", "wb", buffering=size) as f:
    for n in range(1, 40001):
        f.write(b"r" * 64)
        if n % 20000 == 0:
            f.flush()
with open("pieces", "wb", buffering=size) as f:
    for n in range(40000):
        f.write(b"p" * (1 + n * 31 % 97))
with open("large", "wb") as f:
    for n in range(20):
        f.write(b"x" * 1000000)
mixed, random = os.open("mixed", os.O_WRONLY | os.O_CREAT), random.Random(1)
for n in range(200):
    os.write(mixed, b"x" * random.randint(1, 20000))
