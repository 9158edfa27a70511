# Process 1 of user-mode-linux: runs writers in control groups under cawl-cli. The root is the host's; what is
# left goes to the folder $out, where Rust judges it (cgroup.rs).
#
# Before it come: cli (the program), out (a folder of the host). $out/work has what to run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec >"$out/log" 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
export HOME="$out" XDG_DATA_HOME="$out" XDG_CACHE_HOME="$out" TMPDIR="$out/disk"
disk=$out/disk
mkdir "$disk"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/ubda
mount /dev/ubda "$disk"
echo "+memory +io" >/sys/fs/cgroup/cgroup.subtree_control
cat /proc/sys/kernel/osrelease >"$out/kernel"

# group NAME LIMIT RATE: with LIMIT of memory, at most RATE bytes/s to the disk.
group() {
    mkdir "/sys/fs/cgroup/$1"
    echo "$2" >"/sys/fs/cgroup/$1/memory.max"
    echo "$(cat /sys/block/ubda/dev) wbps=$3" >"/sys/fs/cgroup/$1/io.max"
}

# run NAME COMMAND…: in the group of that name, under cawl-cli; its dirty level goes to NAME.levels meanwhile.
run() {
    name=$1
    shift
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "/sys/fs/cgroup/$name" \
        "$cli" run --no-calibrate --trace "$out/$name.cawl" --report "$out/$name.json" -- "$@" &
    writer=$!
    while kill -0 $writer 2>/dev/null; do
        # Figures of one reading on one line: file_dirty and file_writeback, anon and shmem.
        awk '/^(file_dirty|file_writeback|anon|shmem) /{printf "%s=%s ", $1, $2} END {print ""}' \
            "/sys/fs/cgroup/$name/memory.stat" >>"$out/$name.levels"
        sleep 0.1
    done
    wait $writer
    echo "$name ended with $?"
}

cd "$disk" || exit 1
# What the disk and the memory are, without a group.
"$cli" calibrate --quick "$disk" || echo "not calibrated"
"$cli" doctor
. "$out/work"
sync
echo done
halt -f -p
