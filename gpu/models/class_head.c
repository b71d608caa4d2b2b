#include "gpu/models/class_head.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/checkpoint/checkpoint.h"
#include "gpu/checkpoint/config_field.h"
#include "gpu/checkpoint/file.h"
#include "gpu/checkpoint/number.h"
#include "gpu/models/config.h"

#define WEIGHT "score.weight"
#define BIAS "score.bias"
#define TORCH "torch.nn.modules."
#define LABEL_MAX 255 /* bytes of its name */

/* ---- config.json -------------------------------------------------------------------------------
 */

/* As transformers has it: as many classes as id2label has names, else num_labels, else two. */
static int count_labels(const struct fields *fields, struct class_head *head)
{
    const json *names = field_get(fields, "id2label");
    head->labels = 2;
    if (!names)
        return field_size(fields, "num_labels", CLASS_LABELS_MAX, &head->labels);
    if (!json_is_object(names) || json_count(names) == 0 || json_count(names) > CLASS_LABELS_MAX)
        return field_refuse(fields, "id2label", names, "an object of 1 to 4096 names");
    head->labels = (uint32_t)json_count(names);
    return 0;
}

static int name_labels(const struct fields *fields, struct class_head *head)
{
    const json *names = field_get(fields, "id2label");
    head->names = calloc(head->labels, sizeof(*head->names));
    if (!head->names)
        return error_set(fields->error, ERR_NO_MEMORY, "no memory for %u names", head->labels);
    for (uint32_t i = 0; i < head->labels; i++) {
        char number[16], name[LABEL_MAX + 1];
        snprintf(number, sizeof(number), "%u", i);
        const json *given = json_get(names, number);
        if (names && (!json_is_string(given) || strlen(json_string(given)) > LABEL_MAX))
            return error_set(fields->error, ERR_BAD_MODEL,
                             "%s: id2label: %s has no name of at most %d bytes", fields->file,
                             number, LABEL_MAX);
        snprintf(name, sizeof(name), "%s%s", names ? "" : "LABEL_",
                 names ? json_string(given) : number);
        head->names[i] = strdup(name);
        if (!head->names[i])
            return error_set(fields->error, ERR_NO_MEMORY, "no memory for a name");
    }
    return 0;
}

static int read_problem(const struct fields *fields, struct class_head *head)
{
    const char *problem = "";
    head->function = head->labels == 1 ? CLASS_SIGMOID : CLASS_SOFTMAX;
    int rc = field_string(fields, "problem_type", &problem);
    if (rc)
        return rc;
    if (!strcmp(problem, "regression"))
        head->function = CLASS_IDENTITY;
    else if (!strcmp(problem, "multi_label_classification"))
        head->function = CLASS_SIGMOID;
    else if (*problem && strcmp(problem, "single_label_classification") != 0)
        return field_refuse(fields, "problem_type", field_get(fields, "problem_type"),
                            "supported (regression, single_label_classification and "
                            "multi_label_classification are)");
    return 0;
}

/* In either of the places where sentence-transformers has written it. */
static int read_activation(const struct fields *fields, struct class_head *head)
{
    static const char *const old = "sbert_ce_default_activation_function";
    struct fields own = {field_get(fields, "sentence_transformers"), fields->file,
                         "sentence_transformers", fields->error};
    bool newer = json_is_object(own.object) && field_get(&own, "activation_fn");
    const struct fields *from = newer ? &own : fields;
    const char *key = newer ? "activation_fn" : old, *name = TORCH "activation.Sigmoid";
    int rc = field_string(from, key, &name);
    if (rc)
        return rc;
    if (!strcmp(name, TORCH "activation.Sigmoid"))
        head->pair_function = CLASS_SIGMOID;
    else if (!strcmp(name, TORCH "linear.Identity"))
        head->pair_function = CLASS_IDENTITY;
    else
        return field_refuse(from, key, field_get(from, key),
                            "supported (" TORCH "activation.Sigmoid and " TORCH
                            "linear.Identity are)");
    return 0;
}

static int read_settings(const char *directory, struct class_head *head, struct error *error)
{
    const struct json_bounds bounds = {.bytes_max = MODEL_CONFIG_BYTES_MAX, .depth_max = 16};
    char *text;
    size_t length;
    json *document = NULL;
    int rc = file_text(directory, "config.json", MODEL_CONFIG_BYTES_MAX, &text, &length, error);
    if (rc)
        return rc;
    rc = json_parse(text, length, bounds, &document, error);
    free(text);
    const struct fields fields = {document, "config.json", NULL, error};
    if (!rc)
        rc = count_labels(&fields, head);
    if (!rc)
        rc = name_labels(&fields, head);
    if (!rc)
        rc = read_problem(&fields, head);
    if (!rc)
        rc = read_activation(&fields, head);
    json_free(document);
    return rc;
}

/* ---- the weights -------------------------------------------------------------------------------
 */

static int read_rows(const struct checkpoint *checkpoint, struct class_head *head,
                     struct error *error)
{
    const struct checkpoint_tensor *tensor = checkpoint_tensor(checkpoint, 0);
    size_t count = (size_t)head->labels * head->hidden;
    void *raw = malloc(tensor->bytes);
    head->weights = malloc(count * sizeof(*head->weights));
    int rc = raw && head->weights
                 ? checkpoint_read(checkpoint, tensor, 0, tensor->bytes, raw, error)
                 : error_set(error, ERR_NO_MEMORY, "no memory for " WEIGHT);
    if (!rc)
        number_read(head->weights, raw, tensor->dtype, count);
    free(raw);
    for (size_t i = 0; !rc && i < count; i++)
        if (!isfinite(head->weights[i]))
            rc = error_set(error, ERR_BAD_MODEL, WEIGHT ": an element is no finite number");
    return rc;
}

static int read_weights(const char *directory, struct class_head *head, struct error *error)
{
    const struct checkpoint_wanted wanted = {
        .name = WEIGHT, .shape = {.rank = 2, .rows = head->labels, .columns = head->hidden}};
    struct checkpoint *checkpoint;
    if ((uint64_t)head->labels * head->hidden > CLASS_WEIGHTS_MAX)
        return error_set(error, ERR_BAD_MODEL,
                         "config.json: %u classes by a hidden size of %u are more than %u weights",
                         head->labels, head->hidden, CLASS_WEIGHTS_MAX);
    int rc = checkpoint_open(directory, &checkpoint, error);
    if (rc)
        return rc;
    if (checkpoint_has(checkpoint, BIAS))
        rc = error_set(error, ERR_BAD_MODEL, BIAS " is not supported: heads have a matrix alone");
    if (!rc)
        rc = checkpoint_match(checkpoint, &wanted, 1, NULL, error);
    if (!rc)
        rc = read_rows(checkpoint, head, error);
    checkpoint_close(checkpoint);
    return rc;
}

int class_head_load(const char *directory, struct class_head *ret, struct error *error)
{
    struct class_head head = {0};
    struct model_config *config = malloc(sizeof(*config));
    if (!config)
        return error_set(error, ERR_NO_MEMORY, "no memory for a config");
    int rc = model_config_load(directory, config, error);
    bool classifies = !rc && config->classifies;
    head.hidden = rc ? 0 : config->hidden;
    free(config);
    if (rc == -ERR_BAD_MODEL)
        rc = 0;
    if (classifies)
        rc = read_settings(directory, &head, error);
    if (!rc && classifies)
        rc = read_weights(directory, &head, error);
    if (rc)
        class_head_free(&head);
    else
        *ret = head;
    return rc;
}

void class_head_free(struct class_head *head)
{
    for (uint32_t i = 0; head->names && i < head->labels; i++)
        free(head->names[i]);
    free(head->names);
    free(head->weights);
    *head = (struct class_head){0};
}

/* ---- values ------------------------------------------------------------------------------------
 */

void class_head_values(const struct class_head *head, const float *hidden, double *ret_values)
{
    for (uint32_t label = 0; label < head->labels; label++) {
        const float *row = head->weights + (size_t)label * head->hidden;
        double sum = 0;
        for (uint32_t i = 0; i < head->hidden; i++)
            sum += (double)row[i] * (double)hidden[i];
        ret_values[label] = sum;
    }
}

static void softmax(double *values, uint32_t count)
{
    double most = values[0], sum = 0;
    for (uint32_t i = 1; i < count; i++)
        most = values[i] > most ? values[i] : most;
    for (uint32_t i = 0; i < count; i++)
        sum += values[i] = exp(values[i] - most);
    for (uint32_t i = 0; i < count; i++)
        values[i] /= sum;
}

void class_head_apply(enum class_function function, double *values, uint32_t count)
{
    if (function == CLASS_SOFTMAX)
        softmax(values, count);
    for (uint32_t i = 0; function == CLASS_SIGMOID && i < count; i++)
        values[i] = 1 / (1 + exp(-values[i]));
}
