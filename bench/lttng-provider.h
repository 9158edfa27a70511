/* One tracepoint with the fields of a record of floor.c; LTTng adds the clock, the processor and, by context,
 * the thread. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER cawl_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng-provider.h"

#if !defined(LTTNG_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_PROVIDER_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    cawl_bench, call,
    LTTNG_UST_TP_ARGS(int, op, int, fd, unsigned long, start, unsigned long, requested, long, returned),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int, op, op)
        lttng_ust_field_integer(int, fd, fd)
        lttng_ust_field_integer(unsigned long, start, start)
        lttng_ust_field_integer(unsigned long, requested, requested)
        lttng_ust_field_integer(long, returned, returned)))

#endif

#include <lttng/tracepoint-event.h>
