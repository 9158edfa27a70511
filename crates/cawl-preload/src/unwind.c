/* What the compiler calls to unwind, for this library alone, by way of the unwinder that is there.
 *
 * To be linked with one costs each traced program its loading, and in a virtual machine ten exits to the host, since its
 * constructor asks for the processor's features. The tracer begins no unwinding, so nearly always the one that throws or
 * cancels a thread has loaded it. A program that has an unwinder linked in has not; then it is loaded here. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef uintptr_t (*function)(uintptr_t, uintptr_t, uintptr_t);

static function find(const char *name) {
    void *library = dlopen("libgcc_s.so.1", RTLD_LAZY);
    void *found = dlsym(library ? library : RTLD_DEFAULT, name);
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
