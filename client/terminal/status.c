#include "client/terminal/status.h"

#include <stdarg.h>
#include <stdio.h>

enum status status_of_error(const sluice_error *error)
{
    switch (error->code) {
    case 0:
        return STATUS_OK;
    case SLUICE_E_CONNECT:
        return STATUS_CONNECT;
    case SLUICE_E_DEADLINE:
        return STATUS_DEADLINE;
    case SLUICE_E_USAGE:
    case SLUICE_E_EMPTY:
        return STATUS_USAGE;
    case SLUICE_E_INTERNAL:
    case SLUICE_E_IO:
        return STATUS_SERVER;
    default:
        return error->retry == SLUICE_RETRY_LATER ? STATUS_RETRY : STATUS_SERVER;
    }
}

enum status status_of_end(const sluice_end *end)
{
    switch (end->finish) {
    case SLUICE_FINISH_STOP:
    case SLUICE_FINISH_LENGTH:
        return STATUS_OK;
    case SLUICE_FINISH_DEADLINE:
        return STATUS_DEADLINE;
    case SLUICE_FINISH_ERROR:
        return status_of_error(&end->error);
    default:
        return STATUS_SERVER;
    }
}

void say(const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "sluice: %s\n", text);
}
