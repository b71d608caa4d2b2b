#include "daemon/text/nfc.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "daemon/text/codepoint.h"

#define FIRST_CHANGING 0x300 /* below, everything is in normal form and a starter */
#define DECOMPOSED_MAX 32    /* code points that one stands for; the longest has 4 */
#define INSERTION_MAX 32
#define NO_INDEX UINT16_MAX /* utf8proc's "none" */

static bool old_starter(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
#define OLD_STARTERS(first, last) {first, last},
#include "daemon/text/nfc_reference.def"
#undef OLD_STARTERS
    };
    size_t low = 0, high = sizeof(ranges) / sizeof(ranges[0]);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof(ranges) / sizeof(ranges[0]) && code >= ranges[low].first;
}

static bool hangul_second(uint32_t code)
{
    return (code >= 0x1161 && code <= 0x1175) || (code >= 0x11a8 && code <= 0x11c2);
}

static uint32_t combining_class(int32_t code)
{
    uint32_t class = (uint32_t)utf8proc_get_property(code)->combining_class;
    return class > 0 && old_starter((uint32_t)code) ? 0 : class;
}

/* A starter that stays itself and joins nothing before it: a stretch may begin with it. */
static bool begins_stretch(uint32_t code)
{
    if (code < FIRST_CHANGING)
        return true;
    const utf8proc_property_t *property = utf8proc_get_property((int32_t)code);
    bool second = property->comb_index >= 0x8000 && property->comb_index != NO_INDEX;
    if (property->combining_class == 0 && property->decomp_seqindex == NO_INDEX && !second)
        return !hangul_second(code);
    if (property->decomp_seqindex != NO_INDEX && property->decomp_type != 0 &&
        property->combining_class == 0 && !second)
        return true; /* a compatibility decomposition is none here */
    return old_starter(code);
}

bool nfc_is_clean(const char *text, size_t length, const struct halt *halt)
{
    for (size_t at = 0, last = 0; at < length && !halt_between(halt, last, at);) {
        last = at;
        if (!begins_stretch(codepoint_next(text, &at)))
            return false;
    }
    return true;
}

static bool reserve(struct nfc_scratch *scratch, size_t count)
{
    if (count <= scratch->room)
        return true;
    size_t room = scratch->room > 0 ? scratch->room : 4 * DECOMPOSED_MAX;
    while (room < count)
        room *= 2;
    int32_t *codes = realloc(scratch->codes, room * sizeof(*codes));
    if (codes)
        scratch->codes = codes;
    int32_t *sorted = realloc(scratch->sorted, room * sizeof(*sorted));
    if (sorted)
        scratch->sorted = sorted;
    if (!codes || !sorted)
        return false;
    scratch->room = room;
    return true;
}

void nfc_scratch_free(struct nfc_scratch *scratch)
{
    free(scratch->codes);
    free(scratch->sorted);
    *scratch = (struct nfc_scratch){0};
}

static void insertion_sort(int32_t *codes, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        int32_t code = codes[i];
        uint32_t class = combining_class(code);
        size_t at = i;
        for (; at > 0 && combining_class(codes[at - 1]) > class; at--)
            codes[at] = codes[at - 1];
        codes[at] = code;
    }
}

/* By counting: a hostile text may put a million marks behind one letter. Once halted they stand in
 * any order. */
static void counting_sort(int32_t *codes, size_t count, int32_t *sorted, const struct halt *halt)
{
    size_t starts[257] = {0};
    for (size_t i = 0; i < count && !halt_between(halt, i, i + 1); i++)
        starts[(combining_class(codes[i]) & 0xff) + 1]++;
    if (halt_code(halt))
        return; /* not all are counted */
    for (size_t class = 1; class < 257; class ++)
        starts[class] += starts[class - 1];
    for (size_t i = 0; i < count; i++) {
        if (halt_between(halt, i, i + 1))
            return;
        sorted[starts[combining_class(codes[i]) & 0xff]++] = codes[i];
    }
    memcpy(codes, sorted, count * sizeof(*codes));
}

static void order_marks(struct nfc_scratch *scratch, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = i;
        while (end < count && combining_class(scratch->codes[end]) > 0 &&
               !halt_between(scratch->halt, end, end + 1))
            end++;
        if (end - i > INSERTION_MAX)
            counting_sort(scratch->codes + i, end - i, scratch->sorted, scratch->halt);
        else
            insertion_sort(scratch->codes + i, end - i);
        i = end + 1;
    }
}

/* Code points of the stretch, decomposed; 0 when memory runs out or the halt is set. */
static size_t decompose(struct nfc_scratch *scratch, const char *text, size_t length)
{
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        uint32_t code = codepoint_next(text, &at);
        if (!reserve(scratch, count + DECOMPOSED_MAX) ||
            (at % HALT_LOOK < CODEPOINT_BYTES_MAX && halt_code(scratch->halt)))
            return 0;
        if (old_starter(code)) {
            scratch->codes[count++] = (int32_t)code;
            continue;
        }
        int boundary = 0;
        utf8proc_ssize_t more =
            utf8proc_decompose_char((int32_t)code, scratch->codes + count, DECOMPOSED_MAX,
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (more > 0 && more <= DECOMPOSED_MAX)
            count += (size_t)more;
        else
            scratch->codes[count++] = (int32_t)code;
    }
    return count;
}

static bool append_stretch(struct nfc_scratch *scratch, const char *text, size_t length,
                           struct buffer *out, size_t max)
{
    size_t count = decompose(scratch, text, length);
    if (count == 0)
        return false;
    order_marks(scratch, count);
    if (halt_code(scratch->halt))
        return false;
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(scratch->codes, (utf8proc_ssize_t)count,
                                                         UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (composed < 0 || !buffer_reserve(out, (size_t)composed * CODEPOINT_BYTES_MAX, max))
        return false;
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        if (halt_between(scratch->halt, (size_t)i, (size_t)i + 1))
            return false;
        out->length += codepoint_put((uint32_t)scratch->codes[i], out->data + out->length);
    }
    return true;
}

bool nfc_append(struct nfc_scratch *scratch, const char *text, size_t length, struct buffer *out,
                size_t max)
{
    size_t done = 0, start = 0, at = 0;
    bool changing = false; /* the stretch from `start` has more than the starter it begins with */
    while (at < length) {
        size_t here = at;
        uint32_t code = codepoint_next(text, &at);
        if (halt_between(scratch->halt, here, at))
            return false;
        if (!begins_stretch(code)) {
            changing = true;
            continue;
        }
        if (changing) {
            if (!buffer_append(out, text + done, start - done, max) ||
                !append_stretch(scratch, text + start, here - start, out, max))
                return false;
            done = here;
            changing = false;
        }
        start = here;
    }
    if (!changing)
        start = length;
    if (!buffer_append(out, text + done, start - done, max))
        return false;
    return start == length || append_stretch(scratch, text + start, length - start, out, max);
}
