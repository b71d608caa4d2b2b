#include "protocol/message_sampling.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/head.h"

#define UNSET_INT INT32_MIN
#define UNSET_UINT UINT32_MAX
#define BIAS_GREATEST 100.0

enum kind { REAL, POSITIVE, INT, UINT }; /* POSITIVE: above its least value, not at it */

/* The fields with a number and fixed bounds. */
struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    double min, max;
};

#define FIELD(name, kind, min, max)                                                                \
    {                                                                                              \
#name, kind, offsetof(struct sampling, name), min, max                                     \
    }
#define SAMPLER(name, kind, min, max)                                                              \
    {                                                                                              \
#name, kind, offsetof(struct sampling, sampler.name), min, max                             \
    }

static const struct field fields[] = {
    FIELD(max_tokens, UINT, 0, INT32_MAX),
    SAMPLER(temperature, REAL, 0, 100),
    SAMPLER(top_p, POSITIVE, 0, 1),
    SAMPLER(top_k, INT, 0, INT32_MAX),
    SAMPLER(min_p, REAL, 0, 1),
    SAMPLER(repetition_penalty, POSITIVE, 0, 100),
    SAMPLER(presence_penalty, REAL, -100, 100),
    SAMPLER(frequency_penalty, REAL, -100, 100),
    FIELD(min_tokens, UINT, 0, INT32_MAX),
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static bool is_real(const struct field *field)
{
    return field->kind == REAL || field->kind == POSITIVE;
}

/* The bounds of all REAL fields are whole, and so is what the text says. */
static int read_real(const json *value, const struct field *field, float *ret, struct error *error)
{
    double number = json_number(value);
    if (!json_is_number(value))
        return error_set(error, ERR_BAD_VALUE, "%s is not a number", field->name);
    if (number < field->min || number > field->max ||
        (field->kind == POSITIVE && !((float)number > field->min)))
        return error_set(error, ERR_BAD_VALUE, "%s must be %s %d and at most %d", field->name,
                         field->kind == POSITIVE ? "above" : "at least", (int)field->min,
                         (int)field->max);
    *ret = (float)number;
    return 0;
}

static int read_field(const json *value, const struct field *field, struct sampling *sampling,
                      struct error *error)
{
    char *place = (char *)sampling + field->offset;
    if (is_real(field))
        return read_real(value, field, (float *)(void *)place, error);
    int64_t number;
    int rc =
        json_integer(value, field->name, (int64_t)field->min, (int64_t)field->max, &number, error);
    if (rc)
        return rc;
    int32_t narrow = (int32_t)number; /* the same bits in both kinds: no bound is above INT32_MAX */
    memcpy(place, &narrow, sizeof(narrow));
    return 0;
}

/* Over a limit of the daemon, not of the field: that has its own code and both numbers. */
static int read_limited(const json *value, const char *name, int64_t min, uint32_t limit,
                        int64_t *ret, struct error *error)
{
    int64_t number;
    int rc = json_integer(value, name, min, INT32_MAX, &number, error);
    if (rc)
        return rc;
    if (number > (int64_t)limit)
        return error_limit(error, ERR_TOO_LARGE, limit, (uint64_t)number,
                           "%s is %lld, at most %u is accepted", name, (long long)number, limit);
    *ret = number;
    return 0;
}

static int check_list(const json *list, const char *name, size_t max, struct error *error)
{
    if (!json_is_array(list))
        return error_set(error, ERR_BAD_VALUE, "%s is not a list", name);
    size_t count = json_count(list);
    if (count > max)
        return error_limit(error, ERR_TOO_LARGE, max, count,
                           "%s has %zu entries, at most %zu are accepted", name, count, max);
    return 0;
}

static int read_stop(const json *list, const struct message_limits *limits,
                     struct message_prompt *prompt, struct error *error)
{
    uint32_t max = limits->stop_max < MESSAGE_STOP_MAX ? limits->stop_max : MESSAGE_STOP_MAX;
    uint32_t count = 0;
    int rc = check_list(list, "stop", max, error);
    if (rc)
        return rc;
    for (const json *item = json_child(list); item; item = json_next(item), count++) {
        size_t length = strlen(json_string(item));
        if (!json_is_string(item) || length == 0)
            return error_set(error, ERR_BAD_VALUE, "stop has an entry that is empty or no string");
        if (length > MESSAGE_STOP_BYTES_MAX)
            return error_limit(error, ERR_TOO_LARGE, MESSAGE_STOP_BYTES_MAX, length,
                               "stop has an entry of %zu bytes, at most %d are accepted", length,
                               MESSAGE_STOP_BYTES_MAX);
        prompt->stop[count] = json_string(item);
        prompt->stop_length[count] = (uint32_t)length;
    }
    prompt->stop_count = count;
    return 0;
}

/* The greatest token id, also where the vocabulary is not known. */
static int64_t token_max(uint32_t vocabulary)
{
    return vocabulary > 0 && vocabulary <= INT32_MAX ? (int64_t)vocabulary - 1 : INT32_MAX;
}

static int read_stop_ids(const json *list, const struct message_limits *limits,
                         struct message_prompt *prompt, struct error *error)
{
    uint32_t count = 0;
    int rc = check_list(list, "stop_token_ids", MESSAGE_STOP_IDS_MAX, error);
    if (rc)
        return rc;
    for (const json *item = json_child(list); item; item = json_next(item), count++) {
        int64_t id;
        if (json_integer(item, "stop_token_ids", 0, token_max(limits->vocabulary), &id, NULL))
            return error_set(error, ERR_BAD_TOKEN,
                             "stop_token_ids has an entry that is no token of the vocabulary");
        prompt->stop_ids[count] = (int32_t)id;
    }
    prompt->stop_id_count = count;
    return 0;
}

static int read_bias(const json *bias, struct message_prompt *prompt, struct error *error)
{
    if (!json_is_object(bias))
        return error_set(error, ERR_BAD_VALUE, "logit_bias is not an object");
    size_t count = json_count(bias);
    if (count > MESSAGE_BIAS_MAX)
        return error_limit(error, ERR_TOO_LARGE, MESSAGE_BIAS_MAX, count,
                           "logit_bias has %zu entries, at most %d are accepted", count,
                           MESSAGE_BIAS_MAX);
    prompt->bias = bias;
    return 0;
}

/* The fields that are no plain number. */
static int read_other(const json *member, const struct message_limits *limits,
                      struct message_prompt *prompt, bool *ret_known, struct error *error)
{
    struct sampling *sampling = &prompt->sampling;
    const char *name = json_key(member);
    int64_t number;
    int rc;
    *ret_known = true;
    if (strcmp(name, "seed") == 0) {
        rc = json_integer(member, name, 0, (int64_t)HEAD_INTEGER_MAX, &number, error);
        if (!rc) {
            sampling->seed = (uint64_t)number;
            sampling->seed_given = true;
        }
        return rc;
    }
    if (strcmp(name, "logprobs") == 0) {
        uint32_t max = limits->logprobs_max < MESSAGE_LOGPROBS_MAX ? limits->logprobs_max
                                                                   : MESSAGE_LOGPROBS_MAX;
        rc = read_limited(member, name, -1, max, &number, error);
        if (!rc)
            sampling->logprobs = (int32_t)number;
        return rc;
    }
    if (strcmp(name, "n") == 0) {
        uint32_t max = limits->n_max < MESSAGE_N_MAX ? limits->n_max : MESSAGE_N_MAX;
        rc = read_limited(member, name, 1, max, &number, error);
        if (!rc)
            sampling->n = (uint32_t)number;
        return rc;
    }
    if (strcmp(name, "ignore_eos") == 0)
        return head_bool(member, name, &sampling->ignore_eos, error);
    if (strcmp(name, "stop") == 0)
        return read_stop(member, limits, prompt, error);
    if (strcmp(name, "stop_token_ids") == 0)
        return read_stop_ids(member, limits, prompt, error);
    if (strcmp(name, "logit_bias") == 0)
        return read_bias(member, prompt, error);
    *ret_known = false;
    return 0;
}

int sampling_read(const json *member, const struct message_limits *limits,
                  struct message_prompt *prompt, bool *ret_known, struct error *error)
{
    for (size_t i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].name, json_key(member)) == 0) {
            *ret_known = true;
            return read_field(member, &fields[i], &prompt->sampling, error);
        }
    return read_other(member, limits, prompt, ret_known, error);
}

int sampling_check(const struct sampling *sampling, struct error *error)
{
    if (sampling->max_tokens > 0 && sampling->min_tokens > sampling->max_tokens)
        return error_limit(error, ERR_BAD_VALUE, sampling->max_tokens, sampling->min_tokens,
                           "min_tokens is %u, above max_tokens, which is %u", sampling->min_tokens,
                           sampling->max_tokens);
    return 0;
}

/* A token id as a key: digits alone and no zero before them, so that equal ids are equal keys. */
static bool read_token_key(const char *key, uint32_t vocabulary, int32_t *ret)
{
    size_t length = strlen(key);
    if (length == 0 || length > 10 || (key[0] == '0' && length > 1))
        return false;
    for (const char *c = key; *c; c++)
        if (!isdigit((unsigned char)*c))
            return false;
    long long token = strtoll(key, NULL, 10);
    if (token > token_max(vocabulary))
        return false;
    *ret = (int32_t)token;
    return true;
}

int message_bias(const json *bias, uint32_t vocabulary, struct message_bias *entries, uint32_t max,
                 uint32_t *ret_count, struct error *error)
{
    size_t given = json_count(bias);
    uint32_t count = 0;
    if (given > max)
        return error_limit(error, ERR_TOO_LARGE, max, given,
                           "logit_bias has %zu entries, at most %u are accepted", given, max);
    for (const json *item = json_child(bias); item; item = json_next(item), count++) {
        double value = json_number(item);
        if (!read_token_key(json_key(item), vocabulary, &entries[count].token))
            return error_set(error, ERR_BAD_TOKEN,
                             "logit_bias has a key that is no token of the vocabulary");
        if (!json_is_number(item) || !(fabs(value) <= BIAS_GREATEST))
            return error_set(error, ERR_BAD_VALUE, "logit_bias has a value that is not within %d",
                             (int)BIAS_GREATEST);
        entries[count].value = (float)value;
    }
    *ret_count = count;
    return 0;
}

struct sampling sampling_unset(void)
{
    struct sampling sampling = {.logprobs = UNSET_INT};
    for (size_t i = 0; i < FIELDS; i++) {
        const float real = NAN;
        const int32_t number = fields[i].kind == UINT ? (int32_t)UNSET_UINT : UNSET_INT;
        char *place = (char *)&sampling + fields[i].offset;
        memcpy(place, is_real(&fields[i]) ? (const void *)&real : &number, sizeof(number));
    }
    return sampling;
}

static void write_field(struct json_writer *writer, const struct field *field,
                        const struct sampling *sampling)
{
    const char *place = (const char *)sampling + field->offset;
    float real;
    int32_t number;
    memcpy(&real, place, sizeof(real));
    memcpy(&number, place, sizeof(number));
    switch (field->kind) {
    case REAL:
    case POSITIVE:
        if (!isnan(real))
            json_put_double(writer, field->name, (double)real);
        break;
    case INT:
        if (number != UNSET_INT)
            json_put_int(writer, field->name, number);
        break;
    case UINT:
        if ((uint32_t)number != UNSET_UINT)
            json_put_uint(writer, field->name, (uint32_t)number);
        break;
    }
}

static void write_lists(struct json_writer *writer, const struct message_prompt *prompt,
                        const struct message_bias *bias, uint32_t bias_count)
{
    if (prompt->stop_count > 0) {
        json_open(writer, "stop", '[');
        for (uint32_t i = 0; i < prompt->stop_count; i++)
            json_put_string(writer, NULL, prompt->stop[i], prompt->stop_length[i]);
        json_close(writer, ']');
    }
    if (prompt->stop_id_count > 0) {
        json_open(writer, "stop_token_ids", '[');
        for (uint32_t i = 0; i < prompt->stop_id_count; i++)
            json_put_int(writer, NULL, prompt->stop_ids[i]);
        json_close(writer, ']');
    }
    if (bias_count > 0) {
        json_open(writer, "logit_bias", '{');
        for (uint32_t i = 0; i < bias_count; i++) {
            char key[16];
            snprintf(key, sizeof(key), "%d", bias[i].token);
            json_put_double(writer, key, (double)bias[i].value);
        }
        json_close(writer, '}');
    }
}

void sampling_write(struct json_writer *writer, const struct message_prompt *prompt,
                    const struct message_bias *bias, uint32_t bias_count)
{
    const struct sampling *sampling = &prompt->sampling;
    for (size_t i = 0; i < FIELDS; i++)
        write_field(writer, &fields[i], sampling);
    if (sampling->seed_given)
        json_put_uint(writer, "seed", sampling->seed);
    if (sampling->ignore_eos)
        json_put_bool(writer, "ignore_eos", true);
    if (sampling->logprobs != UNSET_INT)
        json_put_int(writer, "logprobs", sampling->logprobs);
    if (sampling->n > 0)
        json_put_uint(writer, "n", sampling->n);
    write_lists(writer, prompt, bias, bias_count);
}

static bool same_real(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool sampling_equal(const struct message_prompt *a, const struct message_prompt *b)
{
    const struct sampling *x = &a->sampling, *y = &b->sampling;
    for (size_t i = 0; i < FIELDS; i++) {
        const char *left = (const char *)x + fields[i].offset;
        const char *right = (const char *)y + fields[i].offset;
        if (is_real(&fields[i]) ? !same_real(*(const float *)(const void *)left,
                                             *(const float *)(const void *)right)
                                : memcmp(left, right, sizeof(int32_t)) != 0)
            return false;
    }
    if (x->seed_given != y->seed_given || (x->seed_given && x->seed != y->seed) ||
        x->ignore_eos != y->ignore_eos || x->logprobs != y->logprobs || x->n != y->n)
        return false;
    if (a->stop_count != b->stop_count || a->stop_id_count != b->stop_id_count ||
        memcmp(a->stop_ids, b->stop_ids, a->stop_id_count * sizeof(a->stop_ids[0])) != 0)
        return false;
    for (uint32_t i = 0; i < a->stop_count; i++)
        if (a->stop_length[i] != b->stop_length[i] ||
            memcmp(a->stop[i], b->stop[i], a->stop_length[i]) != 0)
            return false;
    return true;
}
