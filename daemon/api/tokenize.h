/* TOKENIZE and DETOKENIZE: texts and conversations to tokens, and tokens to text, without the
 * device. The same code as HTTP's /tokenize and /detokenize.
 *
 * Long texts and all conversations are tokenized off the loop. Meanwhile the question is in its
 * connection's list; it has copied what it is about, since the frame goes.
 *
 * loop thread
 */
#pragma once

#include "protocol/base/clock.h"

struct session;
struct frame;

/* A whole frame of a greeted connection. Answers, also what is wrong with it. */
void tokenize_frame(struct session *session, const struct frame *frame, time_us now_us);
/* The connection goes: nobody waits for the answers any more. */
void tokenize_forget(struct session *session);
