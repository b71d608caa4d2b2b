/* A conversation with the model, line by line. */
#pragma once

#include "client/command/command.h"

enum status chat_command(const struct command *command, const struct settings *settings, int argc,
                         char **argv);
