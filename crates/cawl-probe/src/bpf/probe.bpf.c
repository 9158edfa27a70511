// What the kernel tells of the calls of processes that are followed.
//
// System calls come by their BTF tracepoints, of all processes, since the kernel has none for one process. A call
// that is not recorded, or of a process that is not followed, is left after a look at its number and its process.
// Requests of io_uring have tracepoints of their own.
//
// Nothing here faults: what lies in the kernel is copied, with the places of fields from the kernel's own types
// (CO-RE), and what lies in the program's memory is read after the call, when the kernel has just read it.

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"
#include "probe.h"

// The object's; the workspace's are in the package. Helpers that read the kernel want one that is compatible.
char LICENSE[] SEC("license") = "Dual MIT/GPL";

// Set before the program is loaded. The reader is never followed: what it writes of a call would be one more.
const volatile __u32 reader = 0;
// The kernel has bpf_rdonly_cast.
const volatile __u32 has_cast = 0;
// Rows of `groups`, which come and go while the program is attached.
volatile __u32 group_count = 0;

// What is recorded of a system call, by its number.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SYSCALLS);
    __type(key, __u32);
    __type(value, __u32);
} classes SEC(".maps");

// Processes that are followed.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u32);
    __type(value, __u8);
} followed SEC(".maps");

// 0: no process whose number is this one's, modulo the entries, is followed. It costs others less than a look into the
// table of those that are.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, FILTER);
    __type(key, __u32);
    __type(value, __u8);
} filter SEC(".maps");

// Control groups whose processes are followed.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, GROUPS);
    __type(key, __u32);
    __type(value, struct group);
} groups SEC(".maps");

// Threads that are followed, and the call that each is in, by the thread's number modulo the entries: the
// look-up in an array is compiled into the program.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, THREADS);
    __type(key, __u32);
    __type(value, struct thread);
} threads SEC(".maps");

// Those whose place another has. The kernel frees it with the thread.
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} crowded SEC(".maps");

// Requests of io_uring that are not complete. One that leaves no completion is displaced at last.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, __u64);
    __type(value, struct flight);
} requests SEC(".maps");

// Threads in io_uring_enter, and since when.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u32);
    __type(value, __u64);
} waiting SEC(".maps");

// Files that were named, by process.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 32768);
    __type(key, struct known);
    __type(value, __u8);
} named SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 16 << 20);
} ring SEC(".maps");

// Counts of what is lost, for each processor.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, LOSSES);
    __type(key, __u32);
    __type(value, __u64);
} lost SEC(".maps");

// Calls that are lost, by process, until the reader takes them.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u32);
    __type(value, __u64);
} dropped SEC(".maps");

// A place for what the stack has no room for.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct scratch);
} scratches SEC(".maps");

#define COPY(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))
#define PART static __always_inline

PART void lose(__u32 what, __u64 more)
{
    __u64 *count = bpf_map_lookup_elem(&lost, &what);
    if (count)
        *count += more;
}

// A function of its own to the verifier.
__attribute__((noinline)) int lose_calls(__u32 what, __u32 tgid, __u64 more)
{
    __u64 none = 0, *count;
    lose(what, more);
    bpf_map_update_elem(&dropped, &tgid, &none, BPF_NOEXIST);
    count = bpf_map_lookup_elem(&dropped, &tgid);
    if (count)
        __sync_fetch_and_add(count, more);
    return 0;
}

// What becomes of processes.
PART void put(void *record, __u64 length)
{
    // The reader looks by itself every few ms: to wake it would cost the program more than the record.
    if (bpf_ringbuf_output(&ring, record, length, BPF_RB_NO_WAKEUP))
        lose(LOST_LIFE, 1);
}

PART struct thread *place_of(__u32 tid)
{
    __u32 at = tid % THREADS;
    return bpf_map_lookup_elem(&threads, &at);
}

// The state of this thread if it was followed before.
PART struct thread *known_thread(struct task_struct *task)
{
    __u32 tid = task->pid;
    struct thread *thread = place_of(tid);
    if (thread && thread->tid == tid)
        return thread;
    // Nothing of any BPF program is stored with most threads; to ask the helper costs more than a load.
    if (bpf_core_field_exists(task->bpf_storage) && !task->bpf_storage)
        return 0;
    return bpf_task_storage_get(&crowded, task, 0, 0);
}

// A place for this thread; NULL if there is none.
PART struct thread *take_place(struct task_struct *task)
{
    struct thread *thread = place_of(task->pid);
    // One that ends has left its place for good.
    if (thread && !(task->flags & PF_EXITING)) {
        // Of several that come at once the one that finds itself alone has it.
        __sync_fetch_and_add(&thread->claims, 1);
        if (*(volatile __u64 *)&thread->claims == 1) {
            thread->named = 0;
            thread->ino = 0;
            thread->is_inside = 0;
            thread->tid = task->pid;
            return thread;
        }
        __sync_fetch_and_add(&thread->claims, -1);
    }
    return bpf_task_storage_get(&crowded, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

// This number is no thread's any more.
PART void leave_place(__u32 tid)
{
    struct thread *thread = place_of(tid);
    if (thread && thread->tid == tid) {
        thread->tid = 0;
        __sync_fetch_and_add(&thread->claims, -1);
    }
}

PART void follow_process(__u32 tgid)
{
    __u32 at = tgid % FILTER;
    __u8 *maybe = bpf_map_lookup_elem(&filter, &at), yes = 1;
    if (bpf_map_update_elem(&followed, &tgid, &yes, BPF_ANY))
        lose(LOST_PROCESS, 1);
    if (maybe)
        *maybe = 1;
}

PART int is_followed(__u32 tgid)
{
    __u32 at = tgid % FILTER;
    __u8 *maybe = bpf_map_lookup_elem(&filter, &at);
    return maybe && *maybe && bpf_map_lookup_elem(&followed, &tgid);
}

// Follows a process of a group.
PART void meet(struct task_struct *task)
{
    struct life life = { .head = { FOUND, task->tgid, task->pid }, .at = bpf_ktime_get_ns() };
    struct signal_struct *signal = task->signal;
    follow_process(task->tgid);
    // Each of its threads has a count of its own.
    life.other = signal->nr_threads == 1;
    if (bpf_core_field_exists(task->ioac.wchar))
        life.wchar = task->ioac.wchar;
    COPY(life.name, task->comm);
    put(&life, sizeof(life));
}

// The state of a thread of a process that is followed; NULL of another.
PART struct thread *follow(struct task_struct *task)
{
    __u32 tgid = task->tgid;
    struct thread *thread = known_thread(task);
    int is_new = 1;
    if (thread)
        return thread;
    if (is_followed(tgid))
        is_new = 0;
    for (__u32 at = 0; is_new && at < GROUPS; at++) {
        __u32 key = at;
        if (at >= group_count || tgid == reader)
            return 0;
        struct group *group = bpf_map_lookup_elem(&groups, &key);
        if (group && !group->hierarchy && bpf_get_current_ancestor_cgroup_id(group->level) == group->id) {
            meet(task);
            is_new = 0;
        }
    }
    if (is_new)
        return 0;
    thread = take_place(task);
    if (!thread)
        lose_calls(LOST_FLIGHT, tgid, 1);
    return thread;
}

#include "look.h"

PART void arguments(struct flight *flight, struct pt_regs *regs)
{
    if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->di)) {
        struct pt_regs___x86 *x86 = (struct pt_regs___x86 *)regs;
        flight->args[0] = x86->di;
        flight->args[1] = x86->si;
        flight->args[2] = x86->dx;
        flight->args[3] = x86->r10;
        flight->args[4] = x86->r8;
        flight->args[5] = x86->r9;
    } else {
        struct pt_regs___arm64 *arm = (struct pt_regs___arm64 *)regs;
        bpf_probe_read_kernel(flight->args, sizeof(flight->args), &arm->regs);
    }
}

// True in a system call of a 32-bit program, whose numbers are others.
PART int is_compat(struct task_struct *task)
{
    if (bpf_core_field_exists(((struct thread_info___x86 *)0)->status)) {
        struct thread_info___x86 *info = (struct thread_info___x86 *)&task->thread_info;
        return info->status & TS_COMPAT;
    }
    return 0;
}

// The argument that the row of a system call says is its first or second descriptor or name.
PART __u64 argument(struct flight *flight, __u32 shift)
{
    __u32 at = (flight->row >> shift) & NO_ARGUMENT;
    switch (at) {
    case 0: return flight->args[0];
    case 1: return flight->args[1];
    case 2: return flight->args[2];
    case 3: return flight->args[3];
    case 4: return flight->args[4];
    default: return AT_FDCWD;
    }
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    __u32 key = number, class;
    struct scratch *scratch;
    struct thread *thread;
    struct flight *flight;
    struct file *file;
    __u32 *row = bpf_map_lookup_elem(&classes, &key);
    if (!row || !*row)
        return 0;
    thread = follow(task);
    if (!thread)
        return 0;
    thread->is_inside = 0;
    scratch = scratch_of_cpu();
    if (!scratch)
        return 0;
    if (is_compat(task)) {
        if (*row & IS_COMPAT_WRITE)
            lose(LOST_COMPAT, 1);
        return 0;
    }
    if ((*row & CLASS) == CLASS_NONE)
        return 0;
    flight = &thread->flight;
    flight->file = 0;
    flight->identity.ino = 0;
    flight->after = 0;
    flight->changed = 0;
    flight->number = key;
    flight->row = *row;
    class = *row & CLASS;
    arguments(flight, regs);
    if (class == CLASS_FCNTL) {
        __u32 command = flight->args[1];
        int is_lock = command == 6 || command == 7 || command == 37 || command == 38;
        if (!is_lock && command != F_DUPFD && command != F_DUPFD_CLOEXEC)
            return 0;
    }
    if (class == CLASS_IOCTL && (__u32)flight->args[1] != FICLONE && (__u32)flight->args[1] != FICLONERANGE)
        return 0;
    if (class <= CLASS_CLOSE) {
        file = file_of(argument(flight, FIRST_FILE));
        if (file) {
            look_at_file(scratch, flight, file);
            // As the tracer does: reads of files, and what else is done with files or with what can be written to.
            int is_file = (flight->identity.mode & S_IFMT) == S_IFREG;
            int reads = (flight->flags & O_ACCMODE) == O_RDONLY;
            if (!is_file && !(*row & IS_SYNC) && (*row & IS_READ || reads))
                return 0;
            if (reads && *row & IS_SEEK)
                return 0;
            // Where one that appends begins.
            if (flight->flags & O_APPEND && !(*row & IS_READ))
                flight->before = flight->identity.size;
            if (class != CLASS_CLOSE && (thread->named != flight->file || thread->ino != flight->identity.ino)) {
                if (name_file(scratch, flight, task->tgid)) {
                    thread->named = flight->file;
                    thread->ino = flight->identity.ino;
                }
            }
        }
    }
    thread->is_inside = 1;
    // The time of our own look is not the call's.
    flight->start = bpf_ktime_get_ns();
    if (class == CLASS_RING) {
        key = task->pid;
        bpf_map_update_elem(&waiting, &key, &flight->start, BPF_ANY);
    }
    return 0;
}

PART void tell(struct flight *flight, __u32 tgid, __u32 tid, __u64 end, long result)
{
    struct call *call = bpf_ringbuf_reserve(&ring, sizeof(*call), 0);
    if (!call) {
        lose_calls(LOST_RECORD, tgid, 1);
        return;
    }
    call->head.type = CALL;
    call->head.tgid = tgid;
    call->head.tid = tid;
    call->end = end;
    call->result = result;
    call->flight = *flight;
    bpf_ringbuf_submit(call, BPF_RB_NO_WAKEUP);
}

// Tells of a name that a call was given, and of the folder that it is in.
PART void tell_name(struct scratch *scratch, struct flight *flight, __u32 tgid, __u32 tid, __u32 folder, __u32 name,
                    __u32 which)
{
    struct file *file;
    struct path here = {};
    struct inode *inode = 0;
    if (((flight->row >> name) & NO_ARGUMENT) == NO_ARGUMENT)
        return;
    __u32 fd = argument(flight, folder);
    if (fd == (__u32)AT_FDCWD) {
        struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
        struct fs_struct *fs = task->fs;
        if (!fs)
            return;
        COPY(here, fs->pwd);
    } else {
        file = file_of(fd);
        if (!file)
            return;
        COPY(here, file->f_path);
    }
    GET(inode, AS(dentry, here.dentry), d_inode);
    if (!inode)
        return;
    inode = AS(inode, inode);
    struct naming *naming = &scratch->naming;
    look_at_inode(scratch, &naming->identity, inode);
    scratch->mapping = 0;
    name_it((__u64)here.dentry, (__u64)here.mnt, tgid);
    naming->head.type = GIVEN;
    naming->head.tgid = tgid;
    naming->head.tid = tid;
    naming->which = which;
    long read = bpf_probe_read_user_str(naming->names, PATH, (void *)argument(flight, name));
    if (read < 0 || read > PATH)
        return;
    naming->length = read;
    // Without its names the call is told no file.
    bpf_ringbuf_output(&ring, naming, sizeof(*naming) - NAMES + read, BPF_RB_NO_WAKEUP);
}

// Bytes of the vectors that a request leads to: no argument has their sum. A function of its own to the verifier.
__attribute__((noinline)) int vector_bytes(__u64 vectors, __u64 count)
{
    struct scratch *scratch = scratch_of_cpu();
    __u64 sum = 0;
    if (!scratch)
        return 0;
    for (int part = 0; part < VECTORS; part++) {
        __u64 length = 0;
        if (part >= count)
            break;
        bpf_probe_read_user(&length, sizeof(length), (void *)(vectors + 16 * part + 8));
        sum += length;
    }
    scratch->flight.args[2] = sum;
    // The rest of it is missing.
    if (count > VECTORS)
        lose_calls(LOST_REQUEST, bpf_get_current_pid_tgid() >> 32, 1);
    return 0;
}

// A request that the call of libaio took which this thread is in. A function of its own to the verifier.
__attribute__((noinline)) int tell_request(__u64 list, __u64 end)
{
    struct thread *thread = known_thread((struct task_struct *)bpf_get_current_task_btf());
    struct scratch *scratch = scratch_of_cpu();
    __u64 ids = bpf_get_current_pid_tgid();
    struct iocb *place = 0, request = {};
    struct file *file;
    if (!thread || !scratch)
        return 0;
    if (bpf_probe_read_user(&place, sizeof(place), (void *)list) ||
        bpf_probe_read_user(&request, sizeof(request), place)) {
        lose_calls(LOST_REQUEST, ids >> 32, 1);
        return 0;
    }
    // Not on the stack, of which three functions have 512 bytes together.
    struct flight *one = &scratch->flight;
    *one = thread->flight;
    one->row = CLASS_AIO;
    one->args[0] = request.fildes;
    one->args[1] = request.lio_opcode;
    one->args[2] = request.nbytes;
    if (request.lio_opcode == IOCB_CMD_PREADV || request.lio_opcode == IOCB_CMD_PWRITEV)
        vector_bytes(request.buffer, request.nbytes);
    one->args[3] = request.offset;
    one->args[4] = request.rw_flags;
    one->args[5] = (__u64)place;
    file = file_of(request.fildes);
    if (file) {
        look_at_file(scratch, one, file);
        if (thread->named != one->file || thread->ino != one->identity.ino) {
            if (name_file(scratch, one, ids >> 32)) {
                thread->named = one->file;
                thread->ino = one->identity.ino;
            }
        }
    }
    tell(one, ids >> 32, ids, end, 0);
    return 0;
}

// Requests that were handed to libaio's calls.
PART void tell_requests(__u64 list, __u64 end, long count)
{
    for (int at = 0; at < REQUESTS; at++) {
        if (at >= count)
            return;
        tell_request(list + 8 * at, end);
    }
    if (count > REQUESTS)
        lose_calls(LOST_REQUEST, bpf_get_current_pid_tgid() >> 32, count - REQUESTS);
}

// A request of libaio that is complete. A function of its own to the verifier.
__attribute__((noinline)) int tell_complete(__u64 list, __u64 end)
{
    struct thread *thread = known_thread((struct task_struct *)bpf_get_current_task_btf());
    __u64 ids = bpf_get_current_pid_tgid();
    struct io_event event = {};
    if (!thread)
        return 0;
    if (bpf_probe_read_user(&event, sizeof(event), (void *)list)) {
        lose_calls(LOST_REQUEST, ids >> 32, 1);
        return 0;
    }
    thread->flight.row = CLASS_COMPLETE;
    thread->flight.args[5] = event.request;
    tell(&thread->flight, ids >> 32, ids, end, event.result);
    return 0;
}

// Requests of libaio that are complete.
PART void tell_all_complete(__u64 list, __u64 end, long count)
{
    for (int at = 0; at < REQUESTS && at < count; at++)
        tell_complete(list + sizeof(struct io_event) * at, end);
    if (count > REQUESTS)
        lose_calls(LOST_REQUEST, bpf_get_current_pid_tgid() >> 32, count - REQUESTS);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct thread *thread = known_thread(task);
    struct scratch *scratch;
    struct flight *flight;
    struct file *file;
    __u64 end;
    __u32 tgid, tid, class;
    if (!thread || !thread->is_inside)
        return 0;
    end = bpf_ktime_get_ns();
    scratch = scratch_of_cpu();
    if (!scratch)
        return 0;
    thread->is_inside = 0;
    tgid = task->tgid;
    tid = task->pid;
    flight = &thread->flight;
    class = flight->row & CLASS;
    if (class == CLASS_RING) {
        bpf_map_delete_elem(&waiting, &tid);
        return 0;
    }
    // Interrupted by a signal before it did anything: it begins again, or fails by itself.
    if (result <= -512 && result >= -516)
        return 0;
    if (class == CLASS_SUBMIT) {
        tell_requests(flight->args[2], end, result);
        return 0;
    }
    if (class == CLASS_REAP) {
        tell_all_complete(flight->args[3], end, result);
        return 0;
    }
    if (class == CLASS_OPEN && result >= 0) {
        file = file_of(result);
        if (file) {
            look_at_file(scratch, flight, file);
            name_file(scratch, flight, tgid);
        }
    } else if (class == CLASS_NAME && result >= 0) {
        tell_name(scratch, flight, tgid, tid, FIRST_FILE, FIRST_NAME, 0);
        tell_name(scratch, flight, tgid, tid, SECOND_FILE, SECOND_NAME, 1);
    } else if (flight->file && class < CLASS_CLOSE) {
        file = file_of(argument(flight, FIRST_FILE));
        if (!file || (__u64)file != flight->file) {
            flight->changed = 1;
        } else {
            struct inode *inode = 0;
            GET(flight->after, file, f_pos);
            GET(inode, file, f_inode);
            GET(flight->identity.size, inode, i_size);
        }
    }
    // What the program's memory has of it: a place in the file, flags, a lock.
    if (class == CLASS_FCNTL)
        bpf_probe_read_user(&flight->args[3], 24, (void *)flight->args[2]);
    else if (flight->row & HAS_POINTER && argument(flight, FIRST_NAME))
        bpf_probe_read_user(&flight->args[5], 8, (void *)argument(flight, FIRST_NAME));
    tell(flight, tgid, tid, end, result);
    return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
    struct life life = {};
    __u32 tgid = parent->tgid, own = child->tgid;
    if (own == tgid || own == reader || !is_followed(tgid))
        return 0;
    follow_process(own);
    life.head.type = FORK;
    life.head.tgid = tgid;
    life.head.tid = parent->pid;
    life.at = bpf_ktime_get_ns();
    life.other = own;
    bpf_get_current_comm(life.name, sizeof(life.name));
    put(&life, sizeof(life));
    return 0;
}

// True of a group and those below it.
PART int is_below(struct cgroup *group, __u64 id)
{
    for (int level = 0; group && level < LEVELS; level++) {
        struct cgroup_subsys_state *above;
        if (group->kn->id == id)
            return 1;
        above = group->self.parent;
        group = above ? above->cgroup : 0;
    }
    return 0;
}

// A process comes into a control group of version 1, which is not asked for at each call.
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(joined, struct cgroup *into, const char *path, struct task_struct *task)
{
    __u32 tgid;
    if (!task || !into)
        return 0;
    tgid = task->tgid;
    for (__u32 at = 0; at < GROUPS && at < group_count; at++) {
        __u32 key = at;
        struct group *group = bpf_map_lookup_elem(&groups, &key);
        if (!group || !group->hierarchy || group->hierarchy != into->root->hierarchy_id)
            continue;
        if (tgid != reader && !is_followed(tgid) && is_below(into, group->id))
            meet(task);
    }
    return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task, __s32 old, struct linux_binprm *binprm)
{
    struct scratch *scratch = scratch_of_cpu();
    __u32 tgid = task->tgid;
    const char *name = 0;
    // Of a thread that becomes its process's first.
    if (old != task->pid)
        leave_place(old);
    if (!scratch || !is_followed(tgid))
        return 0;
    struct image *image = &scratch->image;
    image->head.type = EXEC;
    image->head.tgid = tgid;
    image->head.tid = task->pid;
    image->at = bpf_ktime_get_ns();
    image->wchar = 0;
    if (bpf_core_field_exists(((struct task_struct *)0)->ioac.wchar))
        image->wchar = task->ioac.wchar;
    COPY(name, binprm->filename);
    image->program[0] = 0;
    bpf_probe_read_kernel_str(image->program, sizeof(image->program), name);
    put(image, sizeof(*image));
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
    struct life life = {};
    __u32 tgid = task->tgid, tid = task->pid;
    struct signal_struct *signal;
    leave_place(tid);
    if (!is_followed(tgid))
        return 0;
    life.head.type = EXIT;
    life.head.tgid = tgid;
    life.head.tid = tid;
    life.at = bpf_ktime_get_ns();
    signal = task->signal;
    // Each thread is off this count before it comes here, so that of those that end together several see it at 0: of
    // one with other threads there may be more to tell.
    if (signal->live.counter == 0)
        life.other = signal->nr_threads > 1 ? PROCESS_MAYBE : PROCESS;
    life.code = task->exit_code;
    if (bpf_core_field_exists(((struct task_struct *)0)->ioac.wchar))
        life.wchar = task->ioac.wchar;
    life.user = task->utime;
    life.system = task->stime;
    life.runtime = task->se.sum_exec_runtime;
    // Of others the reader takes it out.
    if (life.other == PROCESS)
        bpf_map_delete_elem(&followed, &tgid);
    bpf_map_delete_elem(&waiting, &tid);
    put(&life, sizeof(life));
    return 0;
}

// The thread if it is in a call of this class.
PART struct thread *in_call(__u32 class)
{
    struct thread *thread = known_thread((struct task_struct *)bpf_get_current_task_btf());
    return thread && thread->is_inside && (thread->flight.row & CLASS) == class ? thread : 0;
}

// A file goes with the name that a call takes away.
SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(evict, struct inode *inode)
{
    struct thread *thread = in_call(CLASS_NAME);
    struct scratch *scratch = scratch_of_cpu();
    if (thread && scratch && !inode->__i_nlink)
        look_at_inode(scratch, &thread->flight.identity, inode);
    return 0;
}

// An open cuts a file off: its size is 0 by now. Blocks that are not allocated yet are given back first, the others are
// still counted.
SEC("tp_btf/ext4_da_release_space")
int BPF_PROG(released, struct inode *inode, int blocks)
{
    struct thread *thread = in_call(CLASS_OPEN);
    if (thread)
        thread->flight.after += (__u64)blocks << (inode->i_blkbits & 31);
    return 0;
}

SEC("tp_btf/ext4_truncate_enter")
int BPF_PROG(cut, struct inode *inode)
{
    struct thread *thread = in_call(CLASS_OPEN);
    if (thread)
        thread->flight.after += inode->i_blocks * 512;
    return 0;
}

// A page becomes dirty. Outside the calls that write, a store through a mapping did it, whose first to a clean page
// the kernel notices.
SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(stored, struct folio *folio, struct address_space *mapping)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct scratch *scratch = scratch_of_cpu();
    struct thread *thread;
    struct inode *inode;
    unsigned long flags = 0;
    __u32 order = 0;
    // The verifier takes it for one that may be missing.
    if (!mapping)
        return 0;
    inode = mapping->host;
    // Of requests the workers of io_uring do it, and of a core dump the kernel.
    if (!scratch || task->flags & (PF_IO_WORKER | PF_DUMPCORE | PF_KTHREAD) || is_compat(task))
        return 0;
    if (!inode || (inode->i_mode & S_IFMT) != S_IFREG)
        return 0;
    thread = follow(task);
    if (!thread)
        return 0;
    // A call may store into a mapping of another file.
    if (thread->is_inside &&
        ((thread->flight.row & CLASS) >= CLASS_CLOSE || thread->flight.inode == (__u64)inode))
        return 0;
    struct flight *one = &scratch->flight;
    __builtin_memset(one, 0, sizeof(*one));
    bpf_probe_read_kernel(&flags, sizeof(flags), folio);
    if (flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1) {
        struct folio___before_6_6 *before = (void *)folio;
        if (bpf_core_field_exists(before->_folio_order))
            order = before->_folio_order;
        else
            order = folio->_flags_1 & 0xff;
    }
    look_at_inode(scratch, &one->identity, inode);
    one->row = CLASS_STORE;
    one->args[0] = folio->index;
    one->args[1] = 1ULL << (order & 31);
    one->start = bpf_ktime_get_ns();
    tell(one, task->tgid, task->pid, one->start, 0);
    return 0;
}

// Begins a request. What it is about is in it when it is complete.
SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring_submit, struct io_kiocb *request)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    __u64 key = (__u64)request;
    struct io_ring_ctx *ring_of = 0;
    struct flight flight;
    __u32 length = 0, opcode;
    if (!follow(task))
        return 0;
    opcode = request->opcode;
    if (opcode >= 64 || !(URING_RECORDED >> opcode & 1))
        return 0;
    // No completion is told of it, unless it fails.
    GET(length, request, flags);
    if (length & IOSQE_CQE_SKIP_SUCCESS) {
        lose_calls(LOST_REQUEST, task->tgid, 1);
        return 0;
    }
    __builtin_memset(&flight, 0, sizeof(flight));
    flight.row = CLASS_URING;
    flight.number = opcode;
    flight.args[0] = bpf_get_current_pid_tgid();
    struct io_rw *rw = AS(io_rw, request);
    GET(flight.args[1], rw, kiocb.ki_pos);
    GET(length, rw, len);
    flight.args[2] = length;
    GET(length, rw, kiocb.ki_flags);
    flight.args[3] = length;
    GET(length, AS(io_sync, request), flags);
    flight.args[4] = length;
    GET(ring_of, request, ctx);
    flight.inode = (__u64)ring_of;
    GET(flight.file, request, cqe.user_data);
    flight.start = bpf_ktime_get_ns();
    if (bpf_map_update_elem(&requests, &key, &flight, BPF_ANY))
        lose_calls(LOST_FLIGHT, task->tgid, 1);
    return 0;
}

// A request that the kernel refuses before it begins: its completion comes next.
SEC("tp_btf/io_uring_req_failed")
int BPF_PROG(uring_failed, const void *sqe_at, struct io_kiocb *request, int error)
{
    struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
    struct scratch *scratch = scratch_of_cpu();
    __u64 key = (__u64)request;
    struct io_ring_ctx *ring_of = 0;
    struct sqe sqe = {};
    struct file *file;
    if (!follow(task) || !scratch || bpf_probe_read_kernel(&sqe, sizeof(sqe), sqe_at))
        return 0;
    if (sqe.opcode >= 64 || !(URING_RECORDED >> sqe.opcode & 1))
        return 0;
    struct flight *one = &scratch->flight;
    __builtin_memset(one, 0, sizeof(*one));
    if (!(sqe.flags & IOSQE_FIXED_FILE) && (file = file_of(sqe.fd))) {
        look_at_file(scratch, one, file);
        name_file(scratch, one, task->tgid);
    }
    one->row = CLASS_URING;
    one->number = sqe.opcode;
    one->args[0] = bpf_get_current_pid_tgid();
    one->args[1] = sqe.off;
    one->args[2] = sqe.len;
    one->args[3] = one->args[4] = sqe.op_flags;
    GET(ring_of, request, ctx);
    one->inode = (__u64)ring_of;
    GET(one->file, request, cqe.user_data);
    one->start = bpf_ktime_get_ns();
    if (bpf_map_update_elem(&requests, &key, one, BPF_ANY))
        lose_calls(LOST_FLIGHT, task->tgid, 1);
    return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_complete, void *context, void *request_at)
{
    struct io_kiocb *request = AS(io_kiocb, request_at);
    __u64 end = bpf_ktime_get_ns(), key = (__u64)request_at;
    struct flight *flight = bpf_map_lookup_elem(&requests, &key);
    struct scratch *scratch = scratch_of_cpu();
    struct file *file = 0;
    struct io_ring_ctx *ring_of = 0;
    __u64 user_data = 0;
    __s32 result = 0;
    if (!flight || !scratch)
        return 0;
    // Another's that took the place of one of which no completion was told.
    GET(ring_of, request, ctx);
    GET(user_data, request, cqe.user_data);
    if ((__u64)ring_of != flight->inode || user_data != flight->file) {
        bpf_map_delete_elem(&requests, &key);
        return 0;
    }
    // Of one that was refused the file is known already.
    flight->file = flight->identity.ino != 0;
    __u32 tgid = flight->args[0] >> 32, tid = flight->args[0];
    GET(file, request, file);
    GET(result, request, cqe.res);
    if (file) {
        look_at_file(scratch, flight, file);
        name_file(scratch, flight, tgid);
    }
    GET(flight->after, AS(io_rw, request), kiocb.ki_pos);
    // How long the thread that submitted it was in a call for that.
    __u64 *since = bpf_map_lookup_elem(&waiting, &tid);
    if (since)
        flight->args[5] = end - (*since > flight->start ? *since : flight->start);
    tell(flight, tgid, tid, end, result);
    bpf_map_delete_elem(&requests, &key);
    return 0;
}
