#include "daemon/request/constraint_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/api_key.h"
#include "daemon/base/buffer.h"
#include "daemon/constrain/constraint.h"
#include "daemon/constrain/structure.h"
#include "daemon/text/tokenizer.h"
#include "gpu/gpu.h"
#include "protocol/base/list.h"

_Static_assert(MESSAGE_CONSTRAINT_STRUCTURE - 1 == CONSTRAINT_STRUCTURE &&
                   MESSAGE_CONSTRAINT_GRAMMAR - 1 == CONSTRAINT_GRAMMAR &&
                   MESSAGE_CONSTRAINT_JSON - 1 == CONSTRAINT_JSON,
               "the message's kinds are the engine's, and none");

struct entry {
    struct list link;
    struct constraint_held *held; /* a reference */
    struct constraint_owner owner;
    enum message_constraint_kind kind;
    size_t length;
    char text[];
};

struct constraint_cache {
    pthread_mutex_t lock, vocabulary_lock;
    struct vocabulary *vocabulary; /* by its own lock: making it takes long */
    struct list entries;           /* used last first */
    uint32_t count;
    struct list dead; /* constraint_held.link: held by nobody */
    struct constraint_budget *budget;
};

/* Takes the budget over. */
static int make(struct constraint_budget *budget, struct constraint_cache **ret_cache,
                struct error *error)
{
    struct constraint_cache *cache = calloc(1, sizeof(*cache));
    if (!cache) {
        constraint_budget_put(budget);
        return error_set(error, ERR_NO_MEMORY, "no memory for constraints");
    }
    cache->budget = budget;
    pthread_mutex_init(&cache->lock, NULL);
    pthread_mutex_init(&cache->vocabulary_lock, NULL);
    list_init(&cache->entries);
    list_init(&cache->dead);
    *ret_cache = cache;
    return 0;
}

int constraint_cache_make(size_t bytes_max, struct constraint_cache **ret_cache,
                          struct error *error)
{
    struct constraint_budget *budget;
    int rc = constraint_budget_make(bytes_max, &budget, error);
    return rc ? rc : make(budget, ret_cache, error);
}

int constraint_cache_beside(const struct constraint_cache *cache,
                            struct constraint_cache **ret_cache, struct error *error)
{
    return make(constraint_budget_take(cache->budget), ret_cache, error);
}

static void give_up(struct constraint_held *held)
{
    if (constraint_held_put(held))
        constraint_held_free(held);
}

static void entry_free(struct entry *entry)
{
    give_up(entry->held);
    free(entry);
}

static void free_dead(struct constraint_cache *cache)
{
    for (;;) {
        pthread_mutex_lock(&cache->lock);
        struct list *link = list_take(&cache->dead);
        pthread_mutex_unlock(&cache->lock);
        if (!link)
            return;
        constraint_held_free(container_of(link, struct constraint_held, link));
    }
}

/* What only the cache holds goes. */
static void forget(struct constraint_cache *cache)
{
    for (;;) {
        pthread_mutex_lock(&cache->lock);
        struct list *link = list_take(&cache->entries);
        cache->count -= link != NULL;
        pthread_mutex_unlock(&cache->lock);
        if (!link)
            return;
        entry_free(container_of(link, struct entry, link));
    }
}

void constraint_cache_free(struct constraint_cache *cache)
{
    if (!cache)
        return;
    forget(cache);
    free_dead(cache);
    constraint_budget_put(cache->budget);
    vocabulary_free(cache->vocabulary);
    pthread_mutex_destroy(&cache->vocabulary_lock);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

void constraint_cache_put(struct constraint_cache *cache, struct constraint_held *held)
{
    if (!held || !constraint_held_put(held))
        return;
    pthread_mutex_lock(&cache->lock);
    list_append(&cache->dead, &held->link);
    pthread_mutex_unlock(&cache->lock);
}

/* ---- the vocabulary ----------------------------------------------------------------------------
 */

/* The bytes that mark special tokens are no part of any text. */
static bool is_text(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((uint8_t)bytes[i] >= STRUCTURE_CUT)
            return false;
    return true;
}

/* A special token is its name behind a byte that only structures ask for. */
static void put_special(const struct tokenizer *tokenizer, int32_t id,
                        struct vocabulary_token *token, struct buffer *names, bool *failed)
{
    static const char mark = (char)STRUCTURE_SPECIAL;
    size_t length, from = names->length;
    const char *text = tokenizer_token_text(tokenizer, id, &length);
    if (!text || !is_text(text, length))
        return;
    *failed |=
        !buffer_append(names, &mark, 1, SIZE_MAX) || !buffer_append(names, text, length, SIZE_MAX);
    *token = (struct vocabulary_token){.bytes = NULL, .length = names->length - from};
}

static void put_tokens(const struct tokenizer *tokenizer, const struct gpu_model *model,
                       struct vocabulary_token *tokens, struct buffer *names, bool *failed)
{
    for (uint32_t id = 0; id < model->vocab; id++) {
        if (tokenizer_token_is_special(tokenizer, (int32_t)id)) {
            put_special(tokenizer, (int32_t)id, &tokens[id], names, failed);
            continue;
        }
        tokens[id].bytes = tokenizer_token_bytes(tokenizer, (int32_t)id, &tokens[id].length);
        if (tokens[id].bytes && !is_text(tokens[id].bytes, tokens[id].length))
            tokens[id].length = 0;
    }
    size_t at = 0;
    for (uint32_t id = 0; !*failed && id < model->vocab; id++)
        if (tokens[id].length > 0 && !tokens[id].bytes) {
            tokens[id].bytes = names->data + at;
            at += tokens[id].length;
        }
}

static int vocabulary_make(const struct tokenizer *tokenizer, const struct gpu_model *model,
                           struct vocabulary **ret_vocabulary, struct error *error)
{
    struct vocabulary_token *tokens = calloc(model->vocab, sizeof(*tokens));
    struct buffer names = {0};
    bool failed = !tokens;
    if (tokens)
        put_tokens(tokenizer, model, tokens, &names, &failed);
    /* Not every tokenizer says that these are special; as a text one would end an output amid it.
     */
    for (uint32_t i = 0; !failed && i < model->eos_count; i++)
        if ((uint32_t)model->eos[i] < model->vocab)
            tokens[model->eos[i]].length = 0;
    int rc = failed
                 ? error_set(error, ERR_NO_MEMORY, "no memory for a vocabulary of %u", model->vocab)
                 : vocabulary_new(tokens, model->vocab, model->eos, model->eos_count,
                                  ret_vocabulary, error);
    buffer_free(&names);
    free(tokens);
    return rc;
}

static int vocabulary_of(struct constraint_cache *cache, const struct tokenizer *tokenizer,
                         const struct gpu_model *model, const struct vocabulary **ret_vocabulary,
                         struct error *error)
{
    pthread_mutex_lock(&cache->vocabulary_lock);
    int rc = cache->vocabulary ? 0 : vocabulary_make(tokenizer, model, &cache->vocabulary, error);
    if (!rc)
        *ret_vocabulary = cache->vocabulary;
    pthread_mutex_unlock(&cache->vocabulary_lock);
    return rc;
}

uint64_t constraint_salt(const char *salt)
{
    return salt ? keys_hash(salt, strlen(salt)) : 0;
}

/* ---- entries -----------------------------------------------------------------------------------
 */

/* With the lock. */
static struct constraint_held *find(struct constraint_cache *cache,
                                    const struct message_constraint *constraint,
                                    const struct constraint_owner *owner)
{
    list_each(link, &cache->entries)
    {
        struct entry *entry = container_of(link, struct entry, link);
        if (entry->owner.user != owner->user || entry->owner.salt != owner->salt ||
            entry->kind != constraint->kind || entry->length != constraint->length ||
            (entry->length > 0 && memcmp(entry->text, constraint->text, entry->length) != 0))
            continue;
        list_remove(&entry->link);
        list_insert_before(cache->entries.next, &entry->link);
        return constraint_held_take(entry->held);
    }
    return NULL;
}

static struct constraint_held *look_up(struct constraint_cache *cache,
                                       const struct message_constraint *constraint,
                                       const struct constraint_owner *owner)
{
    pthread_mutex_lock(&cache->lock);
    struct constraint_held *held = find(cache, constraint, owner);
    pthread_mutex_unlock(&cache->lock);
    return held;
}

/* What cannot be kept is used all the same. */
static void keep(struct constraint_cache *cache, const struct message_constraint *constraint,
                 const struct constraint_owner *owner, struct constraint_held *held)
{
    struct entry *last = NULL, *entry = malloc(sizeof(*entry) + constraint->length);
    if (!entry)
        return;
    *entry = (struct entry){.held = constraint_held_take(held),
                            .owner = *owner,
                            .kind = constraint->kind,
                            .length = constraint->length};
    if (constraint->length > 0)
        memcpy(entry->text, constraint->text, constraint->length);
    pthread_mutex_lock(&cache->lock);
    list_insert_before(cache->entries.next, &entry->link);
    if (++cache->count > CONSTRAINTS_KEPT) {
        last = container_of(cache->entries.prev, struct entry, link);
        list_remove(&last->link);
        cache->count--;
    }
    pthread_mutex_unlock(&cache->lock);
    if (last)
        entry_free(last);
}

static int compile(struct constraint_cache *cache, const struct vocabulary *vocabulary,
                   const struct message_constraint *constraint,
                   const struct constraint_owner *owner, struct constraint_held **ret_held,
                   struct error *error)
{
    enum constraint_kind kind = (enum constraint_kind)(constraint->kind - 1);
    struct constraint *made;
    int rc = constraint_new(kind, constraint->text, constraint->length, vocabulary, &made, error);
    if (rc)
        return rc;
    rc = constraint_held_make(made, vocabulary->words, cache->budget, owner->user, ret_held, error);
    if (rc == -ERR_BUSY) { /* what is kept for later makes way */
        forget(cache);
        rc = constraint_held_make(made, vocabulary->words, cache->budget, owner->user, ret_held,
                                  error);
    }
    if (rc)
        constraint_free(made);
    else
        keep(cache, constraint, owner, *ret_held);
    return rc;
}

int constraint_cache_get(struct constraint_cache *cache, const struct tokenizer *tokenizer,
                         const struct gpu_model *model, const struct message_constraint *constraint,
                         const struct constraint_owner *owner, struct constraint_held **ret_held,
                         bool *ret_hit, struct error *error)
{
    const struct vocabulary *vocabulary;
    free_dead(cache);
    struct constraint_held *held = look_up(cache, constraint, owner);
    *ret_hit = held != NULL;
    if (held) {
        *ret_held = held;
        return 0;
    }
    int rc = vocabulary_of(cache, tokenizer, model, &vocabulary, error);
    return rc ? rc : compile(cache, vocabulary, constraint, owner, ret_held, error);
}
