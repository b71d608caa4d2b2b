/* The fields of a prompt beside its tokens or text: how it is sampled and where it stops. For
 * whatever reads or writes a prompt: the message_submit files, and HTTP's bodies. */
#pragma once

#include "protocol/message.h"

/* Takes one member of a head over into the prompt. *ret_known = false, and nothing is done, when it
 * is none of these fields. Stop strings and the bias borrow from the document. */
int sampling_read(const json *member, const struct message_limits *limits,
                  struct message_prompt *prompt, bool *ret_known, struct error *error);

/* What only holds once all fields are read. */
int sampling_check(const struct sampling *sampling, struct error *error);

/* Appends the fields that differ from sampling_unset(). */
void sampling_write(struct json_writer *writer, const struct message_prompt *prompt,
                    const struct message_bias *bias, uint32_t bias_count);

/* Whether two prompts would be written alike; tokens and texts aside. */
bool sampling_equal(const struct message_prompt *a, const struct message_prompt *b);
