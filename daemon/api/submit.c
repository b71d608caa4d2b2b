#include "daemon/api/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/adapters/served_adapters.h"
#include "daemon/api/control.h"
#include "daemon/api/session.h"
#include "daemon/request/constraint_cache.h"
#include "daemon/request/encoder.h"
#include "daemon/request/request_builder.h"
#include "daemon/request/request_table.h"
#include "daemon/request/server.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define ACCEPT_FRAME_MAX 128u

struct submit {
    struct list link; /* session.submits, while it waits for its tokens */
    struct server *server;
    struct session *session; /* NULL once it is gone, or was told how this ended */
    uint64_t client_id;
    time_us arrived_us;
    struct message_submit message; /* owned */
    struct served_model *model;    /* that it names */
    struct encoder encoding;
    char *chats;      /* owned; the conversations, or tokens, one after the other: the frame goes */
    size_t *chat_end; /* owned; where each of them ends */
};

static struct submit *find(struct session *session, uint64_t client_id)
{
    list_each(link, &session->submits)
    {
        struct submit *submit = container_of(link, struct submit, link);
        if (submit->client_id == client_id)
            return submit;
    }
    return NULL;
}

bool submit_pending(struct session *session, uint64_t client_id)
{
    return find(session, client_id) != NULL;
}

static void refuse(struct session *session, uint64_t client_id, const struct error *error,
                   time_us now_us)
{
    request_builder_refused(session->server, session->sink.user, error);
    conn_error(&session->conn, client_id, MESSAGE_NO_SEQUENCE, true, error, now_us);
}

/* ---- from a batch to a request -----------------------------------------------------------------
 */

static int add_prompts(struct request_builder *builder, struct submit *submit, struct error *error)
{
    struct message_submit *message = &submit->message;
    const struct encoder_text *texts = submit->encoding.texts; /* NULL: tokens were sent */
    for (uint32_t i = 0; i < message->prompt_count; i++) {
        struct message_prompt prompt;
        struct error found;
        uint32_t before = builder->request->seq_count;
        int rc = message_submit_prompt(message, i, &prompt, error);
        if (rc)
            return rc;
        if (texts && texts[i].failure)
            rc = error_limit(&found, texts[i].failure->code, texts[i].failure->limit,
                             texts[i].failure->value, "%s", texts[i].failure->text);
        else
            rc = request_builder_prompt(builder, &prompt, texts ? texts[i].ids : prompt.tokens,
                                        texts ? texts[i].count : prompt.token_count, &found);
        if (!rc)
            continue;
        rc = error_limit(error, found.code, found.limit, found.value, "prompt %u: %s", i,
                         found.text);
        found = *error;
        if (message->params.partial && request_refuses_alone(found.code) &&
            builder->request->seq_count == before)
            rc = request_refuse(builder->request, prompt.sampling.n, &found, error);
        if (rc)
            return rc;
    }
    return 0;
}

static int make_request(struct request_builder *builder, struct submit *submit, struct error *error)
{
    const struct message_submit *message = &submit->message;
    int rc = request_builder_phase(submit->server, error);
    if (!rc)
        rc = request_builder_open(builder, submit->server, submit->model, &submit->session->sink,
                                  (uint64_t)message->prompt_count * message->common->sampling.n,
                                  &message->params, submit->arrived_us, error);
    if (!rc)
        request_builder_constrain(builder, submit->encoding.held);
    if (!rc)
        rc = add_prompts(builder, submit, error);
    return rc ? rc : request_builder_admit(builder, &submit->session->sink, error);
}

/* The tokens of all its prompts are there. */
static void accept(struct submit *submit, time_us now_us)
{
    struct session *session = submit->session;
    struct request_builder builder = {.server = submit->server};
    struct error error;
    if (make_request(&builder, submit, &error)) {
        request_builder_drop(&builder);
        refuse(session, submit->client_id, &error, now_us);
        return;
    }
    void *room = conn_output(&session->conn, ACCEPT_FRAME_MAX);
    if (!room) {
        request_builder_drop(&builder);
        return;
    }
    struct request *request = builder.request;
    request_builder_name(&builder, submit->client_id, session->sink.user);
    session->conn.tokens_request = 0;
    size_t used = message_encode_accept(room, ACCEPT_FRAME_MAX, submit->client_id, request->id);
    conn_output_done(&session->conn, used, false, now_us);
    request_builder_enter(&builder, &session->sink);
    request_table_refuse(submit->server, request, now_us);
}

/* ---- texts -------------------------------------------------------------------------------------
 */

static void submit_free(struct submit *submit)
{
    if (list_linked(&submit->link))
        list_remove(&submit->link);
    encoder_free(&submit->encoding);
    message_submit_free(&submit->message);
    free(submit->chats);
    free(submit->chat_end);
    free(submit);
}

/* It ended before it was accepted: that is all its client hears of it. */
static void tell_end(struct submit *submit, const struct error *error, time_us now_us)
{
    struct session *session = submit->session;
    submit->session = NULL;
    list_remove(&submit->link);
    conn_error(&session->conn, submit->client_id, MESSAGE_NO_SEQUENCE, true, error, now_us);
}

static void ended(struct encoder *encoding, const struct error *error, time_us now_us)
{
    struct submit *submit = container_of(encoding, struct submit, encoding);
    if (!submit->session)
        return;
    struct user *user = submit->session->sink.user;
    if (error->code == ERR_DEADLINE) {
        submit->server->counts.texts_deadline_total++;
        request_builder_log_refusal(submit->server, user->name, 0, error);
    } else {
        request_builder_refused(submit->server, user, error);
    }
    tell_end(submit, error, now_us);
}

static void encoded(struct encoder *encoding, time_us now_us)
{
    struct submit *submit = container_of(encoding, struct submit, encoding);
    struct session *session = submit->session;
    if (session && encoding->error.code) {
        struct error error;
        char what[32] = "constraint";
        if (!encoding->refused)
            snprintf(what, sizeof(what), "prompt %u", encoding->failed);
        error_limit(&error, encoding->error.code, encoding->error.limit, encoding->error.value,
                    "%s: %s", what, encoding->error.text);
        refuse(session, submit->client_id, &error, now_us);
    } else if (session) {
        accept(submit, now_us);
    }
    submit_free(submit);
}

static void take_texts(struct submit *submit, const json *text)
{
    struct encoder *encoding = &submit->encoding;
    for (uint32_t i = 0; i < encoding->text_count; i++, text = json_next(text)) {
        encoding->texts[i].text = json_string(text);
        encoding->texts[i].length = strlen(encoding->texts[i].text);
        encoding->texts[i].add_special = true;
    }
}

/* Any thread. */
static int render(struct encoder *encoding, uint32_t index, struct error *error)
{
    const struct submit *submit = container_of(encoding, struct submit, encoding);
    size_t start = index > 0 ? submit->chat_end[index - 1] : 0;
    return encoder_render(encoding, index, submit->chats + start, submit->chat_end[index] - start,
                          error);
}

static int take_chats(struct submit *submit, const json *chat, struct error *error)
{
    struct encoder *encoding = &submit->encoding;
    size_t end = 0;
    submit->chat_end = malloc(encoding->text_count * sizeof(*submit->chat_end));
    for (uint32_t i = 0; submit->chat_end && i < encoding->text_count; i++) {
        end += (size_t)json_number(chat);
        submit->chat_end[i] = end;
        chat = json_next(chat);
    }
    submit->chats = submit->chat_end ? malloc(end) : NULL;
    if (!submit->chats)
        return error_set(error, ERR_NO_MEMORY, "no memory for the conversations");
    memcpy(submit->chats, submit->message.payload, end);
    encoding->prepare = render;
    encoding->bytes = end;
    return 0;
}

/* The frame's payload goes, and the constraint is compiled off the loop. */
static int take_tokens(struct submit *submit, struct error *error)
{
    uint64_t count = 0;
    const json *length = json_child(json_get(submit->message.document, "lengths"));
    for (; length; length = json_next(length))
        count += (uint64_t)json_number(length);
    submit->chats = malloc(count * sizeof(int32_t));
    if (!submit->chats)
        return error_set(error, ERR_NO_MEMORY, "no memory for the tokens");
    memcpy(submit->chats, submit->message.payload, count * sizeof(int32_t));
    message_submit_payload(&submit->message, (const unsigned char *)submit->chats);
    submit->encoding.bytes = count * sizeof(int32_t);
    return 0;
}

/* The prompts are texts or chats, whichever list is not NULL; else tokens, with a constraint. */
static int encode(struct submit *submit, const json *text, const json *chat, struct error *error)
{
    struct encoder *encoding = &submit->encoding;
    struct user *user = submit->session->sink.user;
    uint32_t sequences = submit->message.result_count;
    const struct model_text *model_text = submit->model->text;
    int rc = chat ? model_text_chats(model_text, error) : model_text_texts(model_text, error);
    if (!rc)
        rc = request_builder_room(submit->server, user, sequences, error);
    if (!rc)
        rc = encoder_make(encoding, submit->server, submit->model,
                          text || chat ? submit->message.prompt_count : 0, error);
    if (!rc && chat)
        rc = take_chats(submit, chat, error);
    else if (!rc)
        take_texts(submit, text);
    if (!rc && !text && !chat)
        rc = take_tokens(submit, error);
    if (rc)
        return rc;
    encoding->constraint = submit->message.constraint;
    encoding->salt = constraint_salt(submit->message.params.cache_salt);
    encoding->end = ended;
    encoding->deadline_us = request_deadline(&submit->message.params, submit->arrived_us);
    encoding->sequences = sequences;
    encoding->partial = submit->message.params.partial;
    encoding->errand.admits = true;
    return encoder_start(encoding, &submit->session->sink, encoded, submit->arrived_us, error);
}

void submit_cancel(struct session *session, uint64_t client_id, time_us now_us)
{
    struct submit *submit = find(session, client_id);
    struct error error;
    if (!submit)
        return;
    submit->server->counts.texts_cancelled_total++;
    error_set(&error, ERR_CANCELLED, "cancelled before the text was read");
    tell_end(submit, &error, now_us);
    encoder_drop(&submit->encoding);
}

void submit_forget(struct session *session)
{
    struct list *link;
    while ((link = list_take(&session->submits))) {
        struct submit *submit = container_of(link, struct submit, link);
        submit->session = NULL;
        encoder_drop(&submit->encoding);
    }
}

/* ---- frames ------------------------------------------------------------------------------------
 */

/* An adapter may stand in a model's place, as over HTTP: it is one of the first model's. */
static bool is_adapter(struct server *server, const char *name)
{
    return name && !server_find_model(server, name) &&
           served_adapters_find(&server->adapters, name) > 0;
}

static struct served_model *find_model(struct server *server, const char *name, struct error *error)
{
    return is_adapter(server, name) ? &server->models[0] : control_model(server, name, error);
}

static int place_adapter(struct server *server, struct request_params *params, struct error *error)
{
    if (!is_adapter(server, params->model))
        return 0;
    if (params->adapter)
        return error_set(error, ERR_BAD_VALUE, "model and adapter name an adapter each");
    params->adapter = params->model;
    return 0;
}

static int choose(void *context, const char *name, struct message_limits *limits,
                  struct sampling *defaults, struct error *error)
{
    struct server *server = context;
    const struct served_model *model = find_model(server, name, error);
    if (!model)
        return -ERR_NOT_FOUND;
    limits->vocabulary = model->info.vocab;
    *defaults = request_builder_defaults(model);
    return 0;
}

static int read_frame(struct session *session, const struct frame *frame,
                      struct message_submit *message, struct error *error)
{
    struct server *server = session->server;
    struct message_limits limits = request_builder_limits(server, &server->models[0]);
    const struct sampling sampling = request_builder_defaults(&server->models[0]);
    limits.choose = choose;
    limits.context = server;
    int rc = request_builder_phase(server, error);
    if (!rc)
        rc = request_builder_model(server, error);
    if (!rc && frame->id == 0)
        rc = error_set(error, ERR_BAD_FRAME, "a request needs an id other than 0");
    if (!rc &&
        (request_table_find_client(server, &session->sink, frame->id) || find(session, frame->id)))
        rc = error_set(error, ERR_BAD_STATE, "a request with this id is still running");
    if (rc)
        return rc;
    rc = message_decode_submit(frame, &limits, &sampling, message, error);
    if (!rc && (rc = place_adapter(server, &message->params, error)))
        message_submit_free(message);
    return rc;
}

void submit_frame(struct session *session, const struct frame *frame, time_us now_us)
{
    struct message_submit message;
    struct error error;
    struct submit *submit = NULL;
    int rc = read_frame(session, frame, &message, &error);
    if (!rc && !(submit = calloc(1, sizeof(*submit)))) {
        message_submit_free(&message);
        rc = error_set(&error, ERR_NO_MEMORY, "no memory for a batch");
    }
    if (rc) {
        refuse(session, frame->id, &error, now_us);
        return;
    }
    const json *text = message_submit_texts(&message), *chat = message_submit_chats(&message);
    submit->server = session->server;
    submit->session = session;
    submit->client_id = frame->id;
    submit->arrived_us = now_us;
    submit->message = message;
    submit->model = find_model(session->server, message.params.model, NULL);
    list_append(&session->submits, &submit->link);
    if (!text && !chat && message.constraint.kind == MESSAGE_CONSTRAINT_NONE) {
        accept(submit, now_us);
    } else if (!encode(submit, text, chat, &error)) {
        return; /* encoded() has it, or had it */
    } else {
        refuse(session, frame->id, &error, now_us);
    }
    submit_free(submit);
}
