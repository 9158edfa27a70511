# Process 1 of user-mode-linux: a command on a disk of its own. The root is the host's; what is left goes to the
# folder $out, where Rust reads it (kernel.rs).
#
# Before it come: out, filesystem, options (of mkfs), group (lines of FILE=VALUE), path, rotational. $out/command
# has what to run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec >"$out/log" 2>&1
stop() {
    halt -f -p
}
trap stop EXIT
set -ex
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t tracefs none /sys/kernel/tracing || echo "no tracepoints"
mount -t tmpfs none /run
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mkdir /run/disk /run/data /run/cache /run/touched
# Memory that the host has not supplied yet costs a fault there at its first touch.
mount -t tmpfs -o size=95% none /run/touched
head -c "$(awk '/^MemFree/ {printf "%d", $2 * 1024 * 0.95}' /proc/meminfo)" /dev/zero >/run/touched/all
umount /run/touched
# Open from here on: its driver says that it does not turn whenever it is opened first.
exec 9</dev/ubda
echo "$rotational" >/sys/block/ubda/queue/rotational
if [ -n "$filesystem" ]; then
    # shellcheck disable=SC2086 -- several options
    "mkfs.$filesystem" $options /dev/ubda
    mount -o noatime /dev/ubda /run/disk
fi
cd /run/disk
echo "+memory +io" >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/lab
echo "$group" | while IFS== read -r file value; do
    case $file in
    "") ;;
    io.max) echo "$(cat /sys/block/ubda/dev) $value" >"/sys/fs/cgroup/lab/$file" ;;
    *) echo "$value" >"/sys/fs/cgroup/lab/$file" ;;
    esac
done
if [ -n "$group" ]; then echo $$ >/sys/fs/cgroup/lab/cgroup.procs; fi
export PATH="$path" OUT="$out" HOME=/run/data XDG_DATA_HOME=/run/data XDG_CACHE_HOME=/run/cache TMPDIR=/run/disk
# Its own clock is a system call; the processor's counter is the host's, and as even.
export CAWL_CLOCK=tsc
set +ex
(eval "exec $(cat "$out/command")") >"$out/stdout" 2>"$out/stderr" </dev/null
echo $? >"$out/code"
sync
