/* What the compiler calls to copy, fill and compare memory, for this library alone.
 *
 * The C library's could be anyone's: under the thread sanitizer they look at each access, do not know the tracer's
 * atomics, and end the program for a race that is none. Hidden, so that no other library gets these. */
#include <stddef.h>

/* Without this the compiler would make calls of these functions in themselves. */
#pragma GCC optimize("no-tree-loop-distribute-patterns")

void *memcpy(void *restrict to, const void *restrict from, size_t length) {
    void *at = to;
#if defined __x86_64__
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(length) : : "memory");
#else
    for (unsigned char *byte = at; length--;)
        *byte++ = *(const unsigned char *)from++;
#endif
    return to;
}

void *memmove(void *to, const void *from, size_t length) {
    unsigned char *at = to;
    const unsigned char *of = from;
    if ((size_t)(at - of) >= length)
        return memcpy(to, from, length);
    while (length--)
        at[length] = of[length];
    return to;
}

void *memset(void *to, int value, size_t length) {
    void *at = to;
#if defined __x86_64__
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(length) : "a"(value) : "memory");
#else
    for (unsigned char *byte = at; length--;)
        *byte++ = value;
#endif
    return to;
}

int memcmp(const void *one, const void *other, size_t length) {
    const unsigned char *a = one, *b = other;
    for (; length--; a++, b++)
        if (*a != *b)
            return *a - *b;
    return 0;
}

int bcmp(const void *one, const void *other, size_t length) { return memcmp(one, other, length); }
