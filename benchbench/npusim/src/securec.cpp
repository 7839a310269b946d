// Bounds-checked C functions that CANN exports. torchair builds every error message with them.
#include "sim.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

NPUSIM_EXPORT int vsnprintf_s(char *out, size_t size, size_t count, const char *format, va_list arguments) {
    if (!out || !format || !size) return -1;
    const int length = vsnprintf(out, count < size ? count + 1 : size, format, arguments);
    return length < 0 || static_cast<size_t>(length) >= size ? -1 : length;
}

NPUSIM_EXPORT int snprintf_s(char *out, size_t size, size_t count, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf_s(out, size, count, format, arguments);
    va_end(arguments);
    return length;
}

NPUSIM_EXPORT int strcpy_s(char *out, size_t size, const char *text) {
    constexpr int kInvalid = 22;  // EINVAL
    if (!out || !text || strlen(text) >= size) return kInvalid;
    strcpy(out, text);
    return 0;
}
