/* SUBMIT as the daemon reads it: first what is common to the batch, then prompt by prompt. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/head.h"
#include "protocol/message.h"
#include "protocol/message_sampling.h"

#define DEADLINE_MAX_MS ((uint64_t)1 << 40) /* as microseconds it still fits beside any clock */
#define PRIORITY_MIN (-8)
#define PRIORITY_MAX 7

static const char *const job_names[] = {
    [JOB_GENERATE] = "generate", [JOB_SCORE] = "score", [JOB_EMBED] = "embed", NULL};
static const char *const pooling_names[] = {
    [POOLING_LAST] = "last", [POOLING_MEAN] = "mean", [POOLING_ALL] = "all", NULL};

static const char *const constraint_names[] = {
    [MESSAGE_CONSTRAINT_NONE] = "none",       [MESSAGE_CONSTRAINT_JSON] = "json",
    [MESSAGE_CONSTRAINT_OBJECT] = "object",   [MESSAGE_CONSTRAINT_SCHEMA] = "schema",
    [MESSAGE_CONSTRAINT_PATTERN] = "pattern", [MESSAGE_CONSTRAINT_CHOICE] = "choice",
    [MESSAGE_CONSTRAINT_GRAMMAR] = "grammar", NULL};

/* Where message_submit_prompt() stands in the lists of the document. */
struct cursor {
    struct message_prompt common;
    struct message_limits limits;
    const json *length, *text, *chat, *each;
    const unsigned char *payload; /* from the next prompt on */
    uint32_t index;
};

/* The lists of a head, before they are measured against each other. */
struct lists {
    const json *lengths, *texts, *chats, *each;
};

const char *job_name(enum job job)
{
    return job == JOB_PROGRAM ? "program" : job_names[job];
}

const char *message_constraint_name(enum message_constraint_kind kind)
{
    return constraint_names[kind];
}

static int read_constraint(const json *head, const json *member, struct message_submit *submit,
                           bool *ret_known, struct error *error)
{
    const char *name = json_key(member);
    *ret_known = true;
    if (strcmp(name, "constraint") == 0) {
        unsigned kind;
        int rc = head_choice(head, name, constraint_names, &kind, error);
        if (!rc)
            submit->constraint.kind = (enum message_constraint_kind)kind;
        return rc;
    }
    if (strcmp(name, "constraint_text") == 0) {
        if (!json_is_string(member))
            return error_set(error, ERR_BAD_VALUE, "constraint_text is not a string");
        submit->constraint.text = json_string(member);
        submit->constraint.length = strlen(submit->constraint.text);
        return 0;
    }
    *ret_known = false;
    return 0;
}

static int check_constraint(const struct message_constraint *constraint, struct error *error)
{
    bool wanted = message_constraint_has_text(constraint->kind);
    if (wanted != (constraint->text != NULL))
        return error_set(error, ERR_BAD_VALUE, "constraint_text %s with the constraint %s",
                         wanted ? "is missing" : "does not belong",
                         message_constraint_name(constraint->kind));
    return 0;
}

int message_salt(const json *value, const char **ret_salt, struct error *error)
{
    if (!json_is_string(value))
        return error_set(error, ERR_BAD_VALUE, "%s is not a string", json_key(value));
    size_t length = strlen(json_string(value));
    if (length == 0 || length > MESSAGE_SALT_MAX)
        return error_limit(error, ERR_BAD_VALUE, MESSAGE_SALT_MAX, length,
                           "%s must have 1 to %d bytes", json_key(value), MESSAGE_SALT_MAX);
    *ret_salt = json_string(value);
    return 0;
}

int message_priority(const json *value, int32_t *ret_priority, struct error *error)
{
    int64_t number;
    int rc = json_integer(value, json_key(value), PRIORITY_MIN, PRIORITY_MAX, &number, error);
    if (!rc)
        *ret_priority = (int32_t)number;
    return rc;
}

int message_deadline(const json *value, uint64_t *ret_ms, struct error *error)
{
    int64_t number;
    int rc = json_integer(value, json_key(value), 0, (int64_t)DEADLINE_MAX_MS, &number, error);
    if (!rc)
        *ret_ms = (uint64_t)number;
    return rc;
}

/* What of a request only the job generate has, beside sampling fields. */
static int read_generate(const json *head, const json *member, struct message_submit *submit,
                         bool *ret_known, struct error *error)
{
    bool guesses;
    if (strcmp(json_key(member), "speculate") != 0)
        return read_constraint(head, member, submit, ret_known, error);
    *ret_known = true;
    int rc = head_bool(member, "speculate", &guesses, error);
    if (!rc)
        submit->params.no_drafts = !guesses;
    return rc;
}

static int read_name(const json *member, const char **ret_name, struct error *error)
{
    if (!json_is_string(member))
        return error_set(error, ERR_BAD_VALUE, "%s is not a string", json_key(member));
    *ret_name = json_string(member);
    return 0;
}

/* A field that belongs to the request as a whole. */
static int read_own(const json *member, struct message_submit *submit, struct lists *lists,
                    bool *ret_known, struct error *error)
{
    const char *name = json_key(member);
    int rc = 0;
    *ret_known = true;
    if (strcmp(name, "job") == 0) /* read before all others */
        return 0;
    if (strcmp(name, "lengths") == 0) {
        lists->lengths = member;
    } else if (strcmp(name, "texts") == 0) {
        lists->texts = member;
    } else if (strcmp(name, "chats") == 0) {
        lists->chats = member;
    } else if (strcmp(name, "each") == 0) {
        lists->each = member;
    } else if (strcmp(name, "priority") == 0) {
        rc = message_priority(member, &submit->params.priority, error);
    } else if (strcmp(name, "deadline_ms") == 0) {
        rc = message_deadline(member, &submit->params.deadline_ms, error);
    } else if (strcmp(name, "stream") == 0) {
        rc = head_bool(member, name, &submit->params.stream, error);
    } else if (strcmp(name, "text") == 0) {
        rc = head_bool(member, name, &submit->params.want_text, error);
    } else if (strcmp(name, "partial") == 0) {
        rc = head_bool(member, name, &submit->params.partial, error);
    } else if (strcmp(name, "cache") == 0) {
        rc = head_bool(member, name, &submit->params.no_cache, error);
        submit->params.no_cache = !submit->params.no_cache;
    } else if (strcmp(name, "cache_salt") == 0) {
        rc = message_salt(member, &submit->params.cache_salt, error);
    } else if (strcmp(name, "adapter") == 0) {
        rc = read_name(member, &submit->params.adapter, error);
    } else if (strcmp(name, "model") == 0) {
        rc = read_name(member, &submit->params.model, error);
    } else {
        *ret_known = false;
    }
    return rc;
}

static int read_embed(const json *head, const json *member, struct message_submit *submit,
                      bool *ret_known, struct error *error)
{
    const char *name = json_key(member);
    *ret_known = true;
    if (strcmp(name, "pooling") == 0) {
        unsigned pooling;
        int rc = head_choice(head, name, pooling_names, &pooling, error);
        if (!rc)
            submit->params.pooling = (enum pooling)pooling;
        return rc;
    }
    if (strcmp(name, "normalize") == 0)
        return head_bool(member, name, &submit->params.normalize, error);
    *ret_known = false;
    return 0;
}

static int read_members(const json *head, const struct message_limits *limits,
                        struct message_submit *submit, struct message_prompt *common,
                        struct lists *lists, struct error *error)
{
    for (const json *member = json_child(head); member; member = json_next(member)) {
        bool own, embed = false, generate = false, sampling = false;
        int rc = read_own(member, submit, lists, &own, error);
        if (!rc && !own)
            rc = read_embed(head, member, submit, &embed, error);
        if (!rc && !own && !embed)
            rc = read_generate(head, member, submit, &generate, error);
        if (!rc && !own && !embed && !generate)
            rc = sampling_read(member, limits, common, &sampling, error);
        if (rc)
            return rc;
        generate = generate || sampling;
        if (!own && !embed && !generate)
            return head_unknown(json_key(member), error);
        if ((embed && submit->params.job != JOB_EMBED) ||
            (generate && submit->params.job != JOB_GENERATE))
            return error_set(error, ERR_BAD_VALUE, "%s does not belong to the job %s",
                             json_key(member), job_name(submit->params.job));
    }
    int rc = check_constraint(&submit->constraint, error);
    return rc ? rc : sampling_check(&common->sampling, error);
}

/* The one list that gives the prompts; NULL: none, or several. */
static const json *list_of(const struct lists *lists)
{
    const json *list = lists->lengths ? lists->lengths : lists->texts;
    if (list && lists->texts && list != lists->texts)
        return NULL;
    if (!lists->chats)
        return list;
    return list ? NULL : lists->chats;
}

/* The prompts are given by lengths, texts or chats; how many there are. */
static int count_prompts(const struct lists *lists, const struct message_limits *limits,
                         uint32_t *ret_count, struct error *error)
{
    const json *list = list_of(lists);
    uint32_t max = limits->batch_max < MESSAGE_BATCH_MAX ? limits->batch_max : MESSAGE_BATCH_MAX;
    if (!list)
        return error_set(error, ERR_BAD_HEAD, "one of lengths, texts and chats must be given");
    if (!json_is_array(list))
        return error_set(error, ERR_BAD_VALUE, "%s is not a list", json_key(list));
    size_t count = json_count(list);
    if (count == 0)
        return error_set(error, ERR_EMPTY, "the batch is empty");
    if (count > max)
        return error_limit(error, ERR_TOO_LARGE, max, count,
                           "batch of %zu sequences, at most %u are accepted", count, max);
    if (lists->each && !json_is_array(lists->each))
        return error_set(error, ERR_BAD_VALUE, "each is not a list");
    if (lists->each && json_count(lists->each) != count)
        return error_set(error, ERR_BAD_VALUE, "each has %zu entries for %zu prompts",
                         json_count(lists->each), count);
    *ret_count = (uint32_t)count;
    return 0;
}

/* Results, not prompts, are what a batch costs. An n that is wrong is named when its prompt is
 * read. */
static int check_results(const struct lists *lists, uint32_t prompt_count, uint32_t common_n,
                         uint32_t batch_max, uint32_t *ret_results, struct error *error)
{
    uint64_t results = (uint64_t)prompt_count * common_n;
    for (const json *each = json_child(lists->each); each; each = json_next(each)) {
        int64_t n;
        if (json_integer(json_get(each, "n"), "n", 1, MESSAGE_N_MAX, &n, NULL) == 0)
            results += (uint64_t)n - common_n;
    }
    if (results > batch_max)
        return error_limit(error, ERR_TOO_LARGE, batch_max, results,
                           "batch of %llu sequences, at most %u are accepted",
                           (unsigned long long)results, batch_max);
    *ret_results = (uint32_t)results;
    return 0;
}

/* Of what lies in the payload, one after the other: tokens of 4 bytes, or bytes of chats. */
static int check_lengths(const json *lengths, size_t unit, const struct frame *frame,
                         struct error *error)
{
    uint64_t sum = 0, index = 0;
    for (const json *item = json_child(lengths); item; item = json_next(item), index++) {
        int64_t length;
        int rc = json_integer(item, unit > 1 ? "an entry of lengths" : "an entry of chats", 0,
                              UINT32_MAX / 4, &length, error);
        if (rc)
            return rc;
        if (length == 0)
            return error_set(error, ERR_EMPTY, "prompt %llu is empty", (unsigned long long)index);
        sum += (uint64_t)length;
    }
    if (frame_pad(sum * unit) != frame->payload_length)
        return error_set(error, ERR_BAD_FRAME, "%s add up to %llu %s, the payload has %u bytes",
                         unit > 1 ? "lengths" : "chats", (unsigned long long)sum,
                         unit > 1 ? "tokens" : "bytes", frame->payload_length);
    return head_padding(frame, sum * unit, error);
}

static int check_texts(const json *texts, const struct frame *frame, struct error *error)
{
    unsigned index = 0;
    for (const json *item = json_child(texts); item; item = json_next(item), index++) {
        if (!json_is_string(item))
            return error_set(error, ERR_BAD_VALUE, "prompt %u is not a string", index);
        if (!*json_string(item))
            return error_set(error, ERR_EMPTY, "prompt %u is empty", index);
    }
    if (frame->payload_length > 0)
        return error_set(error, ERR_BAD_FRAME, "a payload of %u bytes beside texts",
                         frame->payload_length);
    return 0;
}

static int read_head(const struct frame *frame, const json *head,
                     const struct message_limits *limits, struct message_submit *submit,
                     struct cursor *cursor, struct error *error)
{
    struct lists lists = {0};
    unsigned job = 0;
    int rc = head_choice(head, "job", job_names, &job, error);
    submit->params.job = (enum job)job;
    if (!rc)
        rc = read_members(head, limits, submit, &cursor->common, &lists, error);
    if (!rc)
        rc = count_prompts(&lists, limits, &submit->prompt_count, error);
    if (!rc)
        rc = check_results(&lists, submit->prompt_count, cursor->common.sampling.n,
                           limits->batch_max, &submit->result_count, error);
    if (!rc && lists.texts)
        rc = check_texts(lists.texts, frame, error);
    else if (!rc)
        rc = lists.lengths ? check_lengths(lists.lengths, sizeof(int32_t), frame, error)
                           : check_lengths(lists.chats, 1, frame, error);
    cursor->length = json_child(lists.lengths);
    cursor->text = json_child(lists.texts);
    cursor->chat = json_child(lists.chats);
    cursor->each = json_child(lists.each);
    return rc;
}

/* What the other fields are read by. */
static int choose_model(const json *head, struct cursor *cursor, struct error *error)
{
    const json *model = json_get(head, "model");
    if (!cursor->limits.choose || !json_is_string(model))
        return 0;
    return cursor->limits.choose(cursor->limits.context, json_string(model), &cursor->limits,
                                 &cursor->common.sampling, error);
}

int message_decode_submit(const struct frame *frame, const struct message_limits *limits,
                          const struct sampling *defaults, struct message_submit *ret_submit,
                          struct error *error)
{
    struct message_submit submit = {.params = {.stream = true, .normalize = true}};
    struct cursor cursor = {.common.sampling = *defaults, .limits = *limits};
    assert(frame->type == FRAME_SUBMIT && defaults->n > 0);
    int rc = head_open(frame, limits->json_depth_max, &submit.document, error);
    if (rc)
        return rc;
    rc = choose_model(submit.document, &cursor, error);
    if (!rc)
        rc = read_head(frame, submit.document, &cursor.limits, &submit, &cursor, error);
    struct cursor *storage = rc ? NULL : malloc(sizeof(*storage));
    if (!rc && !storage)
        rc = error_set(error, ERR_NO_MEMORY, "no memory for a batch of %u prompts",
                       submit.prompt_count);
    if (rc) {
        json_free(submit.document);
        return rc;
    }
    cursor.payload = frame->payload;
    *storage = cursor;
    submit.payload = frame->payload;
    submit.common = &storage->common;
    submit.storage = storage;
    *ret_submit = submit;
    return 0;
}

/* The prompt's own fields; the error is the caller's to complete. */
static int read_each(const json *each, const struct message_limits *limits,
                     struct message_prompt *prompt, enum job job, struct error *error)
{
    if (!json_is_object(each))
        return error_set(error, ERR_BAD_VALUE, "its entry of each is not an object");
    for (const json *member = json_child(each); member; member = json_next(member)) {
        bool known;
        int rc = sampling_read(member, limits, prompt, &known, error);
        if (rc)
            return rc;
        if (!known)
            return head_unknown(json_key(member), error);
        if (job != JOB_GENERATE)
            return error_set(error, ERR_BAD_VALUE, "%s does not belong to the job %s",
                             json_key(member), job_name(job));
    }
    return sampling_check(&prompt->sampling, error);
}

static int check_tokens(const struct message_prompt *prompt, uint32_t vocabulary,
                        struct error *error)
{
    uint32_t bad = 0, at = 0;
    for (uint32_t i = 0; i < prompt->token_count; i++)
        bad |= (uint32_t)prompt->tokens[i] >= vocabulary;
    if (!bad)
        return 0;
    while ((uint32_t)prompt->tokens[at] < vocabulary)
        at++;
    /* Its place and not the token, which is content. */
    return error_limit(error, ERR_BAD_TOKEN, vocabulary, 0,
                       "token %u of the prompt is outside the vocabulary of %u", at, vocabulary);
}

static int read_prompt(struct cursor *cursor, const json *each, enum job job,
                       struct message_prompt *prompt, struct error *error)
{
    int rc = each ? read_each(each, &cursor->limits, prompt, job, error) : 0;
    if (!rc && prompt->tokens && cursor->limits.vocabulary > 0)
        rc = check_tokens(prompt, cursor->limits.vocabulary, error);
    return rc;
}

/* What the prompt consists of; the cursor goes on to the next. */
static void take_content(struct cursor *cursor, struct message_prompt *prompt)
{
    if (cursor->length) {
        prompt->tokens = (const int32_t *)(const void *)cursor->payload;
        prompt->token_count = (uint32_t)json_number(cursor->length);
        cursor->payload += (size_t)prompt->token_count * sizeof(int32_t);
        cursor->length = json_next(cursor->length);
    } else if (cursor->chat) {
        prompt->chat = (const char *)cursor->payload;
        prompt->chat_length = (uint32_t)json_number(cursor->chat);
        cursor->payload += prompt->chat_length;
        cursor->chat = json_next(cursor->chat);
    } else {
        prompt->text = json_string(cursor->text);
        prompt->text_length = strlen(prompt->text);
        cursor->text = json_next(cursor->text);
    }
}

/* The same error with the prompt's number before its text. */
static int name_prompt(uint32_t index, const struct error *found, struct error *error)
{
    return error_limit(error, found->code, found->limit, found->value, "prompt %u: %s", index,
                       found->text);
}

int message_submit_prompt(struct message_submit *submit, uint32_t index,
                          struct message_prompt *ret_prompt, struct error *error)
{
    struct cursor *cursor = submit->storage;
    struct message_prompt prompt = cursor->common;
    const json *each = cursor->each;
    struct error found;
    assert(index == cursor->index && index < submit->prompt_count);
    cursor->index++;
    take_content(cursor, &prompt);
    if (each)
        cursor->each = json_next(each);
    if (read_prompt(cursor, each, submit->params.job, &prompt, &found))
        return name_prompt(index, &found, error);
    *ret_prompt = prompt;
    return 0;
}

void message_submit_payload(struct message_submit *submit, const unsigned char *payload)
{
    struct cursor *cursor = submit->storage;
    assert(cursor->index == 0);
    cursor->payload = submit->payload = payload;
}

const json *message_submit_texts(const struct message_submit *submit)
{
    return json_child(json_get(submit->document, "texts"));
}

const json *message_submit_chats(const struct message_submit *submit)
{
    return json_child(json_get(submit->document, "chats"));
}

void message_submit_free(struct message_submit *submit)
{
    json_free(submit->document);
    free(submit->storage);
    submit->document = NULL;
    submit->common = NULL;
    submit->storage = NULL;
}
