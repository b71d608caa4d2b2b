/* A sequence of the stub: what synthetic:null would answer to it, step by step. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/message.h"

struct stub_seq {
    struct stub_seq *next;
    size_t conn; /* index of its connection */
    uint64_t id, request;
    uint32_t number;
    enum job job;
    enum pooling pooling;
    bool text, finished;
    enum finish finish;
    int32_t first_token;
    uint64_t state;
    struct sampling sampling;
    uint32_t prompt_count, made;
    int32_t prompt[];
};

struct stub_seq *stub_seq_make(const struct message_submit *submit,
                               const struct message_prompt *prompt);
/* The next frame that it sends; the caller frees it. Sets finished with the last one. */
unsigned char *stub_seq_step(struct stub_seq *seq, size_t *ret_size);
