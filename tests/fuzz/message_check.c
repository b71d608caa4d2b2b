#include "tests/fuzz/message_check.h"

#include <stdio.h>
#include <string.h>

#include "protocol/message_job.h"
#include "tests/fuzz/fuzz.h"

#define ENCODED_MAX 16384
#define PROMPTS_MAX 64
#define VOCABULARY 1000u

union message {
    struct message_hello hello;
    struct message_welcome welcome;
    struct message_done done;
    struct message_error error;
    struct message_result result;
    uint64_t request;
    struct message_stats stats;
    struct message_tokenize tokenize;
    struct message_detokenize detokenize;
};

static struct error error;

static int decode(const struct frame *frame, union message *message)
{
    switch (frame->type) {
    case FRAME_HELLO:
        return message_decode_hello(frame, &message->hello, &error);
    case FRAME_WELCOME:
        return message_decode_welcome(frame, &message->welcome, &error);
    case FRAME_ACCEPT:
        return message_decode_accept(frame, &message->request, &error);
    case FRAME_DONE:
        return message_decode_done(frame, &message->done, &error);
    case FRAME_ERROR:
        return message_decode_error(frame, &message->error, &error);
    case FRAME_CANCEL:
        return message_decode_cancel(frame, &message->request, &error);
    case FRAME_STATS:
        return message_decode_stats(frame, &message->stats, &error);
    case FRAME_TOKENIZE:
        return message_decode_tokenize(frame, &message->tokenize, &error);
    case FRAME_DETOKENIZE:
        return message_decode_detokenize(frame, VOCABULARY, &message->detokenize, &error);
    default:
        return message_decode_result(frame, &message->result, &error);
    }
}

static size_t encode(const struct frame *frame, const union message *message, void *out)
{
    char head[80];
    int length;
    switch (frame->type) {
    case FRAME_HELLO:
        return message_encode_hello(out, ENCODED_MAX, &message->hello);
    case FRAME_WELCOME:
        return message_encode_welcome(out, ENCODED_MAX, &message->welcome);
    case FRAME_ACCEPT:
        return message_encode_accept(out, ENCODED_MAX, frame->id, message->request);
    case FRAME_DONE:
        return message_encode_done(out, ENCODED_MAX, frame->id, frame->flags, &message->done);
    case FRAME_ERROR:
        return message_encode_error(out, ENCODED_MAX, frame->id, frame->flags, &message->error);
    case FRAME_CANCEL:
        return message_encode_cancel(out, ENCODED_MAX, frame->id, message->request);
    case FRAME_STATS:
        length = snprintf(head, sizeof(head), "{\"requests\":%s,\"buckets\":%s,\"prometheus\":%s}",
                          message->stats.requests ? "true" : "false",
                          message->stats.buckets ? "true" : "false",
                          message->stats.prometheus ? "true" : "false");
        return message_encode_control(out, ENCODED_MAX, FRAME_STATS, frame->flags, frame->id, head,
                                      (size_t)length);
    case FRAME_TOKENIZE:
        return message_encode_tokenize(out, ENCODED_MAX, frame->id, &message->tokenize);
    case FRAME_DETOKENIZE:
        return message_encode_detokenize(out, ENCODED_MAX, frame->id, &message->detokenize);
    default:
        return message_encode_result(out, ENCODED_MAX, frame->id, &message->result);
    }
}

static void check_small(const struct frame *frame)
{
    static _Alignas(8) unsigned char first[ENCODED_MAX], second[ENCODED_MAX];
    union message message, again;
    struct frame copy;
    size_t used;
    int rc = decode(frame, &message);
    if (rc) {
        FUZZ_CHECK(rc == -error.code && strcmp(error_name(error.code), "unknown") != 0);
        return;
    }
    size_t size = encode(frame, &message, first);
    if (frame->payload_length > 0 && size == 0)
        return; /* larger than the room here */
    FUZZ_CHECK(size > 0);
    FUZZ_CHECK(frame_decode(first, size, size, &copy, &used, &error) == FRAME_OK);
    FUZZ_CHECK(decode(&copy, &again) == 0);
    FUZZ_CHECK(encode(&copy, &again, second) == size);
    FUZZ_CHECK(memcmp(first, second, size) == 0);
}

static void check_tokens(const struct frame *frame)
{
    struct message_tokens record;
    size_t offset = 0;
    for (;;) {
        size_t before = offset;
        int rc = message_next_tokens(frame, &offset, &record, &error);
        if (rc)
            return;
        size_t size = message_tokens_size(&record);
        FUZZ_CHECK(offset == before + size && offset <= frame->payload_length);
        unsigned char *copy = malloc(size);
        FUZZ_CHECK(copy && message_put_tokens(copy, size, &record) == size);
        /* Equal but for padding, which is not looked at when it is read. */
        FUZZ_CHECK(memcmp(copy, frame->payload + before, size - 7) == 0);
        free(copy);
    }
}

static void check_prompt(const struct frame *frame, const struct message_submit *submit,
                         const struct message_prompt *prompt, size_t *before)
{
    struct message_bias bias[MESSAGE_BIAS_MAX];
    uint32_t bias_count = 0;
    FUZZ_CHECK(prompt->sampling.n >= 1 && prompt->sampling.n <= MESSAGE_N_MAX);
    FUZZ_CHECK(prompt->stop_count <= MESSAGE_STOP_MAX);
    FUZZ_CHECK((prompt->tokens != NULL) + (prompt->text != NULL) + (prompt->chat != NULL) == 1);
    FUZZ_CHECK(prompt->token_count > 0 || prompt->text_length > 0 || prompt->chat_length > 0);
    if (prompt->tokens) {
        const unsigned char *bytes = (const unsigned char *)prompt->tokens;
        FUZZ_CHECK(bytes == frame->payload + 4 * *before);
        *before += prompt->token_count;
        FUZZ_CHECK(4 * *before <= frame->payload_length);
    }
    if (prompt->chat) {
        FUZZ_CHECK(prompt->chat == (const char *)frame->payload + *before);
        *before += prompt->chat_length;
        FUZZ_CHECK(*before <= frame->payload_length);
    }
    if (prompt->bias)
        message_bias(prompt->bias, VOCABULARY, bias, MESSAGE_BIAS_MAX, &bias_count, &error);
    FUZZ_CHECK(submit->params.job == JOB_GENERATE || prompt->stop_count == 0);
}

/* The prompts as a client would send them are accepted again. */
static void check_again(const struct message_submit *submit, const struct message_prompt *prompts,
                        const struct message_limits *limits, const struct sampling *defaults)
{
    struct message_submit_out request = {
        .params = submit->params, .prompt_count = submit->prompt_count, .prompts = prompts};
    struct message_submit again;
    struct message_prompt prompt;
    struct frame frame;
    size_t used, size = message_submit_size_bound(&request);
    unsigned char *bytes = malloc(size);
    FUZZ_CHECK(bytes && message_encode_submit(bytes, size, 1, &request) == size);
    FUZZ_CHECK(frame_decode(bytes, size, size, &frame, &used, &error) == FRAME_OK);
    FUZZ_CHECK(message_decode_submit(&frame, limits, defaults, &again, &error) == 0);
    FUZZ_CHECK(again.prompt_count == submit->prompt_count &&
               again.params.job == submit->params.job);
    for (uint32_t i = 0; i < again.prompt_count; i++) {
        FUZZ_CHECK(message_submit_prompt(&again, i, &prompt, &error) == 0);
        FUZZ_CHECK(prompt.token_count == prompts[i].token_count);
        FUZZ_CHECK(prompt.text_length == prompts[i].text_length);
        FUZZ_CHECK(prompt.chat_length == prompts[i].chat_length);
        FUZZ_CHECK(prompt.sampling.n == prompts[i].sampling.n);
        FUZZ_CHECK(prompt.sampling.max_tokens == prompts[i].sampling.max_tokens);
        FUZZ_CHECK(prompt.stop_count == prompts[i].stop_count);
    }
    message_submit_free(&again);
    free(bytes);
}

static void check_submit(const struct frame *frame)
{
    static const struct message_limits limits = {.batch_max = PROMPTS_MAX,
                                                 .n_max = 8,
                                                 .logprobs_max = 20,
                                                 .stop_max = 16,
                                                 .json_depth_max = 8,
                                                 .vocabulary = VOCABULARY};
    static const struct sampling defaults = {.sampler.temperature = 1,
                                             .sampler.top_p = 1,
                                             .sampler.repetition_penalty = 1,
                                             .logprobs = -1,
                                             .n = 1};
    static struct message_prompt prompts[PROMPTS_MAX];
    struct message_submit submit;
    size_t before = 0; /* tokens, or bytes of chats, of the prompts before */
    bool all = true;
    int rc = message_decode_submit(frame, &limits, &defaults, &submit, &error);
    if (rc) {
        FUZZ_CHECK(rc == -error.code);
        return;
    }
    FUZZ_CHECK(submit.prompt_count > 0 && submit.prompt_count <= PROMPTS_MAX);
    for (uint32_t i = 0; i < submit.prompt_count && all; i++) {
        all = message_submit_prompt(&submit, i, &prompts[i], &error) == 0;
        if (all)
            check_prompt(frame, &submit, &prompts[i], &before);
    }
    if (all)
        check_again(&submit, prompts, &limits, &defaults);
    message_submit_free(&submit);
}

/* ---- jobs --------------------------------------------------------------------------------------
 */

#define ITEMS_MAX 32

static const struct message_item *item_at(void *context, uint32_t index)
{
    return &((const struct message_item *)context)[index];
}

/* The items as a client would send them are accepted again, and mean the same. */
static void check_job_again(const struct message_job *job, const struct message_item *items)
{
    const struct message_job_out out = {.program = job->program,
                                        .priority = job->params.priority,
                                        .deadline_ms = job->params.deadline_ms,
                                        .input_memory = job->input_memory,
                                        .output_memory = job->output_memory,
                                        .item_count = job->item_count,
                                        .item = item_at,
                                        .context = (void *)(uintptr_t)items,
                                        .payload_length = job->payload_length};
    size_t used, size = 8 * message_job_size_bound(&out); /* names are escaped again */
    unsigned char *bytes = calloc(1, size);
    struct message_job again;
    struct message_item item;
    struct frame frame;
    FUZZ_CHECK(bytes);
    size_t length = message_encode_job(bytes, size, 1, &out);
    if (length > 0) {
        length += job->payload_length;
        FUZZ_CHECK(frame_decode(bytes, length, length, &frame, &used, &error) == FRAME_OK);
        FUZZ_CHECK(message_decode_job(&frame, ITEMS_MAX, &again, &error) == 0);
        FUZZ_CHECK(again.item_count == job->item_count);
        for (uint32_t i = 0; i < again.item_count; i++) {
            FUZZ_CHECK(message_job_item(&again, &item, &error) == 0);
            FUZZ_CHECK(item.input_count == items[i].input_count);
            FUZZ_CHECK(item.value_count == items[i].value_count);
            for (uint32_t j = 0; j < item.input_count; j++)
                FUZZ_CHECK(item.inputs[j].bytes == items[i].inputs[j].bytes &&
                           item.inputs[j].at == items[i].inputs[j].at);
        }
        FUZZ_CHECK(message_job_end(&again, &error) == 0);
        message_job_free(&again);
    }
    free(bytes);
}

static void check_item(const struct message_job *job, const struct message_item *item)
{
    const uint64_t room = job->input_memory ? job->input_memory : job->payload_length;
    FUZZ_CHECK(item->input_count >= 1 && item->input_count <= MESSAGE_TENSORS_MAX);
    FUZZ_CHECK(item->value_count <= MESSAGE_PARAMETERS_MAX);
    for (uint32_t i = 0; i < item->input_count; i++) {
        const struct message_tensor *tensor = &item->inputs[i];
        FUZZ_CHECK(tensor->rank <= TENSOR_RANK_MAX && tensor->bytes > 0);
        FUZZ_CHECK(tensor->at <= room && tensor->bytes <= room - tensor->at);
        FUZZ_CHECK(tensor->at % TENSOR_ALIGN == 0);
    }
}

static void check_job(const struct frame *frame)
{
    static struct message_item items[ITEMS_MAX];
    struct message_job job;
    bool all = true;
    int rc = message_decode_job(frame, ITEMS_MAX, &job, &error);
    if (rc) {
        FUZZ_CHECK(rc == -error.code);
        return;
    }
    FUZZ_CHECK(job.item_count > 0 && job.item_count <= ITEMS_MAX);
    for (uint32_t i = 0; i < job.item_count && all; i++) {
        all = message_job_item(&job, &items[i], &error) == 0;
        if (all)
            check_item(&job, &items[i]);
    }
    if (all && message_job_end(&job, &error) == 0)
        check_job_again(&job, items);
    message_job_free(&job);
}

static void check_tensors(const struct frame *frame)
{
    struct message_tensors tensors, again;
    struct frame copy;
    size_t used;
    if (message_decode_tensors(frame, &tensors, &error))
        return;
    FUZZ_CHECK(tensors.data + tensors.bytes <= frame->payload + frame->payload_length);
    size_t size = FRAME_HEADER_SIZE + frame->payload_length;
    unsigned char *bytes = malloc(size);
    FUZZ_CHECK(bytes && message_encode_tensors(bytes, size, frame->id, &tensors) == size);
    FUZZ_CHECK(frame_decode(bytes, size, size, &copy, &used, &error) == FRAME_OK);
    FUZZ_CHECK(message_decode_tensors(&copy, &again, &error) == 0);
    FUZZ_CHECK(memcmp(copy.payload, frame->payload, frame->payload_length) == 0);
    free(bytes);
}

static void check_programs(const struct frame *frame)
{
    char name[TENSOR_NAME_MAX + 1];
    if (message_decode_programs(frame, name, &error) == 0)
        FUZZ_CHECK(strlen(name) <= TENSOR_NAME_MAX);
}

static void check_timeline(const struct frame *frame)
{
    uint64_t from;
    if (message_decode_timeline(frame, &from, &error) == 0)
        FUZZ_CHECK(from <= (uint64_t)1 << 53 || from == MESSAGE_TIMELINE_FROM_NOW);
}

/* The same frames as a client reads them. */
static void check_texts(const struct frame *frame)
{
    const int32_t *tokens;
    const char *text;
    uint32_t count;
    check_small(frame);
    if (frame->type == FRAME_TOKENIZE) {
        if (message_decode_tokenized(frame, &tokens, &count, &error) == 0)
            FUZZ_CHECK(frame_pad((size_t)count * sizeof(*tokens)) == frame->payload_length);
    } else if (message_decode_detokenized(frame, &text, &count, &error) == 0) {
        FUZZ_CHECK(frame_pad(count) == frame->payload_length);
    }
}

void message_check(const struct frame *frame)
{
    switch (frame->type) {
    case FRAME_SUBMIT:
        check_submit(frame);
        break;
    case FRAME_TOKENS:
        check_tokens(frame);
        break;
    case FRAME_TOKENIZE:
    case FRAME_DETOKENIZE:
        check_texts(frame);
        break;
    case FRAME_JOB:
        check_job(frame);
        break;
    case FRAME_TENSORS:
        check_tensors(frame);
        break;
    case FRAME_PROGRAMS:
        check_programs(frame);
        break;
    case FRAME_TIMELINE:
        check_timeline(frame);
        break;
    case FRAME_HEALTH:
    case FRAME_MODEL:
    case FRAME_DRAIN:
    case FRAME_RESUME:
        break; /* nothing of them is decoded in protocol/ */
    default:
        check_small(frame);
    }
}
