/* What the compiler calls to unwind, for this library alone, by way of the unwinder that is there.
 *
 * To be linked with one costs each traced program its loading, and in a virtual machine ten exits to the host, since its
 * constructor asks for the processor's features. The tracer begins no unwinding, so nearly always the one that throws or
 * cancels a thread has loaded it. A program that has an unwinder linked in has not; then it is loaded here. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef uintptr_t (*function)(uintptr_t, uintptr_t, uintptr_t);

/* In the libraries behind this one; base/symbols.rs. */
extern void *cawl_find(const char *name);

static function find(const char *name) {
    void *found = cawl_find(name);
    if (!found) {
        /* The second is that of a C library whose dlopen is in a library of its own. */
        void *(*load)(const char *, int) = (void *(*)(const char *, int))cawl_find("dlopen");
        if (!load)
            load = (void *(*)(const char *, int))cawl_find("__libc_dlopen_mode");
        if (load && load("libgcc_s.so.1", RTLD_LAZY))
            found = cawl_find(name);
    }
    if (!found)
        abort();
    return (function)found;
}

#define FORWARD(name) \
    uintptr_t name(uintptr_t a, uintptr_t b, uintptr_t c) { return find(#name)(a, b, c); }

FORWARD(_Unwind_Backtrace)
FORWARD(_Unwind_GetDataRelBase)
FORWARD(_Unwind_GetIP)
FORWARD(_Unwind_GetIPInfo)
FORWARD(_Unwind_GetLanguageSpecificData)
FORWARD(_Unwind_GetRegionStart)
FORWARD(_Unwind_GetTextRelBase)
FORWARD(_Unwind_RaiseException)
FORWARD(_Unwind_Resume)
FORWARD(_Unwind_SetGR)
FORWARD(_Unwind_SetIP)
