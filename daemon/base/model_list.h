/* The models of the option `model`: one directory, or NAME=DIR for each of several; and the options
 * that each runs by, which are the daemon's but for what model-option says of it.
 *
 * served-model-name, adapter, adapters-max, adapter-rank-max, chat-template, score-tokens and
 * score-template fit one model alone: they are the first's. Owns the options. Any thread; not
 * changed once it is made, but for those of a model that is reloaded (daemon/service/reloader.h).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define MODEL_LIST_MAX 8

struct options;

struct model_list {
    uint32_t count;
    /* Owned. In each, `model` is its directory, and served-model-name begins with NAME. */
    struct options *at[MODEL_LIST_MAX];
};

/* The length of NAME where `text`, as one value of the option, is NAME=DIR; 0 where it is a
 * directory: a name begins with neither "/" nor "." and has no ":". */
size_t model_list_name_length(const char *text, size_t length);
/* ERR_BAD_CONFIG names what is wrong, and nothing is made. An empty option is an empty list. */
int model_list_make(const struct options *options, struct model_list *ret_list,
                    struct error *error);
/* What a model runs by, but from this directory ("": its own), and nothing is profiled: the
 * caller's. */
int model_list_version(const struct options *options, const char *directory,
                       struct options **ret_options, struct error *error);
/* Zeroed memory is allowed. */
void model_list_free(struct model_list *list);
