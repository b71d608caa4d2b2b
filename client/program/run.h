/* sluice job: items from files, to a program, and back to files; and sluice programs. */
#pragma once

#include "client/option/settings.h"
#include "client/terminal/status.h"

enum status program_job(const struct settings *settings, const char *program);
enum status program_list(const struct settings *settings);
