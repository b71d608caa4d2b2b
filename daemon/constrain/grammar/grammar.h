/* What every constraint compiles to: a graph whose edges read bytes or call a rule, so many times.
 *
 * A rule is the node that it starts at; it ends at any node that is final. An edge reads one byte
 * of a range, reads nothing, or calls a rule between `min` and `max` times in a row and then goes
 * on: counts are counted while reading, so that {0,10000} is one edge. Rules may call each other,
 * recursively as well, but none may call itself before it has read a byte (left recursion).
 *
 * Not a parser's grammar: it has no trees and no priorities, only which bytes may come next. It
 * grows up to GRAMMAR_NODES_MAX and GRAMMAR_EDGES_MAX; the first failure of any call stays, with
 * its text, and later calls do nothing, so that a builder looks once at its end. One thread builds;
 * after grammar_finish it does not change, and any thread reads it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/base/error.h"

#define GRAMMAR_NODES_MAX (1u << 18)
#define GRAMMAR_EDGES_MAX (1u << 20)
#define GRAMMAR_WORK_MAX (1u << 24)  /* ranges of characters looked at */
#define GRAMMAR_COUNT_MAX (1u << 20) /* of a bounded repetition */
#define GRAMMAR_UNBOUNDED UINT32_MAX
#define GRAMMAR_NONE UINT32_MAX

enum grammar_edge_kind { EDGE_NOTHING, EDGE_BYTES, EDGE_CALL };

struct grammar_edge {
    uint8_t kind;
    uint8_t low, high; /* EDGE_BYTES */
    uint32_t to;
    uint32_t rule, min, max; /* EDGE_CALL */
    uint32_t next;           /* of the same node, or GRAMMAR_NONE */
};

struct grammar_node {
    uint32_t first; /* edge, or GRAMMAR_NONE */
    bool final;
    bool plain;  /* here starts a character of a JSON string that may be any */
    bool reads;  /* set by grammar_finish: it has edges that read */
    bool common; /* set by grammar_finish: one of them reads what plain characters begin with */
};

/* A rule that is made once for what it reads, whoever needs it (character.c). */
struct grammar_set {
    struct grammar_set *next;
    uint32_t rule, form, count;
    uint32_t ranges[]; /* low and high of each */
};

struct grammar {
    struct grammar_node *nodes;
    struct grammar_edge *edges;
    uint32_t nodes_used, nodes_room, edges_used, edges_room;
    uint32_t start;
    uint32_t classes;              /* bytes that no edge tells apart are one class */
    uint8_t class_of[256];         /* set by grammar_finish */
    uint8_t class_first[256];      /* a byte of each */
    uint32_t text, any, canonical; /* rules made once: GRAMMAR_NONE until somebody asks */
    struct grammar_set *sets;
    uint32_t work;
    int code;
    struct error *error;
};

/* `error` is written on failure as long as the grammar is being built. */
void grammar_init(struct grammar *grammar, struct error *error);
void grammar_free(struct grammar *grammar);
int grammar_fail(struct grammar *grammar, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Counts work that a few bytes of a constraint can ask for much of. */
void grammar_work(struct grammar *grammar, uint32_t ranges);

/* These return a node. Where one is passed as `to`, GRAMMAR_NONE makes a new one. */
uint32_t grammar_node(struct grammar *grammar);
uint32_t grammar_nothing(struct grammar *grammar, uint32_t from, uint32_t to);
uint32_t grammar_bytes(struct grammar *grammar, uint32_t from, uint32_t to, uint8_t low,
                       uint8_t high);
uint32_t grammar_literal(struct grammar *grammar, uint32_t from, const char *bytes, size_t length);
uint32_t grammar_word(struct grammar *grammar, uint32_t from, const char *text);
uint32_t grammar_call(struct grammar *grammar, uint32_t from, uint32_t to, uint32_t rule,
                      uint32_t min, uint32_t max);
/* What stands between `start` and `end`, so many times in a row, from `from` on. */
uint32_t grammar_repeat(struct grammar *grammar, uint32_t from, uint32_t start, uint32_t end,
                        uint32_t min, uint32_t max);
void grammar_final(struct grammar *grammar, uint32_t node);

/* Takes away what can never end, refuses left recursion and a start from which nothing can end,
 * and divides bytes into classes. */
int grammar_finish(struct grammar *grammar, uint32_t start);
