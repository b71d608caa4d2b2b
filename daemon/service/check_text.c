#include "daemon/service/check_text.h"

#include "daemon/base/option.h"
#include "daemon/request/model_text.h"

int check_text_load(struct model_text *ret_model_text, const struct options *options,
                    struct error *error)
{
    int rc = model_text_load(ret_model_text, options->model, error);
    if (!rc && options->chat_template[0])
        rc = model_text_template(ret_model_text, options->chat_template, error);
    if (!rc && (options->score_tokens[0] || options->score_template[0]))
        rc = pair_form_give(ret_model_text, options->score_tokens, options->score_template, error);
    if (!rc && options->draft_model[0])
        file_marks_note(&ret_model_text->marks, options->draft_model, "tokenizer.json");
    if (!rc && options->draft_model[0])
        rc = model_text_same_tokens(ret_model_text, options->draft_model, error);
    return rc;
}

int check_text_differs(const struct model_text *served, const struct options *options,
                       struct file_marks *marks, const char **ret_differs, struct error *error)
{
    struct model_text text = {0};
    if (marks && file_marks_hold(marks)) {
        *ret_differs = NULL;
        return 0;
    }
    int rc = check_text_load(&text, options, error);
    if (!rc)
        *ret_differs = model_text_differs(served, &text);
    if (!rc && !*ret_differs && marks) {
        file_marks_free(marks);
        *marks = text.marks;
        text.marks = (struct file_marks){.count = 0};
    }
    model_text_free(&text);
    return rc;
}

void check_text_print(const struct model_text *model_text, const struct options *options,
                      FILE *file)
{
    const char *given = options->chat_template;
    if (model_text->tokenizer)
        fprintf(file, "texts        yes\n");
    else
        fprintf(file,
                "texts        NO: %s\n"
                "             prompts and answers are token numbers alone: texts, chats, stop "
                "strings, /tokenize and\n"
                "             /detokenize are refused\n",
                model_text->refusal.text);
    if (model_text->tokenizer && model_text->chat)
        fprintf(file, "chats        yes%s%s\n", given[0] ? ", by " : "", given);
    else
        fprintf(file,
                "chats        NO: %s\n"
                "             /v1/chat/completions and sluice chat are refused%s\n",
                model_text->tokenizer ? model_text->chat_refusal.text : "there are no texts",
                model_text->tokenizer ? "; chat-template = FILE gives the model one" : "");
    if (model_text->head.labels > 0)
        fprintf(file, "classes      %u, by the checkpoint's own head: nothing is generated\n",
                model_text->head.labels);
    if (model_text->pairs.refusal.code == 0 && model_text->head.labels > 0)
        fprintf(file, "scores       yes, by that head%s\n",
                pair_form_asks(model_text) ? "" : ", of both texts without a template");
    else if (model_text->pairs.refusal.code == 0)
        fprintf(file, "scores       yes, by tokens %d (no) and %d (yes)\n",
                (int)model_text->pairs.tokens[PAIR_NO], (int)model_text->pairs.tokens[PAIR_YES]);
    else
        fprintf(
            file,
            "scores       NO: %s\n"
            "             /v1/rerank and /v1/score are refused; score-tokens and score-template "
            "say how\n",
            model_text->pairs.refusal.text);
}
