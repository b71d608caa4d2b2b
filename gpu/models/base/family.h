/* A family of models: what it reads of config.json, and the list of ops that it makes of that.
 *
 * The keys that all families share are read first (gpu/models/config.c), then the family's own, in
 * the order of its table, then its rules. A key that changes what some model computes (keys.def),
 * and that this family's table does not have, is refused unless its value changes nothing. So a
 * family names each such key that its own models have, also one that they do not heed
 * (KEY_IGNORED). Any thread.
 */
#pragma once

#include "gpu/checkpoint/config_field.h"
#include "gpu/graph/build.h"
#include "gpu/models/base/model_config.h"

enum key_kind {
    KEY_SIZE,   /* uint32_t, 1 to max */
    KEY_NUMBER, /* float, min to max */
    KEY_FLAG,   /* bool */
    KEY_RULE,   /* read by the family's rules, or with the rope */
    KEY_IGNORED,
};

struct config_key {
    const char *name; /* NULL ends a table */
    enum key_kind kind;
    size_t at; /* of the config's member */
    double min, max;
    bool required;
};

#define CONFIG_AT(member) offsetof(struct model_config, member)

struct family {
    const char *type;         /* model_type */
    const char *architecture; /* the class */
    const char *classifier;   /* the class with a head of classes in place of the one for tokens;
                               * NULL:   there is none that is computed here */
    const char *text;         /* the key of config.json that has the text's part of a model that has
                               * more; NULL: all of it is text */
    const char *text_type;    /* model_type there */
    const struct tensor_names *names; /* as checkpoints of the class may have them, the likeliest
                                       * first, ended by NULL; NULL: "model." and "lm_head" */
    const struct config_key *keys;
    const char *activation_key;      /* NULL: hidden_act */
    enum activation_kind activation; /* where the key is absent */
    /* What the class has where config.json is silent; NULL: what is required must be said. */
    void (*defaults)(struct model_config *config);
    int (*rope)(const struct fields *fields, struct model_config *config); /* NULL: rope_read */
    int (*rules)(const struct fields *fields, struct model_config *config);
    void (*build)(struct build *b, const struct model_config *config);
    bool guesses; /* for a model of another family: none by itself */
};
