/* The tensors of an exchange: what came, what is asked for, and how far the answer is written.
 * loop thread, but for tensors_read()
 */
#pragma once

#include "daemon/http/exchange.h"
#include "daemon/http/query/query_tensors.h"
#include "daemon/jobs/job.h"

struct exchange_tensors {
    struct query_tensors query;
    struct job_program *program;
    uint32_t items;
    bool batched; /* shapes have a dimension for items before the program's own */
    uint32_t output_count;
    struct {
        uint32_t output; /* the program's number */
        bool binary;
    } outputs[SLUICE_TENSORS_MAX];

    /* The answer: what is next. */
    bool begun, bytes; /* it is behind the JSON */
    bool opened;       /* of JSON: the output's array is open */
    uint32_t at_output, at_item;
    uint64_t at; /* element of the item's output; of bytes: byte */
};

/* Reads the body, which holds at most `max` bytes, into exchange->tensors. Any thread: the loop
 * looks at none of it meanwhile. */
int tensors_read(struct exchange *exchange, size_t max, struct error *error);
void tensors_free(struct exchange_tensors *tensors); /* NULL is allowed */

/* The body has been read: makes a request of it, or refuses. */
void tensors_begin(struct exchange *exchange, time_us now_us);
/* struct api's news: the answer, a piece at a time, so that other clients have their turns. */
void tensors_news(struct exchange *exchange, time_us now_us);

/* The program that the path names, as NAME or NAME/versions/1. */
struct job_program *tensors_program(const struct exchange *exchange, struct error *error);
