#include "daemon/request/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/request/request.h"

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
    size_t room = detokenizer_room(tokenizer);
    int rc = make_stops(prompt, &stops, error);
    for (uint32_t i = 0; !rc && i < count; i++) {
        struct text_stream *transcript = calloc(1, sizeof(*transcript) + 2 * room + STOP_BYTES_MAX);
        if (!transcript) {
            rc = error_set(error, ERR_NO_MEMORY, "no memory for the text of a sequence");
            break;
        }
        transcript->model = model;
        transcript->piece = (char *)(transcript + 1);
        transcript->wanted = wanted;
        transcript->end = TEXT_STREAM_NO_END;
        detokenizer_init(&transcript->detokenizer, tokenizer, true);
        transcript->stops = stops;
        if (stops) {
            stops->references++;
            stop_init(&transcript->stop, stops->set);
        }
        seqs[i].transcript = transcript;
    }
    drop_stops(stops);
    return rc;
}

void text_stream_free(struct seq *seq)
{
    struct text_stream *transcript = seq->transcript;
    if (!transcript)
        return;
    drop_stops(transcript->stops);
    buffer_free(&transcript->text);
    free(transcript);
    seq->transcript = NULL;
}

/* A token that ends the sequence has no text. Where end tokens are masked none was sampled. */
static bool is_end(const struct seq *seq, int32_t token)
{
    const struct gpu_model *model = seq->transcript->model;
    for (uint32_t i = 0; i < model->eos_count; i++)
        if (model->eos[i] == token)
            return true;
    for (uint32_t i = 0; i < seq->stop_id_count; i++)
        if (seq->stop_ids[i] == token)
            return true;
    return false;
}

static void append(struct text_stream *transcript, const char *text, size_t length)
{
    if (transcript->wanted && !buffer_append(&transcript->text, text, length, SIZE_MAX))
        transcript->failed = true;
}

/* Takes a piece of text; true when a stop string ends in it. */
static bool take(struct text_stream *transcript, size_t length, bool look)
{
    char *certain = transcript->piece + length;
    size_t certain_length = length;
    int found = -1;
    if (look)
        found = stop_push(&transcript->stop, transcript->piece, length, certain, &certain_length);
    else
        certain = transcript->piece;
    append(transcript, certain, certain_length);
    return found >= 0;
}

bool text_stream_read(struct seq *seq, uint32_t count)
{
    struct text_stream *transcript = seq->transcript;
    while (transcript->read < count && transcript->end == TEXT_STREAM_NO_END) {
        int32_t token = seq->out_tokens[transcript->read++];
        if (is_end(seq, token))
            continue;
        size_t length = detokenizer_push(&transcript->detokenizer, token, transcript->piece);
        /* As long as min_tokens asks for more, nothing is looked for. */
        bool look = transcript->stops && transcript->read > seq->sampling.min_tokens;
        if (take(transcript, length, look))
            transcript->end = transcript->read;
    }
    return transcript->end != TEXT_STREAM_NO_END;
}

bool text_stream_finish(struct seq *seq)
{
    struct text_stream *transcript = seq->transcript;
    uint32_t count = atomic_load_explicit(&seq->out_count, memory_order_acquire);
    bool found = text_stream_read(seq, count);
    if (found || transcript->finished)
        return found;
    transcript->finished = true;
    size_t length = detokenizer_finish(&transcript->detokenizer, transcript->piece);
    if (take(transcript, length, transcript->stops != NULL)) {
        transcript->end = transcript->read;
        return true;
    }
    if (transcript->stops)
        append(transcript, transcript->piece, stop_finish(&transcript->stop, transcript->piece));
    return false;
}

void text_stream_told(struct text_stream *transcript, size_t bytes)
{
    struct buffer *text = &transcript->text;
    text->length -= bytes;
    if (text->length > 0)
        memmove(text->data, text->data + bytes, text->length);
    else if (text->room > ROOM_KEPT)
        buffer_free(text);
}
