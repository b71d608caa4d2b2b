#include "daemon/request/model_text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/siphash.h"
#include "daemon/text/template/chat.h"
#include "daemon/text/tokenizer.h"
#include "gpu/checkpoint/file.h"
#include "gpu/models/synthetic.h"
#include "protocol/base/json.h"

#define SETTINGS_MAX ((size_t)4 << 20)
#define END_TOKEN "<|end|>"
#define VOCAB_ROOM 28u /* of an entry of a made-up vocabulary, at most */

/* ---- synthetic models
 * ----------------------------------------------------------------------------
 */

/* The character that stands for a byte in byte-level vocabularies: itself where it can be printed.
 */
static uint32_t byte_character(unsigned byte)
{
    static const unsigned char printed[][2] = {{33, 126}, {161, 172}, {174, 255}};
    uint32_t others = 0;
    for (unsigned at = 0; at <= byte; at++) {
        bool itself = false;
        for (unsigned i = 0; i < 3; i++)
            itself = itself || (at >= printed[i][0] && at <= printed[i][1]);
        if (at == byte && itself)
            return byte;
        others += !itself;
    }
    return 255 + others;
}

static void put_byte(struct json_writer *writer, unsigned byte)
{
    uint32_t point = byte_character(byte);
    char key[3] = {(char)point};
    if (point >= 0x80) {
        key[0] = (char)(0xc0 | point >> 6);
        key[1] = (char)(0x80 | (point & 0x3f));
    }
    json_put_uint(writer, key, byte);
}

/* What a conversation is for a model that was never taught one. */
static const char synthetic_chat[] =
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

/* A token above the bytes has its number for a text, so that answers are seen as they come; no text
 * is made of one. (A byte that is no whole character waits for the next, as everywhere.) */
static void put_vocabulary(struct json_writer *writer, uint32_t vocab, uint32_t end)
{
    char key[16];
    json_open(writer, "vocab", '{');
    for (unsigned byte = 0; byte < 256; byte++)
        put_byte(writer, byte);
    for (uint32_t id = 256; id < vocab; id++) {
        snprintf(key, sizeof(key), "\xc4\xa0%u", id); /* the space of byte-level vocabularies */
        if (id != end)
            json_put_uint(writer, key, id);
    }
    json_close(writer, '}');
}

static void put_tokenizer(struct json_writer *writer, uint32_t vocab, uint32_t end)
{
    json_open(writer, NULL, '{');
    json_open(writer, "added_tokens", '[');
    if (end < vocab) {
        json_open(writer, NULL, '{');
        json_put_uint(writer, "id", end);
        json_put_text(writer, "content", END_TOKEN);
        json_put_bool(writer, "special", true);
        json_close(writer, '}');
    }
    json_close(writer, ']');
    json_open(writer, "pre_tokenizer", '{');
    json_put_text(writer, "type", "ByteLevel");
    json_put_bool(writer, "add_prefix_space", false);
    json_put_bool(writer, "use_regex", false);
    json_close(writer, '}');
    json_open(writer, "decoder", '{');
    json_put_text(writer, "type", "ByteLevel");
    json_close(writer, '}');
    json_open(writer, "model", '{');
    json_put_text(writer, "type", "BPE");
    put_vocabulary(writer, vocab, end);
    json_open(writer, "merges", '[');
    json_close(writer, ']');
    json_close(writer, '}');
    json_close(writer, '}');
}

/* Bytes are tokens, and an end token where the shape has one. */
static int load_bytes(struct model_text *model_text, const char *model, struct error *error)
{
    struct model_config config;
    struct json_writer writer;
    int rc = synthetic_config(model, &config, error);
    if (rc)
        return rc;
    uint32_t end = config.eos_count > 0 ? (uint32_t)config.eos_ids[0] : config.vocab;
    size_t room = 1024 + (size_t)config.vocab * VOCAB_ROOM;
    char *text = malloc(room);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for a vocabulary of %u", config.vocab);
    json_writer_init(&writer, text, room);
    put_tokenizer(&writer, config.vocab, end);
    rc = tokenizer_load(text, writer.used, &model_text->tokenizer, error);
    free(text);
    if (rc)
        return rc;
    if (end < config.vocab)
        snprintf(model_text->eos_token, sizeof(model_text->eos_token), END_TOKEN);
    return chat_template_load(synthetic_chat, sizeof(synthetic_chat) - 1, &model_text->chat, error);
}

/* ---- a directory -------------------------------------------------------------------------------
 */

/* The file goes into the hash of those before it. Nothing is kept from anybody who could make two
 * files of one hash: both are an admin's. */
static void note_file(struct model_text *model_text, const char *text, size_t length)
{
    const struct siphash_key key = {{model_text->files[0], model_text->files[1]}};
    struct siphash hash;
    siphash_begin_wide(&hash, &key);
    siphash_add(&hash, text, length);
    siphash_end_wide(&hash, model_text->files);
}

static int load_tokenizer(struct model_text *model_text, const char *directory, struct error *error)
{
    char *text;
    size_t length;
    struct error found;
    file_marks_note(&model_text->marks, directory, "tokenizer.json");
    if (!file_exists(directory, "tokenizer.json"))
        return error_set(error, ERR_UNSUPPORTED, "the model has no tokenizer.json: send tokens");
    int rc = file_text(directory, "tokenizer.json", TOKENIZER_FILE_MAX, &text, &length, error);
    if (rc)
        return rc;
    rc = tokenizer_load(text, length, &model_text->tokenizer, &found);
    note_file(model_text, text, length);
    free(text);
    int code = rc == -ERR_NO_MEMORY ? ERR_NO_MEMORY : ERR_UNSUPPORTED;
    return rc ? error_set(error, code, "tokenizer.json: %s", found.text) : 0;
}

/* "bos_token" and the like: a text, or an object with its content. */
static void read_token(const json *settings, const char *key, char token[MODEL_TEXT_TOKEN_MAX])
{
    const json *value = json_get(settings, key);
    const char *text = json_string(json_is_object(value) ? json_get(value, "content") : value);
    if (strlen(text) < MODEL_TEXT_TOKEN_MAX)
        strcpy(token, text);
}

/* The template of tokenizer_config.json: one text, or several of which one is the default. */
static const char *template_of(const json *settings)
{
    const json *value = json_get(settings, "chat_template");
    if (json_is_string(value))
        return json_string(value);
    for (const json *item = json_child(value); item; item = json_next(item))
        if (strcmp(json_string(json_get(item, "name")), "default") == 0)
            return json_string(json_get(item, "template"));
    return NULL;
}

static void parse_template(struct model_text *model_text, const char *file, const char *text,
                           size_t length)
{
    struct error found;
    if (chat_template_load(text, length, &model_text->chat, &found))
        error_set(&model_text->chat_refusal, ERR_UNSUPPORTED, "the chat template in %s: %s", file,
                  found.text);
}

/* A template of its own file goes before the one among the settings. */
static void load_template_file(struct model_text *model_text, const char *directory)
{
    char *text;
    size_t length;
    if (file_text(directory, "chat_template.jinja", CHAT_SOURCE_MAX, &text, &length,
                  &model_text->chat_refusal))
        return;
    parse_template(model_text, "chat_template.jinja", text, length);
    note_file(model_text, text, length);
    free(text);
}

static void load_chat(struct model_text *model_text, const char *directory)
{
    char *text;
    size_t length;
    json *settings = NULL;
    const struct json_bounds bounds = {.bytes_max = SETTINGS_MAX, .depth_max = 32};
    file_marks_note(&model_text->marks, directory, "chat_template.jinja");
    file_marks_note(&model_text->marks, directory, "tokenizer_config.json");
    bool own = file_exists(directory, "chat_template.jinja");
    if (own)
        load_template_file(model_text, directory);
    if (!file_exists(directory, "tokenizer_config.json") ||
        file_text(directory, "tokenizer_config.json", SETTINGS_MAX, &text, &length,
                  own ? NULL : &model_text->chat_refusal))
        return;
    note_file(model_text, text, length);
    if (!json_parse(text, length, bounds, &settings, own ? NULL : &model_text->chat_refusal)) {
        const char *source = template_of(settings);
        read_token(settings, "bos_token", model_text->bos_token);
        read_token(settings, "eos_token", model_text->eos_token);
        read_token(settings, "pad_token", model_text->pad_token);
        if (source && !own)
            parse_template(model_text, "tokenizer_config.json", source, strlen(source));
        json_free(settings);
    }
    free(text);
}

/* "is_matryoshka" and "matryoshka_dimensions": what the checkpoint was trained for. */
static void load_cuts(struct model_text *model_text, const char *directory)
{
    char *text;
    size_t length;
    json *config = NULL;
    int64_t width;
    const struct json_bounds bounds = {.bytes_max = SETTINGS_MAX, .depth_max = 32};
    file_marks_note(&model_text->marks, directory, "config.json");
    if (!file_exists(directory, "config.json") ||
        file_text(directory, "config.json", SETTINGS_MAX, &text, &length, NULL))
        return;
    if (!json_parse(text, length, bounds, &config, NULL)) {
        const json *item = json_child(json_get(config, "matryoshka_dimensions"));
        model_text->row_cut_any = !item && json_bool(json_get(config, "is_matryoshka"));
        for (; item && model_text->row_cut_count < MODEL_TEXT_ROW_CUTS_MAX; item = json_next(item))
            if (!json_integer(item, "a width", 1, INT32_MAX, &width, NULL))
                model_text->row_cut[model_text->row_cut_count++] = (uint32_t)width;
        json_free(config);
    }
    free(text);
}

bool model_text_cuts(const struct model_text *model_text, uint32_t width)
{
    for (uint32_t i = 0; i < model_text->row_cut_count; i++)
        if (model_text->row_cut[i] == width)
            return true;
    return model_text->row_cut_any;
}

static void find_form(struct model_text *model_text)
{
    const char *source = model_text->chat ? chat_template_source(model_text->chat) : "";
    answer_form_find(&model_text->answer, source, model_text->tokenizer);
}

static bool lacked(const struct error *refusal)
{
    return refusal->code == ERR_IO || refusal->code == ERR_NO_MEMORY;
}

int model_text_load(struct model_text *model_text, const char *model, struct error *error)
{
    *model_text = (struct model_text){0};
    error_set(&model_text->chat_refusal, ERR_UNSUPPORTED, "the model has no chat template");
    if (synthetic_is(model)) {
        load_bytes(model_text, model, &model_text->refusal);
    } else {
        load_tokenizer(model_text, model, &model_text->refusal);
        load_chat(model_text, model);
        load_cuts(model_text, model);
    }
    find_form(model_text);
    int rc = synthetic_is(model) ? 0 : class_head_load(model, &model_text->head, error);
    if (!rc)
        rc = pair_form_load(model_text, model, error);
    if (rc)
        return rc;
    if (!lacked(&model_text->refusal) && !lacked(&model_text->chat_refusal))
        return 0;
    const struct error *why =
        lacked(&model_text->refusal) ? &model_text->refusal : &model_text->chat_refusal;
    return error_set(error, why->code, "%s", why->text);
}

/* Special tokens may be called by other names. */
static bool is_same_token(const struct tokenizer *a, const struct tokenizer *b, int32_t id)
{
    size_t a_length = 0, b_length = 0;
    const char *a_text = tokenizer_token_text(a, id, &a_length);
    const char *b_text = tokenizer_token_text(b, id, &b_length);
    if (!a_text || !b_text || tokenizer_token_is_special(a, id) ||
        tokenizer_token_is_special(b, id))
        return true; /* padding on one side */
    return a_length == b_length && memcmp(a_text, b_text, a_length) == 0;
}

int model_text_same_tokens(const struct model_text *model_text, const char *draft_model,
                           struct error *error)
{
    struct model_text draft = {0};
    struct error refusal = {.code = 0};
    if (!model_text->tokenizer || synthetic_is(draft_model))
        return 0;
    load_tokenizer(&draft, draft_model, &refusal);
    uint32_t bound = draft.tokenizer ? tokenizer_bound(draft.tokenizer) : 0;
    uint32_t own = tokenizer_bound(model_text->tokenizer), id = 0;
    bound = bound < own ? bound : own;
    while (id < bound && is_same_token(model_text->tokenizer, draft.tokenizer, (int32_t)id))
        id++;
    model_text_free(&draft);
    if (id < bound)
        return error_set(error, ERR_BAD_CONFIG,
                         "draft-model: its token %u is another than the model's: it guesses for a "
                         "model of the same tokenizer",
                         id);
    return 0;
}

static bool is_same_source(const struct chat_template *a, const struct chat_template *b)
{
    return !a || !b ? a == b : strcmp(chat_template_source(a), chat_template_source(b)) == 0;
}

static bool are_same_pairs(const struct pair_form *a, const struct pair_form *b)
{
    return a->known == b->known && is_same_source(a->given, b->given) &&
           (!a->known || memcmp(a->tokens, b->tokens, sizeof(a->tokens)) == 0) &&
           (!a->instruction || !b->instruction ? a->instruction == b->instruction
                                               : strcmp(a->instruction, b->instruction) == 0);
}

const char *model_text_differs(const struct model_text *model_text, const struct model_text *other)
{
    if (memcmp(model_text->files, other->files, sizeof(other->files)) != 0 ||
        !model_text->tokenizer != !other->tokenizer)
        return "tokenizer.json, tokenizer_config.json or chat_template.jinja";
    if (!is_same_source(model_text->chat, other->chat))
        return "the chat template";
    if (!are_same_pairs(&model_text->pairs, &other->pairs))
        return "what config.json says of scores";
    if (model_text->head.labels != other->head.labels)
        return "the head of classes";
    if (model_text->row_cut_any != other->row_cut_any ||
        model_text->row_cut_count != other->row_cut_count ||
        memcmp(model_text->row_cut, other->row_cut, sizeof(other->row_cut)) != 0)
        return "what config.json says of rows that may be cut";
    return NULL;
}

int model_text_read_template(const char *path, struct chat_template **ret_template,
                             struct error *error)
{
    struct error found;
    char *text, *directory = strdup(path);
    size_t length;
    if (!directory)
        return error_set(error, ERR_NO_MEMORY, "no memory for a path");
    char *slash = strrchr(directory, '/');
    if (slash)
        *slash = '\0';
    int rc = file_text(!slash               ? "."
                       : slash == directory ? "/"
                                            : directory,
                       slash ? path + (slash - directory) + 1 : path, CHAT_SOURCE_MAX, &text,
                       &length, &found);
    free(directory);
    if (!rc) {
        rc = chat_template_load(text, length, ret_template, &found);
        free(text);
    }
    return rc ? error_set(error, found.code, "%.128s: %s", path, found.text) : 0;
}

int model_text_template(struct model_text *model_text, const char *path, struct error *error)
{
    struct chat_template *chat;
    struct error found;
    file_marks_note(&model_text->marks, path, "");
    if (model_text_read_template(path, &chat, &found))
        return error_set(error, lacked(&found) ? found.code : ERR_BAD_CONFIG, "chat-template: %s",
                         found.text);
    chat_template_free(model_text->chat);
    model_text->chat = chat;
    find_form(model_text);
    pair_form_settle(model_text);
    return 0;
}

void model_text_free(struct model_text *model_text)
{
    tokenizer_free(model_text->tokenizer);
    chat_template_free(model_text->chat);
    pair_form_free(&model_text->pairs);
    class_head_free(&model_text->head);
    file_marks_free(&model_text->marks);
    *model_text = (struct model_text){0};
}

int model_text_texts(const struct model_text *model_text, struct error *error)
{
    if (model_text && model_text->tokenizer)
        return 0;
    return error_set(error, ERR_UNSUPPORTED, "no texts: %s",
                     model_text ? model_text->refusal.text : "this daemon has no tokenizer");
}

int model_text_chats(const struct model_text *model_text, struct error *error)
{
    int rc = model_text_texts(model_text, error);
    if (rc || model_text->chat)
        return rc;
    return error_set(error, ERR_UNSUPPORTED, "no chat: %s", model_text->chat_refusal.text);
}

int model_text_generates(const struct model_text *model_text, struct error *error)
{
    if (!model_text || model_text->head.labels == 0)
        return 0;
    return error_set(
        error, ERR_UNSUPPORTED,
        "the model has a head of classes and none for tokens: it neither generates nor "
        "scores tokens (/classify, /v1/score and /v1/rerank ask its head)");
}

int model_text_classifies(const struct model_text *model_text, struct error *error)
{
    if (model_text && model_text->head.labels > 0)
        return 0;
    return error_set(error, ERR_UNSUPPORTED, "the model has no head of classes");
}

void model_text_classes(const struct model_text *model_text, const float *row, bool own,
                        double *ret_values)
{
    const struct class_head *head = &model_text->head;
    class_head_values(head, row, ret_values);
    if (!own)
        class_head_apply(head->function, ret_values, head->labels);
}

static size_t text_room(const struct tokenizer *tokenizer, const int32_t *tokens, uint32_t count)
{
    size_t sum = 16, length;
    for (uint32_t i = 0; i < count && sum <= MODEL_TEXT_TEXT_MAX; i++)
        if (tokenizer_token_bytes(tokenizer, tokens[i], &length))
            sum += 4 + 3 * length; /* a byte that is no text becomes three */
    return sum < MODEL_TEXT_TEXT_MAX ? sum : MODEL_TEXT_TEXT_MAX;
}

int model_text_decode(const struct model_text *model_text, const int32_t *tokens, uint32_t count,
                      uint32_t count_max, bool special, char **ret_text, size_t *ret_length,
                      struct error *error)
{
    int rc = model_text_texts(model_text, error);
    if (rc)
        return rc;
    if (count > count_max)
        return error_limit(error, ERR_TOO_LARGE, count_max, count,
                           "%u tokens, more than the %u that the context holds", count, count_max);
    size_t room = text_room(model_text->tokenizer, tokens, count);
    char *text = malloc(room);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for a text");
    rc = tokenizer_decode(model_text->tokenizer, tokens, count, !special, text, room, ret_length,
                          error);
    if (rc)
        free(text);
    else
        *ret_text = text;
    return rc;
}
