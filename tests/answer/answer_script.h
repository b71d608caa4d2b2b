/* A whole text through a reader, cut as a test says, and its events as one text: R(...) what was
 * thought, C(...) content, [NAME](...) a call. */
#pragma once

#include "daemon/answer/answer_reader.h"

struct answer_script {
    struct answer_form form;
    bool thinks, tools;
    const char *names, *types; /* as the reader's */
};

/* The marks of a chat template are special tokens, or texts. */
void answer_script_make(struct answer_script *script, const char *chat_template, bool special);
/* `cut` says after how many further bytes the text is cut, each time. The result is the caller's.
 */
char *answer_script_read(const struct answer_script *script, const char *text, size_t length,
                         size_t (*cut)(void *context), void *context);
