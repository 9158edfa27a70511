# Calls on files in one order: positions, vectors, appends, a fork, a thread, posix_spawn, names.
import os, sys, threading

name = sys.argv[1]
fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
for size in range(1000, 1020):
    os.write(fd, bytes(size))
os.pwrite(fd, bytes(4096), 1 << 20)
os.lseek(fd, 512, os.SEEK_SET)
os.write(fd, bytes(100))
os.writev(fd, [bytes(10), bytes(20)])
copy = os.dup(fd)
os.write(copy, bytes(300))
log = os.open(name + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
for size in (3, 4, 5):
    os.write(log, bytes(size))
os.ftruncate(fd, 100000)
os.fsync(fd)
os.fdatasync(log)
child = os.fork()
if child == 0:
    os.write(fd, bytes(777))
    os._exit(0)
os.waitpid(child, 0)
os.write(fd, bytes(5))


def work():
    os.write(fd, bytes(55))
    os.close(copy)
    again = os.open(name + ".2", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(again, bytes(66))
    os.close(again)


thread = threading.Thread(target=work)
thread.start()
thread.join()
actions = [(os.POSIX_SPAWN_DUP2, fd, 1)]
child = os.posix_spawn("/bin/sh", ["sh", "-c", "echo spawned"], os.environ, file_actions=actions)
os.waitpid(child, 0)
# Another process has moved the position that both share.
os.lseek(fd, 0, os.SEEK_CUR)
os.write(fd, bytes(7))
os.rename(name + ".log", name + ".old")
os.unlink(name + ".old")
os.close(log)
os.close(fd)
