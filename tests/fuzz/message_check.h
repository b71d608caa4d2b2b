/* What must hold of any frame, for the targets that make frames. */
#pragma once

#include "protocol/frame.h"

/* Decodes the frame as its type says. What is accepted must encode to a frame that is accepted,
 * too, and encodes to the same bytes again; what is refused must have a code of the protocol. */
void message_check(const struct frame *frame);
