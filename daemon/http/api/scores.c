/* /v1/rerank and /v1/score: pairs of texts, scored by the model's head or by whether it would say
 * yes or no (daemon/request/pair_form.h); /classify: what a head of classes says of texts. In
 * vLLM's forms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/http/answer.h"
#include "daemon/http/api/api.h"
#include "daemon/request/server.h"

static const struct class_head *head_of(const struct exchange *exchange)
{
    return &exchange->model->text->head;
}

/* What both have of the whole vocabulary is the same, and goes: the probability is the softmax over
 * the two. */
static double score_of(const struct exchange *exchange, uint32_t index)
{
    if (head_of(exchange)->labels > 0)
        return pair_form_head_score(exchange->model->text,
                                    exchange->request->seqs[index].out_rows,
                                    exchange->query.pairs.log_odds);
    const struct message_score *scores = exchange->request->seqs[index].out_scores;
    double odds = (double)scores[PAIR_YES].logprob - (double)scores[PAIR_NO].logprob;
    return exchange->query.pairs.log_odds ? odds : 1 / (1 + exp(-odds));
}

/* The best first; of equal ones, as they came. */
static int compare(const void *left, const void *right)
{
    const struct query_ranked *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->index < b->index ? -1 : 1;
}

static void put_ranked(struct json_writer *writer, const struct exchange *exchange,
                       const struct query_ranked *ranked)
{
    const struct query_prompt *document = &exchange->query.prompts[ranked->index];
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", ranked->index);
    if (!exchange->query.pairs.no_documents) {
        json_open(writer, "document", '{');
        json_put_string(writer, "text", document->text, document->length);
        json_close(writer, '}');
    }
    json_put_double(writer, "relevance_score", ranked->score);
    json_close(writer, '}');
}

static void put_results(struct json_writer *writer, const struct exchange *exchange)
{
    struct query_ranked *ranked = exchange->query.pairs.ranked;
    uint32_t count = exchange->request->seq_count, top = exchange->query.pairs.top_n;
    for (uint32_t i = 0; i < count; i++)
        ranked[i] = (struct query_ranked){.index = i, .score = score_of(exchange, i)};
    qsort(ranked, count, sizeof(*ranked), compare);
    json_open(writer, "results", '[');
    for (uint32_t i = 0; i < count && (top == 0 || i < top); i++)
        put_ranked(writer, exchange, &ranked[i]);
    json_close(writer, ']');
}

static void put_id(struct json_writer *writer, const struct exchange *exchange, const char *prefix)
{
    char id[64];
    snprintf(id, sizeof(id), "%s-%s", prefix, exchange->answer_id);
    json_put_text(writer, "id", id);
}

static void put_ranking(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    json_open(writer, NULL, '{');
    put_id(writer, exchange, "rerank");
    json_put_text(writer, "model", lookup_called(exchange));
    answer_put_usage(writer, exchange);
    put_results(writer, exchange);
    json_close(writer, '}');
}

static void put_scores(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    json_open(writer, NULL, '{');
    put_id(writer, exchange, "score");
    json_put_text(writer, "object", "list");
    json_put_uint(writer, "created", exchange->created_s);
    json_put_text(writer, "model", lookup_called(exchange));
    json_open(writer, "data", '[');
    for (uint32_t i = 0; i < exchange->request->seq_count; i++) {
        json_open(writer, NULL, '{');
        json_put_uint(writer, "index", i);
        json_put_text(writer, "object", "score");
        json_put_double(writer, "score", score_of(exchange, i));
        json_close(writer, '}');
    }
    json_close(writer, ']');
    answer_put_usage(writer, exchange);
    json_close(writer, '}');
}

static void put_class(struct json_writer *writer, const struct exchange *exchange, uint32_t index,
                      double *values)
{
    const struct class_head *head = head_of(exchange);
    uint32_t best = 0;
    model_text_classes(exchange->model->text, exchange->request->seqs[index].out_rows,
                       exchange->query.pairs.log_odds, values);
    for (uint32_t i = 1; i < head->labels; i++)
        best = values[i] > values[best] ? i : best;
    json_open(writer, NULL, '{');
    json_put_uint(writer, "index", index);
    json_put_text(writer, "label", head->names[best]);
    json_open(writer, "probs", '[');
    for (uint32_t i = 0; i < head->labels; i++)
        json_put_double(writer, NULL, values[i]);
    json_close(writer, ']');
    json_put_uint(writer, "num_classes", head->labels);
    json_close(writer, '}');
}

static void put_classes(struct json_writer *writer, const void *context)
{
    const struct exchange *exchange = context;
    double values[CLASS_LABELS_MAX];
    json_open(writer, NULL, '{');
    put_id(writer, exchange, "classify");
    json_put_text(writer, "object", "list");
    json_put_uint(writer, "created", exchange->created_s);
    json_put_text(writer, "model", lookup_called(exchange));
    json_open(writer, "data", '[');
    for (uint32_t i = 0; i < exchange->request->seq_count; i++)
        put_class(writer, exchange, i, values);
    json_close(writer, ']');
    answer_put_usage(writer, exchange);
    json_close(writer, '}');
}

const struct api api_rerank = {.whole = put_ranking};
const struct api api_score = {.whole = put_scores};
const struct api api_classify = {.whole = put_classes};

/* Two texts without a template have no place for it. */
static int check_instruction(const struct exchange *exchange, struct error *error)
{
    const struct model_text *model_text = exchange->model->text;
    if (!exchange->query.pairs.instruction || pair_form_asks(model_text))
        return 0;
    return error_set(error, ERR_UNSUPPORTED,
                     "instruction: no template makes a prompt of it and both texts "
                     "(score-template)");
}

void scores_begin(struct exchange *exchange, time_us now_us)
{
    struct error error;
    if (pair_form_check(exchange->model->text, &error))
        exchange_refuse(exchange, &error, "");
    else if (check_instruction(exchange, &error))
        exchange_refuse(exchange, &error, "instruction");
    else
        generate_begin(exchange, now_us);
}

void classify_begin(struct exchange *exchange, time_us now_us)
{
    struct error error;
    if (model_text_classifies(exchange->model->text, &error))
        exchange_refuse(exchange, &error, "");
    else
        generate_begin(exchange, now_us);
}
