/* Cuts text into the pieces that are merged each by itself: Split, Digits, Metaspace and ByteLevel,
 * in the file's order.
 *
 * Filled by the loader, then read by any thread; scratch belongs to one caller. ByteLevel comes
 * last: it says that pieces are read as bytes, and none is written out in its alphabet.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/base/buffer.h"
#include "daemon/base/halt.h"
#include "daemon/text/field.h"
#include "daemon/text/regex.h"
#include "protocol/base/error.h"

#define PRETOKENIZER_STEPS_MAX 8
#define PRETOKENIZER_TEXT_MAX 64
#define PRETOKENIZER_OUTPUT_MAX ((size_t)64 << 20)

/* What becomes of the matches, and of what lies between them. */
enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS
};

enum metaspace_prepend { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

enum pretokenizer_kind { PRETOKENIZER_SPLIT, PRETOKENIZER_METASPACE, PRETOKENIZER_BYTES };

struct pretokenizer_step {
    enum pretokenizer_kind kind;
    struct regex *regex; /* NULL: a literal text, or none */
    char text[PRETOKENIZER_TEXT_MAX + 1];
    size_t text_length; /* the literal of a split, the replacement of a metaspace */
    enum split_behavior behavior;
    bool invert;
    bool cut;                       /* metaspace: cut before each replacement; bytes: by regex */
    bool space;                     /* bytes: put a space before a piece that has none */
    enum metaspace_prepend prepend; /* metaspace */
};

struct pretokenizer {
    size_t count;
    bool byte_level;
    struct pretokenizer_step steps[PRETOKENIZER_STEPS_MAX];
};

struct pretokenizer_scratch {
    struct buffer buffers[PRETOKENIZER_STEPS_MAX];
    struct regex_scratch *regex;
    const struct halt *halt; /* NULL: none */
};

int pretokenizer_load(struct pretokenizer *pretokenizer, const struct field *field,
                      struct error *error);
void pretokenizer_free(struct pretokenizer *pretokenizer);

bool pretokenizer_scratch_init(struct pretokenizer_scratch *scratch);
void pretokenizer_scratch_free(struct pretokenizer_scratch *scratch);

/* Takes a piece, never an empty one; anything but 0 ends the run with that code. */
struct piece_sink {
    int (*take)(struct piece_sink *sink, const char *piece, size_t length, struct error *error);
};

/* `first`: the text stands at the very start of what the user gave. */
int pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                     const char *text, size_t length, bool first, struct piece_sink *sink,
                     struct error *error);
