// libcawl: what writes and reads cost on Linux, as the models of cawl predict it.
//
// A profile has the constants of a machine, a machine a page cache, devices, files and descriptors. Each call
// of a modelled program is told with the time at which it begins, and its cost is filled in, whole and by
// cause:
//
//     cawl_profile *profile; cawl_machine *machine; int32_t fd; cawl_cost cost;
//     cost.size = sizeof cost;
//     cawl_profile_from_file("profile.toml", &profile);
//     cawl_machine_new(profile, "kernel", &machine);
//     cawl_open(machine, task, file, CAWL_WRITE | CAWL_CREATE, now_ns, &fd, &cost);
//     cawl_write(machine, task, fd, 1 << 20, now_ns = cost.end_ns, &cost);
//
// Time is ns since a moment of the caller's choice, and never goes back from one call to the next: calls of
// several tasks are told in the order in which they begin, and may overlap. A task's next call begins at
// `end_ns` of the one before or later. Equal calls have equal costs, bit by bit.
//
// Errors: functions end with a cawl_status, which is 0 or negative, and change nothing unless it is CAWL_OK;
// cawl_error_text and cawl_last_error explain it. Where a call fails, its answer is not filled in, and a
// handle is NULL. No handle may be used after it was freed. Texts end in NUL and are UTF-8. Memory that runs
// out ends the program.
//
// Threads: a machine is used by one thread at a time, and so is a profile that is changed. Different
// machines, and a profile that nobody changes, are used by any number of threads. Handles may go from thread
// to thread. There is no lock inside. A process may fork at any time outside of a call.
//
// Versions: the symbols have version LIBCAWL_1. What is here stays; what is new comes at the end of structs
// whose first field is their size, as further functions, or as further numbers of an enum.
//
// This file is made by cbindgen; a test compares it with the library's source (crates/cawl-ffi).

#ifndef CAWL_H
#define CAWL_H

#include <stddef.h>
#include <stdint.h>

// Numbers of causes that there may be: those of `cawl_cause`, and room for more.
#define CAWL_CAUSES 32

// Bit of `flags`: low_ns and high_ns are known.
#define CAWL_HAS_INTERVAL 1

// Bit of `flags`: the dirty level is one at which the kernel may make the call pause.
#define CAWL_MAY_PAUSE 2

// Bit of `flags`: the flusher works on the call's device.
#define CAWL_FLUSHING 4

// Bit of `flags`: a periodic commit of the journal may be under way during the call.
#define CAWL_MAY_COMMIT 8

// cawl_open: to read from.
#define CAWL_READ 1

// cawl_open: to write to.
#define CAWL_WRITE 2

// cawl_open: the file is made if it is not there (O_CREAT).
#define CAWL_CREATE 4

// cawl_open: the file is cut off to nothing (O_TRUNC).
#define CAWL_TRUNCATE 8

// cawl_open: each write goes to the end of the file (O_APPEND).
#define CAWL_APPEND 16

// cawl_open: data and metadata are on the device when a write returns (O_SYNC).
#define CAWL_SYNC 32

// cawl_open: data are on the device when a write returns (O_DSYNC).
#define CAWL_DSYNC 64

// cawl_open: past the page cache (O_DIRECT).
#define CAWL_DIRECT 128

// cawl_open: a stream of the C library, as fopen makes one: only for cawl_fwrite, cawl_fflush, cawl_seek and
// cawl_close.
#define CAWL_STREAM 256

// How a call ended. A call that did not end with CAWL_OK has changed nothing.
enum cawl_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // It did what it should.
    CAWL_OK = 0,
    // A pointer is NULL that must not be.
    CAWL_ERROR_NULL = -1,
    // A text is not UTF-8.
    CAWL_ERROR_TEXT = -2,
    // A file of the real machine cannot be read.
    CAWL_ERROR_FILE = -3,
    // A profile is not one, or no machine could have it.
    CAWL_ERROR_PROFILE = -4,
    // There is no model of this name.
    CAWL_ERROR_MODEL = -5,
    // A number is out of its range.
    CAWL_ERROR_VALUE = -6,
    // The field `size` of a struct was not set to its size.
    CAWL_ERROR_SIZE = -7,
    // The call begins before one that was made earlier.
    CAWL_ERROR_TIME = -8,
    // The descriptor is not open, or not one of this process.
    CAWL_ERROR_DESCRIPTOR = -9,
    // The descriptor was opened for something else.
    CAWL_ERROR_ACCESS = -10,
    // There is no such file on the modelled machine.
    CAWL_ERROR_NO_FILE = -11,
    // The file is there already.
    CAWL_ERROR_EXISTS = -12,
    // A fault of the library. The machine that it happened in can only be freed.
    CAWL_ERROR_INTERNAL = -13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cawl_status cawl_status;
#else
typedef int32_t cawl_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why a call takes time: the index of `parts_ns` of `cawl_cost`. docs/guide/SLOW.md explains them.
enum cawl_cause
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Entering the kernel, and what it does once for each call.
    CAWL_CAUSE_CALL = 0,
    // The C library's stream: the call, and copying into its buffer.
    CAWL_CAUSE_STREAM = 1,
    // Copying into or out of the page cache.
    CAWL_CAUSE_COPY = 2,
    // Going through the blocks of a large folio of which the call writes a part.
    CAWL_CAUSE_LARGE_FOLIO = 3,
    // Allocating pages and entering them into the page cache.
    CAWL_CAUSE_NEW_PAGES = 4,
    // Taking pages out of the page cache.
    CAWL_CAUSE_FREED_PAGES = 5,
    // Memory that the host of a virtual machine has to supply first.
    CAWL_CAUSE_COLD_MEMORY = 6,
    // Reading a page that is written in part, or the source of a copy.
    CAWL_CAUSE_PARTIAL_PAGE = 7,
    // The device reads what is not cached.
    CAWL_CAUSE_READ = 8,
    // An overlay copies a file of a lower layer.
    CAWL_CAUSE_COPY_UP = 9,
    // What copying takes longer while the flusher works.
    CAWL_CAUSE_FLUSHER_BESIDE = 10,
    // Pauses in `balance_dirty_pages`.
    CAWL_CAUSE_THROTTLE = 11,
    // A commit of the filesystem's journal, or waiting for one.
    CAWL_CAUSE_JOURNAL = 12,
    // Waiting for requests that the device had before.
    CAWL_CAUSE_QUEUE = 13,
    // The device writes the data, or discards what was freed.
    CAWL_CAUSE_TRANSFER = 14,
    // The device moves to another place.
    CAWL_CAUSE_SEEK = 15,
    // The device's write cache is flushed.
    CAWL_CAUSE_DEVICE_FLUSH = 16,
    // The way over the network, and what the server takes.
    CAWL_CAUSE_NETWORK = 17,
    // Another thread writes to the same file.
    CAWL_CAUSE_LOCK = 18,
    // Another thread has the processor. No model predicts it.
    CAWL_CAUSE_PREEMPTED = 19,
    // Writing to /dev/null. No model predicts it.
    CAWL_CAUSE_DISCARD = 20,
    // What no law explains. No model predicts it.
    CAWL_CAUSE_UNEXPECTED = 21,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cawl_cause cawl_cause;
#else
typedef uint32_t cawl_cause;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What determined most of a call's cost.
enum cawl_state
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The model has no opinion on such calls: their cost is 0.
    CAWL_STATE_NONE = 0,
    // Into or out of the page cache, nothing in the way.
    CAWL_STATE_FREE = 1,
    // Into the page cache while the flusher writes back.
    CAWL_STATE_FLUSH = 2,
    // Held back by the kernel because too much is dirty.
    CAWL_STATE_THROTTLE = 3,
    // Waited for the device: O_SYNC, O_DIRECT, fsync and relatives.
    CAWL_STATE_SYNC = 4,
    // Waited for the device to read what was not cached.
    CAWL_STATE_READ = 5,
    // Only into the stream's buffer.
    CAWL_STATE_BUFFERED = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cawl_state cawl_state;
#else
typedef uint32_t cawl_state;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The regime of a whole machine.
enum cawl_regime
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // No writeback going on.
    CAWL_REGIME_FREE = 0,
    // The flusher works in the background.
    CAWL_REGIME_FLUSH = 1,
    // Writers are being throttled.
    CAWL_REGIME_THROTTLE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cawl_regime cawl_regime;
#else
typedef uint32_t cawl_regime;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A modelled machine.
typedef struct cawl_machine cawl_machine;

// What was measured of a machine. Threads may share one as long as none changes it.
typedef struct cawl_profile cawl_profile;

// Who makes a call: numbers of the caller's choice. A thread belongs to one process.
typedef struct cawl_task {
    // Whose descriptors and streams are used.
    uint32_t process;
    // Which thread is held back when it has dirtied too much.
    uint32_t thread;
} cawl_task;

// What a call costs. Set `size` once; the library fills in the rest at each call.
typedef struct cawl_cost {
    // To be set by the caller: sizeof(cawl_cost). Later versions may be longer.
    uint32_t size;
    // A `cawl_state`.
    uint32_t state;
    // Bits CAWL_HAS_INTERVAL, …
    uint32_t flags;
    // 0.
    uint32_t reserved;
    // The whole cost in ns; 0 if `state` is CAWL_STATE_NONE.
    double cost_ns;
    // 10th percentile of the cost in ns, where the profile's uncertainties allow to tell; else `cost_ns`.
    double low_ns;
    // 90th percentile, likewise.
    double high_ns;
    // When the call ends, in ns: its begin and the cost, rounded. The thread's next call begins then, or
    // later.
    uint64_t end_ns;
    // Bytes that the call moved: fewer than asked for where a file to read ends.
    uint64_t bytes;
    // Dirty bytes of the machine when the call ends, those under writeback included.
    uint64_t dirty_bytes;
    // The parts of the cost in ns, by `cawl_cause`. They add up to it, up to rounding.
    double parts_ns[CAWL_CAUSES];
} cawl_cost;

// A file of the modelled machine: numbers of the caller's choice.
typedef struct cawl_file {
    // The device that it lies on. One that the profile does not know by number has the constants of its
    // `device`.
    uint64_t device;
    // Which of the device's files.
    uint64_t inode;
} cawl_file;

// Where a machine stands. Set `size` before; the library fills in the rest.
typedef struct cawl_levels {
    // To be set by the caller: sizeof(cawl_levels). Later versions may be longer.
    uint32_t size;
    // A `cawl_regime`.
    uint32_t regime;
    // The moment that this is true of, in ns: the end of the latest call as predicted, or what the machine
    // was advanced to.
    uint64_t time_ns;
    // Dirty bytes, those under writeback included.
    uint64_t dirty_bytes;
    // Dirty bytes from which on the flusher works.
    uint64_t background_bytes;
    // Dirty bytes that writers are held below.
    uint64_t hard_bytes;
    // Bytes per second that are being cleaned; 0 if none are.
    double writeback_bytes_per_s;
    // Bytes per second at which the writers are let through; 0 if they are not throttled.
    double throttled_bytes_per_s;
} cawl_levels;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What a code means; "unknown error" of one that this version does not have. Never NULL, never to be freed.
const char *cawl_error_text(int32_t status);

// Details of the latest call of this thread that failed, such as the line of a profile: a text that is valid
// until the next one fails or the thread ends. "" where the code says all, and before any failed. Never
// NULL, never to be freed.
const char *cawl_last_error(void);

// Version of the library, as "0.1.0". Never to be freed.
const char *cawl_version(void);

// Name of a cause, as reports have it; NULL of a number that is none's. Never to be freed.
const char *cawl_cause_name(uint32_t cause);

// A profile of an ordinary machine that was not measured: orders of magnitude only.
cawl_status cawl_profile_default(struct cawl_profile **profile);

// A profile from its text (TOML), as `cawl-cli profile show` prints it. CAWL_ERROR_PROFILE: cawl_last_error
// tells the line.
cawl_status cawl_profile_from_text(const char *toml, struct cawl_profile **profile);

// A profile from a file, as `cawl-cli calibrate` keeps it. CAWL_ERROR_FILE: cawl_last_error tells why it
// cannot be read.
cawl_status cawl_profile_from_file(const char *path, struct cawl_profile **profile);

// Changes constants of a profile: `toml` has those that differ, as "device.writeback.value = 1e8". The
// profile stays as it was if no machine could have the result. docs/reference/CONSTANTS.md has all
// constants, their units and meaning. Machines that were made of the profile before stay as they are.
cawl_status cawl_profile_set(struct cawl_profile *profile, const char *toml);

// The device of this number is that of the profile `of`, whose other constants do not count. `of` is only
// read, and may be the same profile.
cawl_status cawl_profile_set_device(struct cawl_profile *profile,
                                    uint64_t device,
                                    const struct cawl_profile *of);

// Frees a profile; NULL is fine.
void cawl_profile_free(struct cawl_profile *profile);

// A machine of this profile, with an empty page cache, and the model of this name: "kernel" follows the laws
// of Linux, "cawl" those of the CAWL paper, "naive" divides bytes by a rate. The profile may be freed
// afterwards.
cawl_status cawl_machine_new(const struct cawl_profile *profile,
                             const char *model,
                             struct cawl_machine **machine);

// An independent copy of a machine, to look ahead with: what is dirty is shared until it changes.
// Descriptors and files have the same numbers there.
cawl_status cawl_fork(const struct cawl_machine *machine, struct cawl_machine **copy);

// Frees a machine; NULL is fine.
void cawl_machine_free(struct cawl_machine *machine);

// Writes at the descriptor's position, in bytes, and moves it. CAWL_ERROR_VALUE beyond 2^40 bytes.
cawl_status cawl_write(struct cawl_machine *machine,
                       struct cawl_task task,
                       int32_t descriptor,
                       uint64_t bytes,
                       uint64_t now_ns,
                       struct cawl_cost *cost);

// Writes at a place of the file, both in bytes; the position stays.
cawl_status cawl_pwrite(struct cawl_machine *machine,
                        struct cawl_task task,
                        int32_t descriptor,
                        uint64_t bytes,
                        uint64_t offset,
                        uint64_t now_ns,
                        struct cawl_cost *cost);

// Appends to a stream (CAWL_STREAM), in bytes: what fits its buffer costs a copy, and the buffer is written
// when it is full. How large it is, the profile tells (`kernel.stream_buffer`).
cawl_status cawl_fwrite(struct cawl_machine *machine,
                        struct cawl_task task,
                        int32_t descriptor,
                        uint64_t bytes,
                        uint64_t now_ns,
                        struct cawl_cost *cost);

// Writes what a stream has in its buffer.
cawl_status cawl_fflush(struct cawl_machine *machine,
                        struct cawl_task task,
                        int32_t descriptor,
                        uint64_t now_ns,
                        struct cawl_cost *cost);

// Reads at the descriptor's position, in bytes, and moves it; no further than the file goes.
cawl_status cawl_read(struct cawl_machine *machine,
                      struct cawl_task task,
                      int32_t descriptor,
                      uint64_t bytes,
                      uint64_t now_ns,
                      struct cawl_cost *cost);

// Reads at a place of the file, both in bytes; the position stays.
cawl_status cawl_pread(struct cawl_machine *machine,
                       struct cawl_task task,
                       int32_t descriptor,
                       uint64_t bytes,
                       uint64_t offset,
                       uint64_t now_ns,
                       struct cawl_cost *cost);

// Waits until the file is on its device.
cawl_status cawl_fsync(struct cawl_machine *machine,
                       struct cawl_task task,
                       int32_t descriptor,
                       uint64_t now_ns,
                       struct cawl_cost *cost);

// Waits until the file's data, and what it takes to read them, are on its device.
cawl_status cawl_fdatasync(struct cawl_machine *machine,
                           struct cawl_task task,
                           int32_t descriptor,
                           uint64_t now_ns,
                           struct cawl_cost *cost);

// Closes a descriptor; a stream writes its buffer first. A file without name or descriptor goes.
cawl_status cawl_close(struct cawl_machine *machine,
                       struct cawl_task task,
                       int32_t descriptor,
                       uint64_t now_ns,
                       struct cawl_cost *cost);

// Sets the length of a file, in bytes.
cawl_status cawl_truncate(struct cawl_machine *machine,
                          struct cawl_task task,
                          struct cawl_file file,
                          uint64_t size_bytes,
                          uint64_t now_ns,
                          struct cawl_cost *cost);

// Takes a file's name away. What is dirty of it is never written once no descriptor leads to it. Its numbers
// may be used for a new file.
cawl_status cawl_unlink(struct cawl_machine *machine,
                        struct cawl_task task,
                        struct cawl_file file,
                        uint64_t now_ns,
                        struct cawl_cost *cost);

// Gives a file another name: that of the file `replaced`, which loses it as by cawl_unlink, or one that was
// free if `replaced` is NULL. The file keeps its numbers. CAWL_ERROR_VALUE: they are of two devices.
cawl_status cawl_rename(struct cawl_machine *machine,
                        struct cawl_task task,
                        struct cawl_file file,
                        const struct cawl_file *replaced,
                        uint64_t now_ns,
                        struct cawl_cost *cost);

// Opens a file, and gives its descriptor: `how` has the bits CAWL_READ, CAWL_WRITE and others of cawl_open.
// CAWL_ERROR_NO_FILE: it is not there, and CAWL_CREATE was not given. The descriptor is the process's own.
cawl_status cawl_open(struct cawl_machine *machine,
                      struct cawl_task task,
                      struct cawl_file file,
                      uint32_t how,
                      uint64_t now_ns,
                      int32_t *descriptor,
                      struct cawl_cost *cost);

// A file that was there before, of so many bytes: all of it is in the page cache if `cached` is not 0, else
// nothing. CAWL_ERROR_EXISTS: the machine has it already.
cawl_status cawl_add_file(struct cawl_machine *machine,
                          struct cawl_file file,
                          uint64_t size_bytes,
                          int32_t cached);

// Moves a descriptor's position to this place of its file, in bytes. No model has a cost of it.
cawl_status cawl_seek(struct cawl_machine *machine, int32_t descriptor, uint64_t offset);

// Lets time pass up to this moment, in ns: the flusher works. Calls begin no earlier afterwards; a moment in
// the past does nothing. Before a call this is not needed, since each tells when it begins.
cawl_status cawl_advance(struct cawl_machine *machine, uint64_t now_ns);

// Sets the machine's dirty limits, in bytes (vm.dirty_background_bytes, vm.dirty_bytes). A lower hard limit
// comes into force slowly, as in Linux (`update_dirty_limit`).
// CAWL_ERROR_VALUE unless background < hard.
cawl_status cawl_set_limits(struct cawl_machine *machine, uint64_t background_bytes, uint64_t hard_bytes);

// Where the machine stands.
cawl_status cawl_level(struct cawl_machine *machine, struct cawl_levels *levels);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CAWL_H */
