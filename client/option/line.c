#include "client/option/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_DEPTH 40   /* conversations may nest 32 deep */
#define LOGPROBS_MAX 20 /* as the option has it */

/* ---- what both forms have ----------------------------------------------------------------------
 */

static int wrong(const char *name, const char *what, struct error *error)
{
    return error_set(error, ERR_USAGE, "%s: %s", name, what);
}

/* A name that the line's results get back. */
static int take_name(const json *member, const json **ret_name, struct error *error)
{
    if (!json_is_string(member) && !json_is_number(member))
        return wrong(json_key(member), "not a string or a number", error);
    *ret_name = member;
    return 0;
}

/* Members of a line that make up a conversation. */
static bool is_chat(const char *name)
{
    static const char *const names[] = {"messages", "tools", "chat_template_kwargs",
                                        "reasoning_effort", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static size_t write_chat(const json *object, char *buffer, size_t size)
{
    struct json_writer writer;
    json_writer_init(&writer, buffer, size);
    json_open(&writer, NULL, '{');
    for (const json *member = json_child(object); member; member = json_next(member))
        if (is_chat(json_key(member)) && !json_is_null(member))
            json_put_value(&writer, json_key(member), member);
    json_close(&writer, '}');
    return writer.used;
}

/* The conversation as a text of its own, as the daemon takes it. */
static int make_chat(const json *object, struct work *work, struct error *error)
{
    if (!json_get(object, "messages"))
        return 0;
    work->chat_length = write_chat(object, NULL, 0);
    work->chat = malloc(work->chat_length);
    if (!work->chat)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    write_chat(object, work->chat, work->chat_length);
    return 0;
}

static int check_prompt(const struct work *work, struct error *error)
{
    int given = (work->prompt != NULL) + (work->tokens.count > 0) + (work->chat != NULL);
    if (given > 1)
        return error_set(error, ERR_USAGE,
                         work->chat ? "both a prompt and messages" : "both a prompt and tokens");
    if (given == 0 || (work->prompt && !*work->prompt))
        return error_set(error, ERR_USAGE,
                         "neither a prompt nor tokens nor messages, or they are empty");
    return 0;
}

static int read_own(const struct option_group *groups, struct work *work, struct error *error)
{
    for (const json *member = json_child(work->document); member; member = json_next(member)) {
        const char *name = json_key(member);
        if (strcmp(name, "id") == 0 || strcmp(name, "custom_id") == 0 || is_chat(name))
            continue;
        int rc = option_read(groups, work, name, member, error);
        if (rc)
            return rc;
    }
    return make_chat(work->document, work, error);
}

/* ---- OpenAI's batches: a request in a line -----------------------------------------------------
 */

static const struct {
    const char *url;
    enum line_form form;
} urls[] = {{"/v1/completions", LINE_COMPLETION},
            {"/v1/chat/completions", LINE_CHAT},
            {"/v1/embeddings", LINE_EMBEDDING}};

static int read_url(const json *line, struct work *work, struct error *error)
{
    const json *method = json_get(line, "method"), *url = json_get(line, "url");
    if (method && strcmp(json_string(method), "POST") != 0)
        return wrong("method", "must be POST", error);
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
        if (strcmp(json_string(url), urls[i].url) == 0)
            work->form = urls[i].form;
    return work->form != LINE_OWN ? 0
                                  : wrong("url",
                                          "must be /v1/completions, /v1/chat/completions or "
                                          "/v1/embeddings",
                                          error);
}

/* Fields whose usual value asks for nothing; others stand in the options' tables. */
static int read_neutral(const json *member, bool *ret_known, struct error *error)
{
    const char *name = json_key(member);
    *ret_known = true;
    if (strcmp(name, "user") == 0 || strcmp(name, "metadata") == 0)
        return 0;
    if (strcmp(name, "stream") == 0 || strcmp(name, "store") == 0)
        return json_is_bool(member) && !json_bool(member) ? 0 : wrong(name, "must be false", error);
    if (strcmp(name, "encoding_format") == 0)
        return strcmp(json_string(member), "float") == 0 ? 0 : wrong(name, "must be float", error);
    *ret_known = false;
    return 0;
}

/* Chats say in two fields what completions say in one. */
static int read_chat_logprobs(const json *body, struct work *work, struct error *error)
{
    const json *wanted = json_get(body, "logprobs"), *most = json_get(body, "top_logprobs");
    int64_t count = 0;
    bool given = wanted && !json_is_null(wanted), counted = most && !json_is_null(most);
    if (given && !json_is_bool(wanted))
        return wrong("logprobs", "must be true or false", error);
    if (counted && !json_bool(wanted))
        return wrong("top_logprobs", "only with logprobs", error);
    if (counted && json_integer(most, "top_logprobs", 0, LOGPROBS_MAX, &count, error))
        return wrong("top_logprobs", "must be an integer from 0 to 20", error);
    if (given)
        work->params.logprobs = json_bool(wanted) ? (int)count : -1;
    return 0;
}

static bool is_chat_logprobs(const struct work *work, const char *name)
{
    return work->form == LINE_CHAT &&
           (strcmp(name, "logprobs") == 0 || strcmp(name, "top_logprobs") == 0);
}

static int read_field(const struct option_group *groups, const json *member, struct work *work,
                      struct error *error)
{
    const char *name = json_key(member);
    bool known, list = json_is_array(member);
    int rc = read_neutral(member, &known, error);
    if (rc || known || is_chat_logprobs(work, name))
        return rc;
    if (strcmp(name, "model") == 0) {
        work->model = json_string(member);
        return json_is_string(member) ? 0 : wrong(name, "not a string", error);
    }
    if (strcmp(name, work->form == LINE_EMBEDDING ? "input" : "prompt") == 0)
        name = list ? "tokens" : "prompt";
    else if (strcmp(name, "max_completion_tokens") == 0 && work->form == LINE_CHAT)
        name = "max_tokens";
    if (strcmp(name, "stop") == 0 && json_is_string(member)) {
        work->stop = (struct option_list){.count = 1, .texts = {json_string(member)}};
        return 0;
    }
    return option_read(groups, work, name, member, error);
}

static int read_request(const struct option_group *groups, struct work *work, struct error *error)
{
    const json *body = json_get(work->document, "body");
    int rc = read_url(work->document, work, error);
    if (!rc && !work->custom_id)
        rc = error_set(error, ERR_USAGE, "custom_id is missing");
    if (!rc && !json_is_object(body))
        rc = wrong("body", "not an object", error);
    for (const json *member = json_child(work->document); !rc && member;
         member = json_next(member)) {
        static const char *const known[] = {"id", "custom_id", "method", "url", "body"};
        bool found = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            found = found || strcmp(json_key(member), known[i]) == 0;
        if (!found)
            rc = error_set(error, ERR_USAGE, "unknown field \"%.64s\"", json_key(member));
    }
    for (const json *member = json_child(body); !rc && member; member = json_next(member))
        if (!json_is_null(member) && !(work->form == LINE_CHAT && is_chat(json_key(member))))
            rc = read_field(groups, member, work, error);
    if (!rc && work->form == LINE_CHAT)
        rc = read_chat_logprobs(body, work, error);
    if (!rc && work->form == LINE_CHAT)
        rc = make_chat(body, work, error);
    if (!rc && work->form == LINE_CHAT && !work->chat)
        rc = error_set(error, ERR_USAGE, "messages is missing");
    return rc;
}

/* ---- a line ------------------------------------------------------------------------------------
 */

static int read_line(const struct option_group *groups, struct work *work, struct error *error)
{
    if (!json_is_object(work->document))
        return error_set(error, ERR_USAGE, "not a JSON object");
    const json *id = json_get(work->document, "id");
    const json *custom_id = json_get(work->document, "custom_id");
    int rc = custom_id ? take_name(custom_id, &work->custom_id, error) : 0;
    if (!rc && id)
        rc = take_name(id, &work->id, error);
    if (!rc)
        rc = json_get(work->document, "body") || json_get(work->document, "url")
                 ? read_request(groups, work, error)
                 : read_own(groups, work, error);
    return rc ? rc : check_prompt(work, error);
}

/* What an error is told with: the line's names and its form. */
static void keep_names(const struct work *common, struct work *work)
{
    json *document = work->document;
    const json *id = work->id, *custom_id = work->custom_id;
    enum line_form form = work->form;
    work->document = NULL;
    work_clear(work);
    *work = *common;
    work->params.n = 1;
    work->document = document;
    work->id = id;
    work->custom_id = custom_id;
    work->form = form;
}

int line_read(const struct option_group *groups, const struct work *common, const char *line,
              size_t length, struct work *ret_work, struct error *error)
{
    static const struct json_bounds bounds = {.bytes_max = LINE_BYTES_MAX, .depth_max = LINE_DEPTH};
    struct work work = *common;
    int rc = json_parse(line, length, bounds, &work.document, error);
    if (!rc)
        rc = read_line(groups, &work, error);
    if (rc)
        keep_names(common, &work);
    /* A document of tokens is many times their own size, and only texts are borrowed from it. */
    if (!rc && !work.prompt && work.stop.count == 0 && !work.id && !work.custom_id && !work.model &&
        work.cache_salt == common->cache_salt && work.named == common->named) {
        json_free(work.document);
        work.document = NULL;
    }
    *ret_work = work;
    return rc;
}
