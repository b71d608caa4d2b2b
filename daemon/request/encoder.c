#include "daemon/request/encoder.h"

#include <malloc.h>
#include <stdlib.h>

#include "daemon/request/chat_prompt.h"
#include "daemon/request/constraint_cache.h"
#include "daemon/request/request.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/server.h"
#include "daemon/text/tokenizer.h"
#include "protocol/base/list.h"

/* Ids that a text of so many bytes can have: normalizers may make three of one byte, and each of
 * those falls back to bytes at worst; post-processors add a few. */
#define IDS_PER_BYTE 9
#define IDS_SPARE 256

int encoder_make(struct encoder *encoding, struct server *server, struct served_model *model,
                 uint32_t count, struct error *error)
{
    int rc = model_text_texts(model->text, error);
    if (rc)
        return rc;
    struct encoder_text *texts = count > 0 ? calloc(count, sizeof(*texts)) : NULL;
    if (count > 0 && !texts)
        return error_set(error, ERR_NO_MEMORY, "no memory for %u texts", count);
    *encoding = (struct encoder){.server = server,
                                 .model = model,
                                 .texts = texts,
                                 .text_count = count,
                                 .ids_max = model->context_max,
                                 .vocabulary = model->info.vocab,
                                 .tokenizer = model->text->tokenizer};
    return 0;
}

void encoder_free(struct encoder *encoding)
{
    for (uint32_t i = 0; i < encoding->text_count; i++) {
        free(encoding->texts[i].ids);
        free(encoding->texts[i].made);
        free(encoding->texts[i].failure);
    }
    free(encoding->texts);
    if (encoding->held)
        constraint_cache_put(encoding->model->constraints, encoding->held);
    *encoding = (struct encoder){0};
}

/* A tokenizer may know more tokens than its model. */
static int check_ids(const struct encoder *encoding, const int32_t *ids, size_t count,
                     struct error *error)
{
    for (size_t i = 0; i < count; i++)
        if ((uint32_t)ids[i] >= encoding->vocabulary)
            return error_limit(
                error, ERR_BAD_TOKEN, encoding->vocabulary, 0,
                "the text holds a token that the tokenizer has and the model has not");
    return 0;
}

static int encode(const struct encoder *encoding, struct tokenizer_scratch *scratch,
                  struct encoder_text *text, struct error *error)
{
    size_t room = (text->length + text->second_length) * IDS_PER_BYTE + 2 * IDS_SPARE;
    size_t count, more = 0;
    if (room > encoding->ids_max)
        room = encoding->ids_max;
    int32_t *ids = malloc(room * sizeof(*ids));
    if (!ids)
        return error_set(error, ERR_NO_MEMORY, "no memory for the tokens of a text");
    int rc = tokenizer_encode(encoding->tokenizer, scratch, text->text, text->length,
                              text->add_special, ids, room, &count, error);
    if (!rc && text->second)
        rc = tokenizer_encode(encoding->tokenizer, scratch, text->second, text->second_length,
                              text->add_special, ids + count, room - count, &more, error);
    if (!rc)
        rc = check_ids(encoding, ids, count += more, error);
    if (rc) {
        free(ids);
        return rc;
    }
    int32_t *fit = realloc(ids, (count > 0 ? count : 1) * sizeof(*ids));
    text->ids = fit ? fit : ids;
    text->count = (uint32_t)count;
    return 0;
}

/* What is wrong with the text is kept beside it, and the others go on. */
static bool fails_alone(struct encoder *encoding, struct encoder_text *text)
{
    if (!encoding->partial || !request_refuses_alone(encoding->error.code))
        return false;
    text->failure = malloc(sizeof(*text->failure));
    if (!text->failure)
        return false;
    *text->failure = encoding->error;
    encoding->heavy |= encoding->error.code == ERR_TOO_LARGE;
    encoding->error.code = 0;
    return true;
}

static void encode_all(struct encoder *encoding, struct tokenizer_scratch *scratch)
{
    if (!scratch) {
        error_set(&encoding->error, ERR_NO_MEMORY, "no memory to tokenize");
        return;
    }
    tokenizer_scratch_halt(scratch, &encoding->errand.task.halt);
    for (uint32_t i = 0; i < encoding->text_count; i++) {
        struct encoder_text *text = &encoding->texts[i];
        int rc = halt_error(&encoding->errand.task.halt, &encoding->error);
        if (!rc && encoding->prepare)
            rc = encoding->prepare(encoding, i, &encoding->error);
        if (!rc)
            rc = encode(encoding, scratch, text, &encoding->error);
        free(text->made);
        text->made = NULL;
        if (rc && !fails_alone(encoding, text)) {
            encoding->failed = i;
            break;
        }
    }
    tokenizer_scratch_halt(scratch, NULL);
}

/* False: it was refused, or nobody wants it any more. */
static bool constrain(struct encoder *encoding)
{
    const struct served_model *model = encoding->model;
    if (encoding->constraint.kind == MESSAGE_CONSTRAINT_NONE)
        return true;
    if (halt_error(&encoding->errand.task.halt, &encoding->error))
        return false;
    const struct constraint_owner owner = {encoding->user->id, encoding->salt};
    encoding->refused = constraint_cache_get(model->constraints, encoding->tokenizer, &model->info,
                                             &encoding->constraint, &owner, &encoding->held,
                                             &encoding->held_before, &encoding->error) != 0;
    return !encoding->refused;
}

/* Any thread. */
static void work(struct errand *errand)
{
    struct encoder *encoding = container_of(errand, struct encoder, errand);
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    if (constrain(encoding))
        encode_all(encoding, scratch);
    tokenizer_scratch_free(scratch);
}

static void count_constraint(struct encoder *encoding)
{
    if (!encoding->held)
        return;
    if (encoding->held_before)
        encoding->server->counts.constraints_kept_total++;
    else
        encoding->server->counts.constraints_total++;
}

/* A rendering that met a limit has had all the memory that there is for one, and the allocator
 * keeps it. */
static void give_back(struct server *server, const struct encoder *encoding)
{
    server->encodings_heavy |=
        encoding->prepare && (encoding->heavy || encoding->error.code == ERR_TOO_LARGE);
    if (server->encodings > 0 || !server->encodings_heavy)
        return;
    server->encodings_heavy = false;
    malloc_trim(0);
}

static void end(struct errand *errand, const struct error *error, time_us now_us)
{
    struct encoder *encoding = container_of(errand, struct encoder, errand);
    encoding->end(encoding, error, now_us);
}

static void over(struct errand *errand, time_us now_us)
{
    struct encoder *encoding = container_of(errand, struct encoder, errand);
    struct server *server = encoding->server;
    give_back(server, encoding);
    count_constraint(encoding);
    request_builder_unhold(server, encoding->user, encoding->sequences);
    server->load.input -= encoding->counted;
    encoding->user->load.input -= encoding->counted;
    server->conns.input_freed = true;
    users_put(&server->users, encoding->user);
    encoding->done(encoding, now_us);
}

static const struct errand_api api = {.work = work, .end = end, .over = over};

/* Against what is held by texts on their way; or no more, when it could not begin. */
static void count(struct encoder *encoding, bool there)
{
    struct server *server = encoding->server;
    struct user *user = encoding->user;
    if (there) {
        server->load.input += encoding->counted;
        user->load.input += encoding->counted;
        user->references++;
        request_builder_hold(server, user, encoding->sequences);
        return;
    }
    server->load.input -= encoding->counted;
    user->load.input -= encoding->counted;
    user->references--;
    request_builder_unhold(server, user, encoding->sequences);
}

int encoder_render(struct encoder *encoding, uint32_t index, const char *text, size_t length,
                   struct error *error)
{
    struct encoder_text *made = &encoding->texts[index];
    struct chat_prompt conversation;
    int rc = chat_prompt_parse(&conversation, text, length, error);
    if (rc)
        return rc;
    rc = chat_prompt_render(&conversation, encoding->model->text, &encoding->errand.task.halt,
                            &made->made, &made->length, error);
    made->text = made->made;
    chat_prompt_free(&conversation);
    return rc;
}

static int leave(struct encoder *encoding, struct response_sink *sink, time_us now_us,
                 struct error *error)
{
    struct server *server = encoding->server;
    struct user *user = encoding->user;
    uint64_t max = server->options->input_max;
    encoding->counted = encoding->bytes;
    if (encoding->counted > max / 2)
        return error_limit(error, ERR_TOO_LARGE, max / 2, encoding->counted,
                           "%llu bytes would wait for the tokenizer, at most %llu are accepted "
                           "(half of input-max)",
                           (unsigned long long)encoding->counted, (unsigned long long)(max / 2));
    if (server->load.input + encoding->counted > max ||
        user->load.input + encoding->counted > max / 2) {
        error_limit(error, ERR_BUSY, max, server->load.input,
                    "texts that wait for the tokenizer take %llu bytes (input-max)",
                    (unsigned long long)server->load.input);
        if (error)
            error->retry_after_ms = server_retry_ms(server);
        return -ERR_BUSY;
    }
    int rc = request_builder_room(server, user, encoding->sequences, error);
    if (rc)
        return rc;
    count(encoding, true);
    rc = errand_start(&encoding->errand, &api, server, sink, encoding->bytes, encoding->deadline_us,
                      now_us, error);
    if (rc)
        count(encoding, false);
    return rc; /* without an error it may be over */
}

void encoder_drop(struct encoder *encoding)
{
    errand_drop(&encoding->errand);
}

int encoder_start(struct encoder *encoding, struct response_sink *sink,
                  void (*done)(struct encoder *encoding, time_us now_us), time_us now_us,
                  struct error *error)
{
    struct server *server = encoding->server;
    encoding->user = sink->user;
    encoding->done = done;
    for (uint32_t i = 0; i < encoding->text_count; i++)
        encoding->bytes += encoding->texts[i].length + encoding->texts[i].second_length;
    bool constrained = encoding->constraint.kind != MESSAGE_CONSTRAINT_NONE;
    encoding->bytes += encoding->constraint.length;
    if (server->background &&
        (encoding->prepare || constrained || encoding->bytes > ENCODER_INLINE_MAX))
        return leave(encoding, sink, now_us, error);
    struct served_model *model = encoding->model;
    if (!model->scratch)
        model->scratch = tokenizer_scratch_new();
    if (constrain(encoding))
        encode_all(encoding, model->scratch);
    count_constraint(encoding);
    done(encoding, now_us);
    return 0;
}
