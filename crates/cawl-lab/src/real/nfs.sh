# Process 1 of user-mode-linux: an NFS server and its client on the loopback, and a command on the mount. The
# root is the host's; what is left goes to the folder $out, where Rust reads it (nfs.rs).
#
# Before it come: out (a folder of the host), delay (arguments of netem), path. $out/command has what to run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec >"$out/log" 2>&1
set -x
stop() {
    halt -f -p
}
trap stop EXIT
set -e
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs none /run
mkdir -p /run/root/lib/modules /run/files /run/nfs /run/tmp
ln -s "/usr/lib/uml/modules/$(uname -r)" /run/root/lib/modules/
for module in nfsd nfsv4; do
    modprobe -d /run/root "$module"
done
ip link set lo up
if [ -n "$delay" ]; then
    modprobe -d /run/root sch_netem
    # shellcheck disable=SC2086 -- several arguments
    tc qdisc add dev lo root netem $delay
fi
# The state of server and client, in memory.
mount -t tmpfs none /var/lib/nfs
mkdir /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t rpc_pipefs none /var/lib/nfs/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd
mount -t tmpfs none /run/files
exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=0 127.0.0.1:/run/files
rpc.mountd --no-nfs-version 3
rpc.nfsd --no-nfs-version 3 --nfs-version 4.2 --grace-time 10 --lease-time 10 8
mount -t nfs4 -o vers=4.2 127.0.0.1:/ /run/nfs
grep /run/nfs /proc/mounts
export PATH="$path" HOME="$out" XDG_DATA_HOME="$out" XDG_CACHE_HOME="$out" TMPDIR=/run/tmp
cd /run/nfs
set +ex
(eval "exec $(cat "$out/command")") >"$out/stdout" 2>"$out/stderr" </dev/null
echo $? >"$out/code"
sync
