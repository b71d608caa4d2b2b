/* Commands that ask the daemon about itself, or tell it what to do. */
#pragma once

#include "client/command/command.h"

enum status control_stats(const struct command *command, const struct settings *settings, int argc,
                          char **argv);
enum status control_health(const struct command *command, const struct settings *settings, int argc,
                           char **argv);
enum status control_sleep(const struct command *command, const struct settings *settings, int argc,
                          char **argv);
enum status control_wake(const struct command *command, const struct settings *settings, int argc,
                         char **argv);
enum status control_reload(const struct command *command, const struct settings *settings, int argc,
                           char **argv);
enum status control_model(const struct command *command, const struct settings *settings, int argc,
                          char **argv);
enum status control_cancel(const struct command *command, const struct settings *settings, int argc,
                           char **argv);
enum status control_drain(const struct command *command, const struct settings *settings, int argc,
                          char **argv);
enum status control_job(const struct command *command, const struct settings *settings, int argc,
                        char **argv);
enum status control_programs(const struct command *command, const struct settings *settings, int argc,
                             char **argv);
enum status control_resume(const struct command *command, const struct settings *settings, int argc,
                           char **argv);
