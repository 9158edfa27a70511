/* The thread's own record, in the initial-exec TLS block: to reach it never allocates. Stable Rust cannot
 * ask for that model. */

/* Layout: struct Thread in base/thread.rs. */
#include <stddef.h>
#include <stdio.h>

struct cawl_thread {
    size_t busy;
    unsigned long long ids;
    void *slot;
    /* struct Notes in base/notes.rs. */
    unsigned long long notes[6];
    void *room;
    unsigned entry;
    unsigned looks;
};

__thread struct cawl_thread cawl_thread __attribute__((tls_model("initial-exec"), visibility("hidden"), aligned(64)));

struct cawl_thread *cawl_thread_here(void) { return &cawl_thread; }

/* Layout: struct Layout in state/glibc_file.rs. */
#define AT(field, place) _Static_assert(offsetof(FILE, field) == (place), "FILE is not laid out as expected: " #field)
AT(_flags, 0);
AT(_IO_read_ptr, 1 * sizeof(void *));
AT(_IO_read_end, 2 * sizeof(void *));
AT(_IO_read_base, 3 * sizeof(void *));
AT(_IO_write_base, 4 * sizeof(void *));
AT(_IO_write_ptr, 5 * sizeof(void *));
AT(_IO_buf_base, 7 * sizeof(void *));
AT(_IO_buf_end, 8 * sizeof(void *));
AT(_fileno, 14 * sizeof(void *));
AT(_mode, 24 * sizeof(void *));
