/* Texts to tokens and back, by the daemon's tokenizer. */
#pragma once

#include "client/command/command.h"

enum status tokenize_command(const struct command *command, const struct settings *settings,
                             int argc, char **argv);
enum status detokenize_command(const struct command *command, const struct settings *settings,
                               int argc, char **argv);
