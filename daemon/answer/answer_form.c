#include "daemon/answer/answer_form.h"

#include <string.h>

#include "daemon/answer/call_format.h"
#include "daemon/answer/reasoning.h"
#include "daemon/text/tokenizer.h"

/* ---- tables ------------------------------------------------------------------------------------
 */

static const struct call_format *const formats[] = {
#define FORMAT(format) &format,
#include "daemon/answer/call_formats.def"
#undef FORMAT
};

static const struct reasoning_format reasonings[] = {
    {"think", "<think>", "</think>"},          /* Qwen 3, DeepSeek R1, SmolLM3 */
    {"mistral", "[THINK]", "[/THINK]"},        /* Magistral */
    {"seed", "<seed:think>", "</seed:think>"}, /* Seed-OSS */
};

static bool fits(const struct call_format *format, const char *chat_template)
{
    for (size_t i = 0; i < sizeof(format->needs) / sizeof(format->needs[0]); i++) {
        if (format->needs[i] && !strstr(chat_template, format->needs[i]))
            return false;
        if (format->lacks[i] && strstr(chat_template, format->lacks[i]))
            return false;
    }
    return true;
}

const struct call_format *call_format_find(const char *chat_template)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (fits(formats[i], chat_template))
            return formats[i];
    return NULL;
}

const struct reasoning_format *reasoning_find(const char *chat_template)
{
    for (size_t i = 0; i < sizeof(reasonings) / sizeof(reasonings[0]); i++)
        if (strstr(chat_template, reasonings[i].end))
            return &reasonings[i];
    return NULL;
}

/* ---- marks -------------------------------------------------------------------------------------
 */

static void set_mark(struct answer_form *form, struct answer_mark *mark, const char *text,
                     const struct tokenizer *tokenizer)
{
    size_t length = strlen(text), at = 0;
    int32_t token = tokenizer ? tokenizer_token_id(tokenizer, text) : -1;
    if (token >= 0 && tokenizer_token_is_special(tokenizer, token)) {
        mark->text[at++] = ANSWER_SPECIAL;
        form->shown[form->shown_count++] = token;
    }
    memcpy(mark->text + at, text, length);
    mark->length = (uint8_t)(at + length);
}

void answer_form_find(struct answer_form *form, const char *chat_template,
                      const struct tokenizer *tokenizer)
{
    *form = (struct answer_form){.calls = call_format_find(chat_template)};
    bool own = form->calls && form->calls->reasoning;
    form->reasoning = own ? form->calls->reasoning : reasoning_find(chat_template);
    _Static_assert((int)ANSWER_MARKS <= (int)ANSWER_SHOWN_MAX, "each mark may be shown");
    for (size_t i = 0; form->calls && i < ANSWER_MARKS; i++)
        if (form->calls->marks[i])
            set_mark(form, &form->marks[i], form->calls->marks[i], tokenizer);
    if (!form->reasoning || own)
        return;
    set_mark(form, &form->marks[ANSWER_MARK_THINK], form->reasoning->begin, tokenizer);
    set_mark(form, &form->marks[ANSWER_MARK_THINK_END], form->reasoning->end, tokenizer);
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t last = strlen(end);
    while (length > 0 && strchr(" \n\t\r", text[length - 1]))
        length--;
    return length >= last && memcmp(text + length - last, end, last) == 0;
}

bool answer_form_thinks(const struct answer_form *form, const char *prompt, size_t length)
{
    return form->reasoning && ends_with(prompt, length, form->reasoning->begin);
}

bool answer_form_thought(const struct answer_form *form, const char *prompt, size_t length)
{
    return form->reasoning && ends_with(prompt, length, form->reasoning->end);
}
