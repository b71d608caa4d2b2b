/* What a tokenizer consists of, for the files that load it and use it. Private to daemon/text. */
#pragma once

#include "daemon/text/added.h"
#include "daemon/text/affix.h"
#include "daemon/text/bpe.h"
#include "daemon/text/decoder.h"
#include "daemon/text/normalizer.h"
#include "daemon/text/pretokenizer.h"
#include "daemon/text/tokenizer.h"
#include "daemon/text/vocab.h"

struct tokenizer {
    struct vocab vocab; /* all tokens, added ones included */
    struct added_set added_raw, added_normalized;
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct bpe bpe;
    struct affix affix;
    struct decoder decoder;
};

struct tokenizer_scratch {
    const struct tokenizer *tokenizer; /* whose words the cache holds; NULL until first used */
    const struct halt *halt;           /* NULL: none */
    struct normalizer_scratch normalizer;
    struct pretokenizer_scratch pretokenizer;
    struct bpe_scratch bpe;
};
