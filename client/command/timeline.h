/* sluice timeline: batches over the stages of lanes, as they ran or by the model. */
#pragma once

#include "client/command/command.h"

enum status timeline_command(const struct command *command, const struct settings *settings,
                             int argc, char **argv);
