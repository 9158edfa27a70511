// What the probes put into the ring: records.rs reads it.
#pragma once

#define SYSCALLS 512
// In the place of a helper's number: lib.rs replaces the call.
#define CAST 0x7CA5CA57
// Entries of the filter of processes.
#define FILTER 16384
#define GROUPS 16
// Groups of version 1 are compared with so many above them.
#define LEVELS 32
#define THREADS 8192
// Requests of io_uring that are recorded: READV, WRITEV, FSYNC, READ_FIXED, WRITE_FIXED, READ, WRITE, READV_FIXED,
// WRITEV_FIXED.
#define URING_RECORDED (0x3eULL | 3ULL << 22 | 3ULL << 60)
#define DEEPEST 40
#define IS_CUT 1
#define REQUESTS 1024
#define VECTORS 64
#define PATH 4096
#define NAME 256
#define NAMES (PATH + NAME)

// A row of the table of system calls: a class, and which arguments are its descriptors and names.
#define CLASS 15
#define FIRST_FILE 4
#define FIRST_NAME 8
#define SECOND_FILE 12
#define SECOND_NAME 16
#define NO_ARGUMENT 15
#define IS_READ (1 << 20)
// The argument in the place of the first name points to 8 bytes, which come in the place of the last argument.
#define HAS_POINTER (1 << 21)
// To 32-bit programs, whose numbers are others, it is a write or a sync.
#define IS_COMPAT_WRITE (1 << 22)
// Of what cannot be written to it is not recorded.
#define IS_SEEK (1 << 24)
// It is recorded of folders, too.
#define IS_SYNC (1 << 23)

enum class {
    CLASS_NONE,
    // About the file behind a descriptor that it is given.
    CLASS_FILE,
    CLASS_FCNTL,
    CLASS_IOCTL,
    CLASS_CLOSE,
    // About the file behind the descriptor that it returns.
    CLASS_OPEN,
    // About files by name.
    CLASS_NAME,
    // About no file.
    CLASS_PLAIN,
    CLASS_SUBMIT,
    CLASS_REAP,
    // io_uring_enter, which is not told: requests that end in it have their thread wait.
    CLASS_RING,
    // Requests: of io_uring, and of libaio when they are handed over and when they are complete.
    CLASS_URING,
    CLASS_AIO,
    CLASS_COMPLETE,
    // A store through a mapping.
    CLASS_STORE,
};

enum loss { LOST_RECORD, LOST_FLIGHT, LOST_PROCESS, LOST_COMPAT, LOST_REQUEST, LOST_LIFE, LOSSES };

enum type { CALL = 1, NAMED, GIVEN, FORK, EXEC, EXIT, FOUND };

// What ended with a thread.
enum end { THREAD, PROCESS, PROCESS_MAYBE };

struct group {
    __u64 id;
    // Of version 2, whose hierarchy has the number 0.
    __u32 level;
    __u32 hierarchy;
};

struct head {
    __u32 type;
    __u32 tgid;
    __u32 tid;
    __u32 unused;
};

struct identity {
    __u64 ino;
    __u64 size;
    __u32 dev;
    __u32 generation;
    __u32 links;
    __u16 mode;
    __u16 unused;
};

struct known {
    __u64 ino;
    __u32 dev;
    __u32 generation;
    __u32 tgid;
    __u32 unused;
};

struct flight {
    __u64 start;
    __u64 args[6];
    __u64 file;
    __u64 inode;
    // The file's position, before and after the call.
    __u64 before;
    __u64 after;
    struct identity identity;
    __u32 number;
    __u32 row;
    __u32 flags;
    __u32 mode;
    // The descriptor led to another file after the call.
    __u32 changed;
    __u32 unused;
};

struct thread {
    // Whose place it is; 0: nobody's. And how many want it.
    __u64 tid;
    __u64 claims;
    struct flight flight;
    // The file that was named last.
    __u64 named;
    __u64 ino;
    __u64 is_inside;
};

struct call {
    struct head head;
    __u64 end;
    __s64 result;
    struct flight flight;
};

struct naming {
    struct head head;
    struct identity identity;
    // Of a name that a call was given: the first or the second. Of a path: whether it has no beginning.
    __u32 which;
    __u32 length;
    // Pages of it that are cached.
    __u64 cached;
    __u64 magic;
    char names[NAMES];
};

struct life {
    struct head head;
    __u64 at;
    __u64 wchar;
    // Of processor time the kernel counts these by ticks, and all of it exactly.
    __u64 user;
    __u64 system;
    __u64 runtime;
    // Of a fork the child, of an end what ended; of one that is met, whether `wchar` is all that it wrote.
    __u32 other;
    __s32 code;
    char name[16];
};

struct image {
    struct head head;
    __u64 at;
    __u64 wchar;
    char program[PATH];
};

// Bytes copied of a structure: most fields lie within that are asked for.
#define BYTES 128

struct scratch {
    char file[BYTES];
    char inode[BYTES];
    struct flight flight;
    struct address_space *mapping;
    union {
        struct naming naming;
        struct image image;
    };
};
