/* A daemon for tests of the client: a thread that speaks the protocol on a Unix socket of its own
 * and answers by the rule of synthetic:null, one token per sequence and turn.
 *
 * A prompt that begins with STUB_HANG_TOKEN never ends but by cancelling. A prompt that begins with
 * STUB_FAIL_TOKEN ends with an error of its own; STUB_KILL_TOKEN closes the connection after the
 * first token. A conversation that ends with STUB_HANG_CHAT never ends, either. Its thread asserts nothing about the client: what it saw is counted.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STUB_HANG_TOKEN 250
#define STUB_FAIL_TOKEN 251
#define STUB_KILL_TOKEN 252
#define STUB_HANG_CHAT "hang\"}]}"
#define STUB_REQUEST_FIRST 1001

struct stub_options {
    uint32_t queue_max; /* open sequences that are taken; more are refused as busy. 0 = no limit */
    bool text;          /* takes texts, one token per byte, and gives a letter per token */
    bool split;         /* sends one byte at a time */
    bool silent;        /* accepts connections and says nothing */
    bool refuse;        /* answers HELLO with busy */
    bool loading;
};

struct stub;

/* A socket in a new folder; *ret_path is valid until stub_stop(). */
struct stub *stub_start(const struct stub_options *options, const char **ret_path);
void stub_stop(struct stub *stub);

struct stub_counts {
    atomic_uint connections, accepted, refused, ended, cancelled, open_most, lost;
};
const struct stub_counts *stub_counts(const struct stub *stub);
