#include "daemon/request/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/answer/answer_form.h"
#include "daemon/request/request.h"
#include "daemon/text/tokenizer.h"

#define ROOM_KEPT 4096u /* of text that was told */

static void drop_stops(struct text_stream_stops *stops)
{
    if (!stops || --stops->references > 0)
        return;
    stop_set_free(stops->set);
    free(stops);
}

static int make_stops(const struct message_prompt *prompt, struct text_stream_stops **ret_stops,
                      struct error *error)
{
    struct stop_string strings[MESSAGE_STOP_MAX];
    _Static_assert(MESSAGE_STOP_MAX <= STOP_STRINGS_MAX && MESSAGE_STOP_BYTES_MAX <= STOP_BYTES_MAX,
                   "what a message holds is taken");
    *ret_stops = NULL;
    if (prompt->stop_count == 0)
        return 0;
    for (uint32_t i = 0; i < prompt->stop_count; i++)
        strings[i] = (struct stop_string){prompt->stop[i], prompt->stop_length[i]};
    struct text_stream_stops *stops = calloc(1, sizeof(*stops));
    if (!stops)
        return error_set(error, ERR_NO_MEMORY, "no memory for stop strings");
    int rc = stop_set_new(strings, prompt->stop_count, &stops->set, error);
    if (rc) {
        free(stops);
        return rc;
    }
    stops->references = 1;
    *ret_stops = stops;
    return 0;
}

int text_stream_make(struct seq *seqs, uint32_t count, const struct message_prompt *prompt,
                     bool wanted, const struct tokenizer *tokenizer, const struct gpu_model *model,
                     struct error *error)
{
    struct text_stream_stops *stops;
    size_t room = detokenizer_room(tokenizer) + ANSWER_MARK_MAX + 1;
    int rc = make_stops(prompt, &stops, error);
    for (uint32_t i = 0; !rc && i < count; i++) {
        struct text_stream *stream = calloc(1, sizeof(*stream) + 2 * room + STOP_BYTES_MAX);
        if (!stream) {
            rc = error_set(error, ERR_NO_MEMORY, "no memory for the text of a sequence");
            break;
        }
        stream->model = model;
        stream->piece = (char *)(stream + 1);
        stream->wanted = wanted;
        stream->end = TEXT_STREAM_NO_END;
        stream->found = -1;
        detokenizer_init(&stream->detokenizer, tokenizer, true);
        stream->stops = stops;
        if (stops) {
            stops->references++;
            stop_init(&stream->stop, stops->set);
        }
        seqs[i].text_stream = stream;
    }
    drop_stops(stops);
    return rc;
}

void text_stream_free(struct seq *seq)
{
    struct text_stream *stream = seq->text_stream;
    if (!stream)
        return;
    drop_stops(stream->stops);
    buffer_free(&stream->text);
    free(stream);
    seq->text_stream = NULL;
}

/* A token that ends the sequence has no text. Where end tokens are masked none was sampled. */
static bool is_end(const struct seq *seq, int32_t token)
{
    const struct gpu_model *model = seq->text_stream->model;
    for (uint32_t i = 0; i < model->eos_count; i++)
        if (model->eos[i] == token)
            return true;
    for (uint32_t i = 0; i < seq->stop_id_count; i++)
        if (seq->stop_ids[i] == token)
            return true;
    return false;
}

static void append(struct text_stream *stream, const char *text, size_t length)
{
    if (stream->wanted && !buffer_append(&stream->text, text, length, SIZE_MAX))
        stream->failed = true;
}

static bool is_shown(const struct text_stream *stream, int32_t token)
{
    const struct answer_form *shown = stream->shown;
    for (uint32_t i = 0; shown && i < shown->shown_count; i++)
        if (shown->shown[i] == token)
            return true;
    return false;
}

/* A mark that is a special token, as readers of answers know it; behind what was held back of the
 * tokens before it. */
static size_t push_mark(struct text_stream *stream, int32_t token, char *out)
{
    struct detokenizer *detokenizer = &stream->detokenizer;
    size_t name;
    const char *text = tokenizer_token_text(detokenizer->tokenizer, token, &name);
    detokenizer->skip_special = false;
    size_t length = detokenizer_push(detokenizer, token, out);
    detokenizer->skip_special = true;
    if (length < name || memcmp(out + length - name, text, name) != 0)
        return length; /* its decoder writes it in another way */
    memmove(out + length - name + 1, out + length - name, name);
    out[length - name] = ANSWER_SPECIAL;
    return length + 1;
}

/* Takes a piece of text; true when a stop string ends in it. */
static bool take(struct text_stream *stream, size_t length, bool look)
{
    char *certain = stream->piece + length;
    size_t certain_length = length;
    int found = -1;
    if (look)
        found = stop_push(&stream->stop, stream->piece, length, certain, &certain_length);
    else
        certain = stream->piece;
    append(stream, certain, certain_length);
    stream->found = found;
    return found >= 0;
}

bool text_stream_read(struct seq *seq, uint32_t count)
{
    struct text_stream *stream = seq->text_stream;
    while (stream->read < count && stream->end == TEXT_STREAM_NO_END) {
        int32_t token = seq->out_tokens[stream->read++];
        if (is_end(seq, token))
            continue;
        size_t length = is_shown(stream, token)
                            ? push_mark(stream, token, stream->piece)
                            : detokenizer_push(&stream->detokenizer, token, stream->piece);
        /* As long as min_tokens asks for more, nothing is looked for. */
        bool look = stream->stops && stream->read > seq->sampling.min_tokens;
        if (take(stream, length, look))
            stream->end = stream->read;
    }
    return stream->end != TEXT_STREAM_NO_END;
}

bool text_stream_finish(struct seq *seq)
{
    struct text_stream *stream = seq->text_stream;
    uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
    bool found = text_stream_read(seq, count);
    if (found || stream->finished)
        return found;
    stream->finished = true;
    size_t length = detokenizer_finish(&stream->detokenizer, stream->piece);
    if (take(stream, length, stream->stops != NULL)) {
        stream->end = stream->read;
        return true;
    }
    if (stream->stops)
        append(stream, stream->piece, stop_finish(&stream->stop, stream->piece));
    return false;
}

void text_stream_told(struct text_stream *stream, size_t bytes)
{
    struct buffer *text = &stream->text;
    text->length -= bytes;
    if (text->length > 0)
        memmove(text->data, text->data + bytes, text->length);
    else if (text->room > ROOM_KEPT)
        buffer_free(text);
}
