#include "tests/daemon/rig/smallest.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/base/clock.h"
#include "protocol/message.h"

static bool is_over(const struct spawn *spawn)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)spawn->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

static bool served(const struct spawn *spawn)
{
    static const int32_t token = 1;
    const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "least"};
    struct message_prompt prompt = {
        .sampling = sampling_unset(), .tokens = &token, .token_count = 1};
    prompt.sampling.max_tokens = 1;
    prompt.sampling.ignore_eos = true;
    const struct message_submit_out submit = {
        .params.job = JOB_GENERATE, .params.normalize = true, .prompt_count = 1, .prompts = &prompt};
    _Alignas(8) unsigned char bytes[4096];
    size_t length = message_encode_hello(bytes, sizeof(bytes), &hello), at = 0, used = 0;
    length += message_encode_submit(bytes + length, sizeof(bytes) - length, 1, &submit);
    int fd = wire_connect(spawn);
    bool done = false;
    if (fd < 0)
        return false;
    if (send(fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length)
        at = sizeof(bytes);
    while (!done && at < sizeof(bytes)) {
        struct pollfd ready = {fd, POLLIN, 0};
        ssize_t got = poll(&ready, 1, 5000) == 1 ? recv(fd, bytes + at, sizeof(bytes) - at, 0) : 0;
        if (got <= 0)
            break;
        at += (size_t)got;
        struct frame frame;
        struct error error;
        size_t step;
        while (used < at && frame_decode(bytes + used, at - used, sizeof(bytes), &frame, &step,
                                         &error) == FRAME_OK) {
            done |= frame.type == FRAME_DONE && frame.id == 1;
            used += step;
        }
    }
    close(fd);
    return done;
}

int smallest_outcome(struct spawn *spawn, const char *const *arguments)
{
    spawn_start(spawn, arguments, NULL);
    time_us until_us = clock_now_us() + 1000u * SPAWN_PATIENCE_MS;
    while (clock_now_us() < until_us) {
        if (is_over(spawn))
            return spawn_wait(spawn);
        if (served(spawn)) {
            kill(spawn->pid, SIGTERM);
            ck_assert_int_eq(spawn_wait(spawn), 0);
            return 0;
        }
        poll(NULL, 0, 10);
    }
    ck_abort_msg("it neither ends nor serves");
}
