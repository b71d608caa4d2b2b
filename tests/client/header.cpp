/* sluice.h in a C++ program: what a user of the library would write, compiled and linked. */
#include "client/sluice.h"

#include <cstdio>
#include <cstring>

static void on_end(void *context, uint32_t, const sluice_end *end)
{
    *static_cast<int *>(context) += end->finish == SLUICE_FINISH_ERROR;
}

int main()
{
    sluice_client *client = nullptr;
    sluice_error error;
    sluice_params params;
    sluice_batch batch;
    int failed = 0;
    sluice_params_init(&params);
    sluice_batch_init(&batch);
    batch.callbacks.end = on_end;
    batch.context = &failed;
    int rc = sluice_connect("/nonexistent/sluice.sock", 100, &client, &error);
    if (rc != -SLUICE_E_CONNECT || !std::strstr(error.text, "/nonexistent/sluice.sock"))
        return 1;
    std::printf("%s: %s\n", sluice_error_name(error.code), error.text);
    return 0;
}
