/* SUBMIT as the client writes it. */
#include <string.h>

#include "protocol/head.h"
#include "protocol/message.h"
#include "protocol/message_sampling.h"

static const char *const pooling_names[] = {
    [POOLING_LAST] = "last", [POOLING_MEAN] = "mean", [POOLING_ALL] = "all"};

static uint32_t bias_count(const struct message_submit_out *submit, uint32_t index)
{
    return submit->bias && submit->bias_count ? submit->bias_count[index] : 0;
}

static const struct message_bias *bias_of(const struct message_submit_out *submit, uint32_t index)
{
    return bias_count(submit, index) > 0 ? submit->bias[index] : NULL;
}

static bool same_bias(const struct message_submit_out *submit, uint32_t a, uint32_t b)
{
    const struct message_bias *left = bias_of(submit, a), *right = bias_of(submit, b);
    if (bias_count(submit, a) != bias_count(submit, b))
        return false;
    for (uint32_t i = 0; i < bias_count(submit, a); i++)
        if (left[i].token != right[i].token || left[i].value != right[i].value)
            return false;
    return true;
}

static bool all_alike(const struct message_submit_out *submit)
{
    for (uint32_t i = 1; i < submit->prompt_count; i++)
        if (!sampling_equal(&submit->prompts[0], &submit->prompts[i]) || !same_bias(submit, 0, i))
            return false;
    return true;
}

static void write_prompts(struct json_writer *writer, const struct message_submit_out *submit)
{
    bool texts = submit->prompts[0].text != NULL;
    json_open(writer, texts ? "texts" : submit->prompts[0].chat ? "chats" : "lengths", '[');
    for (uint32_t i = 0; i < submit->prompt_count; i++) {
        const struct message_prompt *prompt = &submit->prompts[i];
        if (texts)
            json_put_string(writer, NULL, prompt->text, prompt->text_length);
        else
            json_put_uint(writer, NULL, prompt->chat ? prompt->chat_length : prompt->token_count);
    }
    json_close(writer, ']');
}

static void write_constraint(struct json_writer *writer, const struct message_constraint *constraint)
{
    if (constraint->kind == MESSAGE_CONSTRAINT_NONE)
        return;
    json_put_text(writer, "constraint", message_constraint_name(constraint->kind));
    if (message_constraint_has_text(constraint->kind))
        json_put_string(writer, "constraint_text", constraint->text, constraint->length);
}

static void write_head(struct json_writer *writer, const struct message_submit_out *submit)
{
    json_open(writer, NULL, '{');
    json_put_text(writer, "job", job_name(submit->params.job));
    if (submit->params.priority)
        json_put_int(writer, "priority", submit->params.priority);
    if (submit->params.deadline_ms)
        json_put_uint(writer, "deadline_ms", submit->params.deadline_ms);
    json_put_bool(writer, "stream", submit->params.stream);
    if (submit->params.want_text)
        json_put_bool(writer, "text", true);
    if (submit->params.partial)
        json_put_bool(writer, "partial", true);
    if (submit->params.no_cache)
        json_put_bool(writer, "cache", false);
    if (submit->params.cache_salt)
        json_put_text(writer, "cache_salt", submit->params.cache_salt);
    if (submit->params.adapter)
        json_put_text(writer, "adapter", submit->params.adapter);
    if (submit->params.model)
        json_put_text(writer, "model", submit->params.model);
    write_prompts(writer, submit);
    write_constraint(writer, &submit->constraint);
    if (submit->params.no_drafts)
        json_put_bool(writer, "speculate", false);
    if (submit->params.job == JOB_EMBED) {
        json_put_text(writer, "pooling", pooling_names[submit->params.pooling]);
        json_put_bool(writer, "normalize", submit->params.normalize);
    }
    if (submit->params.job == JOB_GENERATE && all_alike(submit)) {
        sampling_write(writer, &submit->prompts[0], bias_of(submit, 0), bias_count(submit, 0));
    } else if (submit->params.job == JOB_GENERATE) {
        json_open(writer, "each", '[');
        for (uint32_t i = 0; i < submit->prompt_count; i++) {
            json_open(writer, NULL, '{');
            sampling_write(writer, &submit->prompts[i], bias_of(submit, i), bias_count(submit, i));
            json_close(writer, '}');
        }
        json_close(writer, ']');
    }
    json_close(writer, '}');
}

/* What of the prompt lies in the payload. */
static const void *packed(const struct message_prompt *prompt, size_t *ret_bytes)
{
    *ret_bytes = prompt->chat   ? prompt->chat_length
                 : prompt->text ? 0
                                : (size_t)prompt->token_count * sizeof(int32_t);
    return prompt->chat ? (const void *)prompt->chat : prompt->tokens;
}

static size_t packed_bytes(const struct message_submit_out *submit)
{
    size_t bytes = 0, own;
    for (uint32_t i = 0; i < submit->prompt_count; i++) {
        packed(&submit->prompts[i], &own);
        bytes += own;
    }
    return bytes;
}

size_t message_submit_size_bound(const struct message_submit_out *submit)
{
    struct json_writer writer;
    json_writer_init(&writer, NULL, 0);
    write_head(&writer, submit);
    return FRAME_HEADER_SIZE + frame_pad(writer.used) + frame_pad(packed_bytes(submit));
}

size_t message_encode_submit(void *buffer, size_t size, uint64_t id,
                             const struct message_submit_out *submit)
{
    struct json_writer writer;
    size_t bytes = packed_bytes(submit), padded = frame_pad(bytes);
    head_begin(&writer, buffer, size);
    write_head(&writer, submit);
    size_t before = head_end(&writer, buffer, size, FRAME_SUBMIT, 0, id, padded);
    if (before == 0)
        return 0;
    unsigned char *payload = (unsigned char *)buffer + before;
    memset(payload + bytes, 0, padded - bytes);
    for (uint32_t i = 0; i < submit->prompt_count && bytes > 0; i++) {
        size_t own;
        const void *from = packed(&submit->prompts[i], &own);
        if (own > 0)
            memcpy(payload, from, own);
        payload += own;
    }
    return before + padded;
}
