#include "tests/hostile/canary.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "client/sluice.h"
#include "gpu/kernels/step/null_rule.h"
#include "tests/sim/chance.h"

#define PROMPT_MAX 40u
#define OUT_MAX 12u
#define ANSWER_MS 20000

/* One question and what came of it. */
struct song {
    int32_t prompt[PROMPT_MAX];
    uint32_t prompt_len, max_tokens;
    int32_t tokens[OUT_MAX];
    uint32_t count;
    bool too_many;
    int finish;
    sluice_error error;
};

static void take_tokens(void *context, uint32_t sequence, const sluice_piece *piece)
{
    struct song *song = context;
    (void)sequence;
    for (size_t i = 0; i < piece->count; i++) {
        if (song->count < OUT_MAX)
            song->tokens[song->count++] = piece->tokens[i];
        else
            song->too_many = true;
    }
}

static void take_end(void *context, uint32_t sequence, const sluice_end *end)
{
    struct song *song = context;
    (void)sequence;
    song->finish = end->finish;
    song->error = end->error;
}

static void draw(struct song *song, uint64_t *random)
{
    memset(song, 0, sizeof(*song));
    song->finish = -1;
    song->prompt_len = chance_between(random, 1, PROMPT_MAX);
    song->max_tokens = chance_between(random, 1, OUT_MAX);
    for (uint32_t i = 0; i < song->prompt_len; i++)
        song->prompt[i] = (int32_t)chance_below(random, NULL_END);
}

static const char *judge(const struct song *song)
{
    uint64_t state = NULL_START;
    for (uint32_t i = 0; i < song->prompt_len; i++)
        state = null_state(state, song->prompt[i]);
    for (uint32_t i = 0; i < song->count; i++) {
        if (song->tokens[i] != null_sample(state, true))
            return "a wrong token";
        state = null_state(state, song->tokens[i]);
    }
    bool stopped = song->count > 0 && song->tokens[song->count - 1] == NULL_END;
    if (song->too_many || (!stopped && song->count != song->max_tokens))
        return "too many tokens, or too few";
    if (song->finish != (stopped ? SLUICE_FINISH_STOP : SLUICE_FINISH_LENGTH))
        return "another end than the rule's";
    return NULL;
}

static void take_song(struct song *song, const struct canary_song *known)
{
    memset(song, 0, sizeof(*song));
    song->finish = -1;
    song->prompt_len = known->prompt_len;
    song->max_tokens = known->answer_len + 1;
    memcpy(song->prompt, known->prompt, known->prompt_len * sizeof(*known->prompt));
}

static const char *compare(const struct song *song, const struct canary_song *known)
{
    if (song->finish != SLUICE_FINISH_STOP || song->count < known->answer_len)
        return "another end than the known one";
    return memcmp(song->tokens, known->answer, known->answer_len * sizeof(*known->answer))
               ? "a wrong token"
               : NULL;
}

static bool sing(struct canary *canary, sluice_client *client, uint64_t *random)
{
    struct song song;
    sluice_params params;
    sluice_batch batch;
    if (canary->song)
        take_song(&song, canary->song);
    else
        draw(&song, random);
    sluice_params_init(&params);
    sluice_batch_init(&batch);
    params.max_tokens = song.max_tokens;
    const sluice_prompt prompt = {
        .tokens = song.prompt, .token_count = song.prompt_len, .params = &params};
    batch.prompts = &prompt;
    batch.prompt_count = 1;
    batch.stream = (int)chance_below(random, 2);
    batch.callbacks = (sluice_callbacks){.tokens = take_tokens, .end = take_end};
    batch.context = &song;
    int rc = sluice_run(client, &batch, ANSWER_MS);
    const char *wrong = canary->song ? compare(&song, canary->song) : judge(&song);
    if (rc)
        snprintf(canary->wrong, sizeof(canary->wrong), "%s",
                 song.finish == SLUICE_FINISH_ERROR ? song.error.text
                                                    : sluice_client_error(client)->text);
    else if (wrong)
        snprintf(canary->wrong, sizeof(canary->wrong), "%s", wrong);
    return canary->wrong[0] == '\0';
}

static void *thread_main(void *argument)
{
    struct canary *canary = argument;
    uint64_t random = canary->seed;
    sluice_client *client = NULL;
    sluice_error error;
    if (sluice_connect(canary->socket, ANSWER_MS, &client, &error)) {
        snprintf(canary->wrong, sizeof(canary->wrong), "%.500s", error.text);
        return NULL;
    }
    while (!atomic_load(&canary->stop) && sing(canary, client, &random))
        atomic_fetch_add(&canary->answers, 1);
    sluice_close(client);
    atomic_store(&canary->stop, true);
    return NULL;
}

void canary_start(struct canary *canary, const char *socket, uint64_t seed,
                  const struct canary_song *song)
{
    memset(canary, 0, sizeof(*canary));
    snprintf(canary->socket, sizeof(canary->socket), "%s", socket);
    canary->seed = seed;
    canary->song = song;
    if (pthread_create(&canary->thread, NULL, thread_main, canary) != 0) {
        snprintf(canary->wrong, sizeof(canary->wrong), "no thread");
        atomic_store(&canary->stop, true);
    }
}

bool canary_sings(struct canary *canary, uint64_t further)
{
    uint64_t want = atomic_load(&canary->answers) + further;
    while (!atomic_load(&canary->stop) && atomic_load(&canary->answers) < want)
        poll(NULL, 0, 1);
    return atomic_load(&canary->answers) >= want;
}

void canary_stop(struct canary *canary)
{
    atomic_store(&canary->stop, true);
    pthread_join(canary->thread, NULL);
}
