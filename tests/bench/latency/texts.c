#include "tests/bench/latency/texts.h"

#include <stdio.h>
#include <stdlib.h>

struct text {
    int32_t *tokens;
    struct prefix_key *keys;
};

static void *must(void *memory)
{
    if (memory)
        return memory;
    fprintf(stderr, "no memory\n");
    exit(2);
}

/* As far as the last prompt: an answer behind it is nobody's beginning. */
static struct text text_make(const struct texts *texts, uint32_t session)
{
    const struct load *load = texts->load;
    uint32_t block = texts->model->block_tokens;
    uint32_t count = load->arrivals[session * load->turns + load->turns - 1].prompt;
    struct text text = {.tokens = must(calloc(count, sizeof(*text.tokens))),
                        .keys = must(calloc(count / block + 1u, sizeof(*text.keys)))};
    load_text(session, count, text.tokens);
    prefix_keys(texts->root, text.tokens, count, block, text.keys);
    return text;
}

static uint32_t sessions_of(const struct load *load)
{
    return load->turns > 0 ? load->count / load->turns : 0;
}

struct texts texts_make(const struct load *load, const struct gpu_model *model)
{
    struct texts texts = {.load = load, .model = model};
    uint32_t sessions = sessions_of(load);
    if (sessions == 0)
        return texts;
    texts.root = prefix_key_root(model, 1, 0, PREFIX_GIVEN, "", 0);
    texts.of = must(calloc(sessions, sizeof(*texts.of)));
    for (uint32_t i = 0; i < sessions; i++)
        texts.of[i] = text_make(&texts, i);
    return texts;
}

void texts_free(struct texts *texts)
{
    for (uint32_t i = 0; texts->of && i < sessions_of(texts->load); i++) {
        free(texts->of[i].tokens);
        free(texts->of[i].keys);
    }
    free(texts->of);
    texts->of = NULL;
}

const struct prefix_key *texts_keys(const struct texts *texts, uint32_t number, uint32_t *ret_count)
{
    *ret_count = 0;
    if (!texts->of)
        return NULL;
    *ret_count = texts->load->arrivals[number].prompt / texts->model->block_tokens;
    return texts->of[number / texts->load->turns].keys;
}

bool texts_give(const struct texts *texts, uint32_t number, struct seq *seq)
{
    uint32_t most = seq->prompt_len + seq->sampling.max_tokens;
    if (!texts->of)
        return false;
    seq->caches = true;
    seq->prompt = texts->of[number / texts->load->turns].tokens;
    seq->key_root = texts->root;
    seq->keys = texts_keys(texts, number, &seq->key_count);
    seq->out_key_count = (most - 1) / texts->model->block_tokens - seq->key_count;
    seq->out_keys = must(calloc(seq->out_key_count + 1u, sizeof(*seq->out_keys)));
    seq->out_tokens = must(calloc(seq->sampling.max_tokens, sizeof(*seq->out_tokens)));
    return true;
}

void texts_take(struct seq *seq)
{
    free(seq->out_keys);
    free(seq->out_tokens);
}
