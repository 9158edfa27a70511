/* A function that turns its arguments into a list and hands over to the Rust half. */
#include <stdarg.h>

#define PASS_ON(name, last, parameters, ...)   \
    int cawl_c_##name parameters {             \
        va_list list;                          \
        va_start(list, last);                  \
        int returned = cawl_v##name(__VA_ARGS__, list); \
        va_end(list);                          \
        return returned;                       \
    }
