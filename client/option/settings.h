/* What a command line, or a line of a batch file, asks for. */
#pragma once

#include "client/bench/options.h"
#include "client/option/option.h"
#include "client/sluice.h"

/* How a line of a batch file is written, and its results: by our own names, or as OpenAI's. */
enum line_form { LINE_OWN, LINE_COMPLETION, LINE_CHAT, LINE_EMBEDDING };

/* One prompt and how to treat it. */
struct work {
    const char *prompt;
    struct option_tokens tokens;
    sluice_params params; /* but for stop strings */
    int64_t priority, deadline_ms;
    int normalize;
    int cache;
    const char *cache_salt; /* NULL: none */
    const char *named;      /* the model, of several; NULL: the first */
    const char *pooling;
    struct option_list stop;
    /* Of a line of a batch file alone. */
    char *chat; /* owned: a conversation in place of a prompt */
    size_t chat_length;
    const json *id, *custom_id; /* what its results get back; strings or numbers */
    const char *model;          /* that must be served; NULL: any */
    enum line_form form;
    json *document; /* from which the texts are borrowed; NULL on the command line */
};

struct settings {
    struct work work; /* first: options that lines may have find their place in both */
    const char *socket, *instance;
    const char *file;
    char *read; /* owned: a prompt that came by standard input */
    int json, stream;
    int requests, watch, prometheus;
    int conversation, special; /* tokenize, detokenize */
    const char *system;        /* chat */
    const char *json_schema, *regex, *grammar; /* generate: what its results must be */
    struct option_list choice;
    int json_object;
    struct option_list inputs, outputs, parameters; /* job */
    const char *picture;                            /* likewise */
    const char *enable;                             /* programs */
    const char *page, *store;                       /* calibrate */
    int simulate, chunks, seconds;                  /* timeline */
    const char *times, *svg, *trace;
    struct bench_options bench;
};

extern const struct option settings_connection[]; /* where the daemon is */
extern const struct option settings_json[];
extern const struct option settings_stats[];
extern const struct option settings_input[];    /* prompts and what all jobs know */
extern const struct option settings_cache[];    /* all jobs, and chat */
extern const struct option settings_sampling[]; /* generate, chat */
extern const struct option settings_results[];  /* generate */
extern const struct option settings_constraint[]; /* generate */
extern const struct option settings_tokenize[];
extern const struct option settings_detokenize[];
extern const struct option settings_chat[];
extern const struct option settings_embed[];
extern const struct option settings_job[];
extern const struct option settings_programs[];
extern const struct option settings_calibrate[];
extern const struct option settings_timeline[];

void settings_init(struct settings *settings);

void work_clear(struct work *work);
/* The parameters with its stop strings, which are borrowed from the work. */
void work_params(const struct work *work, sluice_params *ret_params);
int work_pooling(const struct work *work, int *ret_pooling, struct error *error);
