/* scanf and its like take pointers only, so the registers of floating-point numbers need no room on the
 * stack: this file is compiled without them. The rules are those of variadic.c. */
#include "variadic.h"

#include <stdio.h>
#include <wchar.h>

extern int cawl_vscanf(const char *, va_list);
extern int cawl_vfscanf(FILE *, const char *, va_list);
extern int cawl_vscanf99(const char *, va_list);
extern int cawl_vfscanf99(FILE *, const char *, va_list);
extern int cawl_vscanf23(const char *, va_list);
extern int cawl_vfscanf23(FILE *, const char *, va_list);
extern int cawl_vwscanf(const wchar_t *, va_list);
extern int cawl_vfwscanf(FILE *, const wchar_t *, va_list);
extern int cawl_vwscanf99(const wchar_t *, va_list);
extern int cawl_vfwscanf99(FILE *, const wchar_t *, va_list);
extern int cawl_vwscanf23(const wchar_t *, va_list);
extern int cawl_vfwscanf23(FILE *, const wchar_t *, va_list);

/* The forms that the header chooses by the C standard asked for. */
#define SCANS(standard)                                                                         \
    PASS_ON(scanf##standard, format, (const char *format, ...), format)                         \
    PASS_ON(fscanf##standard, format, (FILE *stream, const char *format, ...), stream, format)  \
    PASS_ON(wscanf##standard, format, (const wchar_t *format, ...), format)                     \
    PASS_ON(fwscanf##standard, format, (FILE *stream, const wchar_t *format, ...), stream, format)

SCANS()
SCANS(99)
SCANS(23)
