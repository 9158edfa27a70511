#!/bin/bash
# What an ordinary user's report says where nobody may read a process's counters, or its calls were lost: the coverage is unknown, never 100 %. Also fakeroot.
. "$(dirname "$0")/../lib.sh" "$@"
cp $CLI $T/cli; chmod 755 $T $T/cli; mkdir -m 777 $T/u
static=$(command -v busybox) && ! ldd $static >/dev/null 2>&1 || { echo "SKIPPED: no static busybox"; finish; }
user() { (cd $T/u; timeout 60 setpriv --reuid 54321 --regid 54321 --clear-groups env -i PATH=$PATH HOME=$T/u LANG=C "$@"); }
run() { local n=$1; shift; user $T/cli run --no-calibrate --report $T/u/$n.json -- "$@" >$T/out 2>$T/err; cp $T/u/$n.json $T/$n.json; }
unknown() { local c=$(q $1 'r["coverage"]'); [ "$c" = None ] && pass "$1: coverage unknown" || fail "$1: coverage $c, $(q $1 '"; ".join(r["notes"])')"; }
noted() { q $1 '"; ".join(r["notes"])' | grep -q "$2" && pass "$1: $2" || fail "$1: not noted: $2"; }
run exec sh -c "echo hi > a; exec $static dd if=/dev/zero of=b bs=64k count=10"; unknown exec; noted exec "statically linked"
run fork sh -c "echo hi > a; $static dd if=/dev/zero of=b bs=64k count=10"
[ "$(q fork 'r["untraced_bytes"] >= 655360')" = True ] && pass "fork: counted by its parent" || fail "fork: $(q fork 'r["untraced_bytes"]')"
run empty sh -c 'echo hi > a; CAWL_SOCKET= exec dd if=/dev/zero of=b bs=64k count=10'; unknown empty; noted empty "CAWL_SOCKET was emptied"
(ulimit -f 100; run killed sh -c 'echo hi > a; kill -9 $$'); unknown killed; noted killed "calls since its latest delivery are unknown"
if command -v fakeroot >/dev/null; then
  user fakeroot $T/cli run --no-calibrate --report $T/u/fake.json -- sh -c 'echo hi > a' >$T/out 2>$T/err; cp $T/u/fake.json $T/fake.json
  [ "$(q fake 'fb("/a")')" = 3 ] && pass "fakeroot: traced" || fail "fakeroot: $(head -3 $T/err | tr '\n' '~')"
else echo "SKIPPED: no fakeroot"; fi
finish
