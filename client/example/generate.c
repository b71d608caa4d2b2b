/* Continues each text of its command line: one batch, and all answers as they come.
 *
 *     cc generate.c -o generate $(pkg-config --cflags --libs sluice)
 *     ./generate '417+385=' 'reverse stream='
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice.h>

struct answer {
    char *text; /* what has come of it */
    size_t length;
    int failed;
};

/* Pieces of several answers come mixed: each is kept where it belongs. */
static void on_tokens(void *context, uint32_t sequence, const sluice_piece *piece)
{
    struct answer *answer = (struct answer *)context + sequence;
    char *more = realloc(answer->text, answer->length + piece->text_length + 1);
    if (!more)
        return;
    memcpy(more + answer->length, piece->text, piece->text_length);
    answer->text = more;
    answer->length += piece->text_length;
    answer->text[answer->length] = '\0';
}

/* Exactly once for each sequence, whatever happens. */
static void on_end(void *context, uint32_t sequence, const sluice_end *end)
{
    struct answer *answer = (struct answer *)context + sequence;
    answer->failed = end->finish == SLUICE_FINISH_ERROR;
    if (answer->failed)
        fprintf(stderr, "%s: %s\n", sluice_error_name(end->error.code), end->error.text);
}

static int run(sluice_client *client, int count, char **texts, struct answer *answers)
{
    sluice_prompt *prompts = calloc((size_t)count, sizeof(*prompts));
    sluice_params params;
    sluice_batch batch;
    if (!prompts)
        return -SLUICE_E_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        prompts[i].text = texts[i];
        prompts[i].text_length = strlen(texts[i]);
    }
    sluice_params_init(&params);
    params.max_tokens = 64;
    params.temperature = 0;
    sluice_batch_init(&batch);
    batch.prompts = prompts;
    batch.prompt_count = (size_t)count;
    batch.params = &params;
    batch.want_text = 1;
    batch.callbacks.tokens = on_tokens;
    batch.callbacks.end = on_end;
    batch.context = answers;
    int rc = sluice_run(client, &batch, 60000);
    free(prompts);
    return rc;
}

int main(int argc, char **argv)
{
    sluice_client *client;
    sluice_error error;
    int count = argc - 1, failed = 0;
    struct answer *answers = calloc((size_t)count + 1, sizeof(*answers));
    if (count < 1 || !answers) {
        fprintf(stderr, "usage: %s TEXT...\n", argv[0]);
        return 2;
    }
    if (sluice_connect(NULL, 5000, &client, &error)) {
        fprintf(stderr, "%s\n", error.text); /* names every path that was tried, and why */
        return 1;
    }
    if (run(client, count, argv + 1, answers)) {
        fprintf(stderr, "%s\n", sluice_client_error(client)->text);
        failed = 1;
    }
    for (int i = 0; i < count; i++) {
        printf("%s%s\n", argv[i + 1], answers[i].text ? answers[i].text : "");
        failed |= answers[i].failed;
        free(answers[i].text);
    }
    free(answers);
    sluice_close(client);
    return failed;
}
