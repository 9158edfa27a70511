/* The thread's own record, in the initial-exec TLS block: to reach it never allocates. Stable Rust cannot
 * ask for that model. */

/* Layout: struct Thread in guard.rs. */
struct cawl_thread {
    unsigned busy;
    unsigned tid;
    void *slot;
    int *error_number;
};

__thread struct cawl_thread cawl_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));

struct cawl_thread *cawl_thread_here(void) { return &cawl_thread; }
