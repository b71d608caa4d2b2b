#include "daemon/request/pair_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/option.h"
#include "daemon/request/model_text.h"
#include "daemon/text/template/chat.h"
#include "daemon/text/tokenizer.h"
#include "gpu/checkpoint/file.h"
#include "protocol/base/json.h"

#define SETTINGS_MAX ((size_t)4 << 20)
#define WORD_IDS_MAX 64 /* far more than a word has */
#define MESSAGES_ROOM 256
#define ESCAPED_MAX 6 /* bytes of JSON for one of a text */

/* ---- what a checkpoint says --------------------------------------------------------------------
 */

/* NULL: it is not there, or no JSON. */
static json *settings_of(struct model_text *model_text, const char *directory, const char *file,
                         struct error *error)
{
    const struct json_bounds bounds = {.bytes_max = SETTINGS_MAX, .depth_max = 32};
    char *text;
    size_t length;
    json *settings = NULL;
    file_marks_note(&model_text->marks, directory, file);
    if (!file_exists(directory, file) ||
        file_text(directory, file, SETTINGS_MAX, &text, &length, error))
        return NULL;
    if (json_parse(text, length, bounds, &settings, error))
        settings = NULL;
    free(text);
    return settings;
}

/* A word that is one token. */
static int token_of(const struct tokenizer *tokenizer, const char *word, int32_t *ret_token,
                    struct error *error)
{
    struct tokenizer_scratch *scratch = tokenizer_scratch_new();
    int32_t ids[WORD_IDS_MAX];
    size_t count = 0;
    if (!scratch)
        return error_set(error, ERR_NO_MEMORY, "no memory to tokenize");
    int rc = tokenizer_encode(tokenizer, scratch, word, strlen(word), false, ids, WORD_IDS_MAX,
                              &count, error);
    tokenizer_scratch_free(scratch);
    if (rc)
        return rc;
    if (count != 1)
        return error_set(error, ERR_UNSUPPORTED, "\"%.64s\" is %zu tokens, not one", word, count);
    *ret_token = ids[0];
    return 0;
}

static int take_tokens(struct pair_form *form, const int32_t tokens[PAIR_TOKENS],
                       struct error *error)
{
    if (tokens[PAIR_NO] == tokens[PAIR_YES])
        return error_set(error, ERR_UNSUPPORTED, "no and yes are the same token");
    memcpy(form->tokens, tokens, sizeof(form->tokens));
    form->known = true;
    return 0;
}

/* "classifier_from_token": ["no", "yes"] of config.json. */
static int tokens_of_config(const struct tokenizer *tokenizer, const json *config,
                            int32_t tokens[PAIR_TOKENS], struct error *error)
{
    const json *words = json_get(config, "classifier_from_token");
    const json *word = json_child(words);
    if (!json_is_array(words) || json_count(words) != PAIR_TOKENS)
        return error_set(error, ERR_UNSUPPORTED, "classifier_from_token has no two words");
    for (int i = 0; i < PAIR_TOKENS; i++, word = json_next(word)) {
        int rc = token_of(tokenizer, json_string(word), &tokens[i], error);
        if (rc)
            return rc;
    }
    return 0;
}

/* The settings of the module that makes a score of the logits, or NULL. Its path is a folder's
 * name. */
static json *logit_score(struct model_text *model_text, const char *directory, struct error *error)
{
    json *modules = settings_of(model_text, directory, "modules.json", error), *score = NULL;
    for (const json *module = json_child(modules); module && !score; module = json_next(module)) {
        const char *path = json_string(json_get(module, "path"));
        const char *type = strrchr(json_string(json_get(module, "type")), '.');
        char file[256];
        if (!type || strcmp(type, ".LogitScore") != 0 || strchr(path, '/') || path[0] == '.')
            continue;
        snprintf(file, sizeof(file), "%.200s/config.json", path);
        score = settings_of(model_text, directory, file, error);
    }
    json_free(modules);
    return score;
}

static int tokens_of_module(const json *score, int32_t tokens[PAIR_TOKENS], struct error *error)
{
    static const char *const names[PAIR_TOKENS] = {"false_token_id", "true_token_id"};
    for (int i = 0; i < PAIR_TOKENS; i++) {
        int64_t id;
        if (json_integer(json_get(score, names[i]), names[i], 0, INT32_MAX, &id, NULL))
            return error_set(error, ERR_UNSUPPORTED,
                             "LogitScore has no %s: one token's logit is no probability", names[i]);
        tokens[i] = (int32_t)id;
    }
    return 0;
}

static int find_tokens(struct model_text *model_text, const char *directory, struct error *error)
{
    struct error lacked = {0};
    int32_t tokens[PAIR_TOKENS];
    json *score = logit_score(model_text, directory, &lacked), *config = NULL;
    int rc;
    if (score) {
        rc = tokens_of_module(score, tokens, error);
    } else {
        config = settings_of(model_text, directory, "config.json", &lacked);
        rc = json_get(config, "classifier_from_token")
                 ? tokens_of_config(model_text->tokenizer, config, tokens, error)
                 : error_set(error, ERR_UNSUPPORTED,
                             "the checkpoint names no tokens that say no and yes");
    }
    if (lacked.code == ERR_NO_MEMORY || lacked.code == ERR_IO)
        rc = error_set(error, lacked.code, "%s", lacked.text);
    else if (!rc)
        rc = take_tokens(&model_text->pairs, tokens, error);
    json_free(score);
    json_free(config);
    return rc;
}

/* "prompts" and "default_prompt_name" of sentence-transformers' own settings. */
static void find_instruction(struct model_text *model_text, const char *directory)
{
    struct pair_form *form = &model_text->pairs;
    json *settings = settings_of(model_text, directory, "config_sentence_transformers.json", NULL);
    const char *name = json_string(json_get(settings, "default_prompt_name"));
    const json *prompt = *name ? json_get(json_get(settings, "prompts"), name) : NULL;
    if (json_is_string(prompt) && *json_string(prompt))
        form->instruction = strdup(json_string(prompt));
    json_free(settings);
}

static bool names_role(const char *source, const char *role)
{
    char quoted[2][16];
    snprintf(quoted[0], sizeof(quoted[0]), "\"%s\"", role);
    snprintf(quoted[1], sizeof(quoted[1]), "'%s'", role);
    return strstr(source, quoted[0]) || strstr(source, quoted[1]);
}

/* A template that is for conversations alone would lose both texts without a word. */
bool pair_form_asks(const struct model_text *model_text)
{
    const char *source = model_text->chat ? chat_template_source(model_text->chat) : "";
    return model_text->pairs.given ||
           (names_role(source, "query") && names_role(source, "document"));
}

static int find_template(const struct model_text *model_text, struct error *error)
{
    if (pair_form_asks(model_text))
        return 0;
    if (model_text->head.labels)
        return tokenizer_pairs(model_text->tokenizer)
                   ? 0
                   : error_set(
                         error, ERR_UNSUPPORTED,
                         "the tokenizer's template for a pair is not that for one text twice, "
                         "and no other template makes a prompt of both");
    return error_set(error, ERR_UNSUPPORTED,
                     "the model's chat template has no messages of the roles query and document");
}

void pair_form_settle(struct model_text *model_text)
{
    struct pair_form *form = &model_text->pairs;
    if (model_text->head.labels > 1)
        error_set(&form->refusal, ERR_UNSUPPORTED,
                  "the model's head has %u classes, and a score is of one (/classify tells them)",
                  model_text->head.labels);
    else if ((form->known || model_text->head.labels) && !find_template(model_text, &form->refusal))
        form->refusal.code = 0;
}

int pair_form_load(struct model_text *model_text, const char *directory, struct error *error)
{
    struct pair_form *form = &model_text->pairs;
    if (!model_text->tokenizer) {
        error_set(&form->refusal, ERR_UNSUPPORTED, "there are no texts");
        return 0;
    }
    int rc = model_text->head.labels ? 0 : find_tokens(model_text, directory, &form->refusal);
    if (rc == -ERR_NO_MEMORY || rc == -ERR_IO)
        return error_set(error, form->refusal.code, "%s", form->refusal.text);
    pair_form_settle(model_text);
    find_instruction(model_text, directory);
    return 0;
}

/* ---- what somebody says ------------------------------------------------------------------------
 */

static int give_words(struct model_text *model_text, const char *words, struct error *error)
{
    int32_t tokens[PAIR_TOKENS];
    struct option_word word;
    uint32_t count = 0;
    while (option_next(&words, &word)) {
        char text[64];
        if (count == PAIR_TOKENS || word.length >= sizeof(text))
            return error_set(error, ERR_BAD_CONFIG, "two words are wanted, as no,yes");
        snprintf(text, sizeof(text), "%.*s", (int)word.length, word.text);
        int rc = token_of(model_text->tokenizer, text, &tokens[count++], error);
        if (rc)
            return rc;
    }
    if (count != PAIR_TOKENS)
        return error_set(error, ERR_BAD_CONFIG, "two words are wanted, as no,yes");
    return take_tokens(&model_text->pairs, tokens, error);
}

/* Without the words the checkpoint's, which must be there then. */
static int give(struct model_text *model_text, const char *words, const char *path,
                const char **ret_option, struct error *error)
{
    struct pair_form *form = &model_text->pairs;
    *ret_option = "score-tokens";
    if (!model_text->tokenizer)
        return error_set(error, ERR_BAD_CONFIG, "there are no texts");
    bool head = model_text->head.labels > 0;
    if (words[0] && head)
        return error_set(error, ERR_BAD_CONFIG, "the model has a head that scores, and no tokens");
    if (!head && (words[0] || !form->known)) {
        int rc = words[0] ? give_words(model_text, words, error)
                          : error_set(error, ERR_BAD_CONFIG, "%s", form->refusal.text);
        if (rc)
            return rc;
    }
    *ret_option = "score-template";
    if (path[0])
        file_marks_note(&model_text->marks, path, "");
    int rc = path[0] ? model_text_read_template(path, &form->given, error) : 0;
    return rc ? rc : find_template(model_text, error);
}

int pair_form_give(struct model_text *model_text, const char *words, const char *path,
                   struct error *error)
{
    struct error found;
    const char *option;
    int rc = give(model_text, words, path, &option, &found);
    if (!rc) {
        pair_form_settle(model_text);
        return 0;
    }
    bool lacked = found.code == ERR_IO || found.code == ERR_NO_MEMORY;
    return error_set(error, lacked ? found.code : ERR_BAD_CONFIG, "%s: %s", option, found.text);
}

void pair_form_free(struct pair_form *form)
{
    chat_template_free(form->given);
    free(form->instruction);
    *form = (struct pair_form){0};
}

int pair_form_check(const struct model_text *model_text, struct error *error)
{
    int rc = model_text_texts(model_text, error);
    if (rc || !model_text->pairs.refusal.code)
        return rc;
    return error_set(error, ERR_UNSUPPORTED,
                     "pairs of texts are not scored: %s (score-tokens, score-template)",
                     model_text->pairs.refusal.text);
}

double pair_form_head_score(const struct model_text *model_text, const float *row, bool own)
{
    double value;
    class_head_values(&model_text->head, row, &value);
    if (!own)
        class_head_apply(model_text->head.pair_function, &value, 1);
    return value;
}

/* ---- a pair ------------------------------------------------------------------------------------
 */

static void put_message(struct json_writer *writer, const char *role, const char *content)
{
    json_open(writer, NULL, '{');
    json_put_text(writer, "role", role);
    json_put_text(writer, "content", content);
    json_close(writer, '}');
}

static int make_messages(const struct pair *pair, json **ret_messages, struct error *error)
{
    struct json_writer writer;
    const struct json_bounds bounds = {.bytes_max = SIZE_MAX, .depth_max = 8};
    size_t room =
        MESSAGES_ROOM + ESCAPED_MAX * (strlen(pair->query) + strlen(pair->document) +
                                       (pair->instruction ? strlen(pair->instruction) : 0));
    char *text = malloc(room);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "no memory for a pair of texts");
    json_writer_init(&writer, text, room);
    json_open(&writer, NULL, '[');
    if (pair->instruction)
        put_message(&writer, "system", pair->instruction);
    put_message(&writer, "query", pair->query);
    put_message(&writer, "document", pair->document);
    json_close(&writer, ']');
    int rc = json_parse(text, writer.used, bounds, ret_messages, error);
    free(text);
    return rc;
}

int pair_form_render(const struct model_text *model_text, const struct pair *pair,
                     const struct halt *halt, char **ret_text, size_t *ret_length,
                     struct error *error)
{
    const struct pair_form *form = &model_text->pairs;
    struct pair whole = *pair;
    json *messages;
    struct chat_limits limits = CHAT_LIMITS;
    if (!whole.instruction)
        whole.instruction = form->instruction;
    int rc = make_messages(&whole, &messages, error);
    if (rc)
        return rc;
    const struct chat_input input = {
        .messages = messages,
        .bos_token = model_text->bos_token[0] ? model_text->bos_token : NULL,
        .eos_token = model_text->eos_token[0] ? model_text->eos_token : NULL,
        .add_generation_prompt = true,
        .now = time(NULL),
    };
    limits.halt = halt;
    rc = chat_template_render(form->given ? form->given : model_text->chat, &input, &limits,
                              ret_text, ret_length, error);
    json_free(messages);
    return rc;
}
