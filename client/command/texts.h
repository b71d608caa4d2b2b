/* Texts to tokens and back, by the daemon's tokenizer. */
#pragma once

#include "client/command/command.h"

enum status texts_tokenize(const struct command *command, const struct settings *settings, int argc,
                           char **argv);
enum status texts_detokenize(const struct command *command, const struct settings *settings,
                             int argc, char **argv);
