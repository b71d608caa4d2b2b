/* llama.cpp's GBNF grammars: what a user's own grammar is written in.
 *
 * Known: rules `name ::= ...` of which `root` is the output, texts in quotes, classes in brackets
 * with ranges and ^, the dot, groups, alternatives, * + ? {m} {m,} {m,n}, comments, the escapes \n
 * \r \t
 * \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. Characters are Unicode's. Refused by name: tokens
 * (<...>), rules that are not there or are there twice, and left recursion, as llama.cpp does. Not
 * Lark: GBNF is what clients of local models send, and has no lexer whose priorities would have to
 * be kept. One thread.
 */
#pragma once

#include "daemon/constrain/grammar/character.h"

#define GBNF_RULES_MAX 16384u
#define GBNF_DEPTH_MAX 64u

/* The node behind root; the error stays in the grammar. */
uint32_t gbnf_build(struct grammar *grammar, uint32_t from, const char *text, size_t length);
