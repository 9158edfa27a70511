// Types of the kernel, with the fields that are asked for. Where these lie is found out when the object is loaded.
#pragma once

#define CORE __attribute__((preserve_access_index))

struct qstr {
    const unsigned char *name;
} CORE;

struct super_block {
    __u32 s_dev;
    unsigned long s_magic;
} CORE;

struct inode {
    __u16 i_mode;
    struct super_block *i_sb;
    unsigned long i_ino;
    __u32 __i_nlink;
    __s64 i_size;
    __u64 i_blocks;
    __u8 i_blkbits;
    __u32 i_generation;
} CORE;

struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
    struct inode *d_inode;
    struct super_block *d_sb;
} CORE;

struct vfsmount {
    struct dentry *mnt_root;
} CORE;

struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
} CORE;

struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
} CORE;

struct folio {
    unsigned long index;
    unsigned long _flags_1;
} CORE;

struct folio___before_6_6 {
    __u8 _folio_order;
} CORE;

// Its bits, of which the first word of a folio has those.
enum pageflags { PG_head = 1 };

struct address_space {
    struct inode *host;
    unsigned long nrpages;
} CORE;

struct file {
    struct path f_path;
    struct address_space *f_mapping;
    struct inode *f_inode;
    __u32 f_flags;
    __u32 f_mode;
    __s64 f_pos;
} CORE;

// A pointer in an array of them.
struct hlist_node;
struct hlist_head {
    struct hlist_node *first;
} CORE;

struct fdtable {
    __u32 max_fds;
    struct file **fd;
} CORE;

struct files_struct {
    struct fdtable *fdt;
} CORE;

struct fs_struct {
    struct path root;
    struct path pwd;
} CORE;

struct task_io_accounting {
    __u64 wchar;
} CORE;

typedef struct {
    int counter;
} atomic_t;

struct signal_struct {
    atomic_t live;
    int nr_threads;
} CORE;

struct thread_info {
    unsigned long flags;
} CORE;

struct thread_info___x86 {
    __u32 status;
} CORE;

struct bpf_local_storage;

struct kernfs_node {
    __u64 id;
} CORE;

struct cgroup;
struct cgroup_subsys_state {
    struct cgroup *cgroup;
    struct cgroup_subsys_state *parent;
} CORE;

struct cgroup_root {
    int hierarchy_id;
} CORE;

struct cgroup {
    struct cgroup_subsys_state self;
    struct kernfs_node *kn;
    struct cgroup_root *root;
} CORE;

struct sched_entity {
    __u64 sum_exec_runtime;
} CORE;

struct task_struct {
    struct thread_info thread_info;
    __s32 pid;
    __s32 tgid;
    __u32 flags;
    int exit_code;
    struct sched_entity se;
    __u64 utime;
    __u64 stime;
    struct fs_struct *fs;
    struct files_struct *files;
    struct signal_struct *signal;
    struct task_io_accounting ioac;
    char comm[16];
    struct bpf_local_storage *bpf_storage;
} CORE;

struct linux_binprm {
    const char *filename;
} CORE;

struct pt_regs___x86 {
    unsigned long di, si, dx, r10, r8, r9;
} CORE;

struct pt_regs___arm64 {
    __u64 regs[31];
} CORE;

struct kiocb {
    __s64 ki_pos;
    int ki_flags;
} CORE;

struct io_rw {
    struct kiocb kiocb;
    __u32 len;
} CORE;

struct io_sync {
    int flags;
} CORE;

struct io_cqe {
    __u64 user_data;
    __s32 res;
} CORE;

struct io_ring_ctx;
struct io_kiocb {
    struct file *file;
    __u8 opcode;
    __u32 flags;
    struct io_cqe cqe;
    struct io_ring_ctx *ctx;
} CORE;

#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_DUMPCORE 0x200
#define PF_KTHREAD 0x200000
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFCHR 0020000
#define S_IFIFO 0010000
#define F_DUPFD 0
#define F_DUPFD_CLOEXEC 1030
#define FICLONE 0x40049409
#define FICLONERANGE 0x4020940d
#define O_ACCMODE 3
#define O_APPEND 02000
#define O_RDONLY 0
#define TS_COMPAT 2
#define AT_FDCWD -100
#define IOCB_CMD_PREADV 7
#define IOCB_CMD_PWRITEV 8
#define IOSQE_FIXED_FILE (1 << 0)
#define IOSQE_CQE_SKIP_SUCCESS (1 << 6)
// The first part of what a program submits (struct io_uring_sqe).
struct sqe {
    __u8 opcode;
    __u8 flags;
    __u16 priority;
    __s32 fd;
    __u64 off;
    __u64 address;
    __u32 len;
    // RWF_ of reads and writes; of a sync whether it is one of data alone.
    __u32 op_flags;
};

// Of libaio, as programs have it.
struct iocb {
    __u64 data;
    __u32 key;
    __u32 rw_flags;
    __u16 lio_opcode;
    __s16 priority;
    __u32 fildes;
    __u64 buffer;
    __u64 nbytes;
    __s64 offset;
    __u64 unused;
    __u32 flags;
    __u32 resfd;
};

struct io_event {
    __u64 data;
    __u64 request;
    __s64 result;
    __s64 more;
};
