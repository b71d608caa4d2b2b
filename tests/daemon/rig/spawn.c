#include "tests/daemon/rig/spawn.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/message.h"

#define ARGUMENTS_MAX 40
#define SPAWN_PATH_MAX 4096

void spawn_make(struct spawn *spawn)
{
    memset(spawn, 0, sizeof(*spawn));
    snprintf(spawn->directory, sizeof(spawn->directory), "/tmp/sluiced-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(spawn->directory));
    snprintf(spawn->socket, sizeof(spawn->socket), "%s/s.sock", spawn->directory);
    snprintf(spawn->log, sizeof(spawn->log), "%s/log", spawn->directory);
    snprintf(spawn->config, sizeof(spawn->config), "%s/config", spawn->directory);
}

/* A build may have moved to the machine with the device: $SPAWN_BUILD is where it is. */
static void find(char sluiced[SPAWN_PATH_MAX], char modules[SPAWN_PATH_MAX])
{
    const char *build = getenv("SPAWN_BUILD");
    snprintf(sluiced, SPAWN_PATH_MAX, "%s%s", build ? build : "",
             build ? "/daemon/sluiced" : SLUICED);
    snprintf(modules, SPAWN_PATH_MAX, "%s%s", build ? build : "", build ? "/gpu" : SLUICE_MODULES);
}

static void become(const struct spawn *spawn, const char *const *arguments,
                   const char *const *environment)
{
    char sluiced[SPAWN_PATH_MAX], modules[SPAWN_PATH_MAX];
    find(sluiced, modules);
    const char *argv[ARGUMENTS_MAX] = {sluiced, "--socket", spawn->socket, "--module-dir", modules};
    size_t count = 5;
    while (*arguments && count + 1 < ARGUMENTS_MAX)
        argv[count++] = *arguments++;
    for (; environment && *environment; environment++)
        putenv((char *)(uintptr_t)*environment);
    int log = open(spawn->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDERR_FILENO);
    dup2(log, STDOUT_FILENO);
    close(log);
    const struct rlimit limit = {spawn->descriptors, spawn->descriptors};
    if (spawn->descriptors > 0) {
        close_range(STDERR_FILENO + 1, ~0u, 0); /* what the test was started with counts, too */
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (spawn->closed >> fd & 1)
            close(fd);
    execv(sluiced, (char *const *)(uintptr_t)argv);
    _exit(127);
}

void spawn_start(struct spawn *spawn, const char *const *arguments, const char *const *environment)
{
    spawn->pid = fork();
    ck_assert_int_ge(spawn->pid, 0);
    if (spawn->pid == 0)
        become(spawn, arguments, environment);
}

void spawn_await_ready(struct spawn *spawn)
{
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10; tries++) {
        struct wire wire;
        struct frame frame;
        if (wire_try(&wire, spawn)) {
            wire_control(&wire, FRAME_HEALTH, "");
            wire_find(&wire, FRAME_HEALTH, &frame);
            bool ok = memmem(frame.head, frame.head_length, "\"status\":\"ok\"", 13) != NULL;
            wire_close(&wire);
            if (ok)
                return;
        }
        ck_assert_msg(waitpid(spawn->pid, NULL, WNOHANG) == 0, "the daemon ended by itself: %s",
                      spawn_last_words(spawn));
        poll(NULL, 0, 10);
    }
    ck_abort_msg("the daemon is not ready in time");
}

int spawn_wait(struct spawn *spawn)
{
    int status;
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10; tries++) {
        if (waitpid(spawn->pid, &status, WNOHANG) == spawn->pid) {
            spawn->pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
        poll(NULL, 0, 10);
    }
    ck_abort_msg("the daemon does not end");
}

bool spawn_logged(const struct spawn *spawn, const char *text)
{
    static char log[1u << 20];
    FILE *file = fopen(spawn->log, "r");
    size_t length = file ? fread(log, 1, sizeof(log), file) : 0;
    if (file)
        fclose(file);
    return memmem(log, length, text, strlen(text)) != NULL;
}

bool spawn_logs(const struct spawn *spawn, const char *text)
{
    for (int tries = 0; tries < SPAWN_PATIENCE_MS / 10 && spawn->pid > 0; tries++) {
        if (spawn_logged(spawn, text))
            return true;
        poll(NULL, 0, 10);
    }
    return spawn_logged(spawn, text);
}

const char *spawn_last_words(const struct spawn *spawn)
{
    static char words[2048]; /* Check takes messages of 4 KiB */
    FILE *file = fopen(spawn->log, "r");
    if (file && fseek(file, -(long)(sizeof(words) - 1), SEEK_END) != 0)
        rewind(file); /* all of it is shorter */
    size_t length = file ? fread(words, 1, sizeof(words) - 1, file) : 0;
    words[length] = '\0';
    if (file)
        fclose(file);
    return words;
}

uint32_t spawn_descriptors(const struct spawn *spawn)
{
    char path[64];
    uint32_t count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)spawn->pid);
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

uint64_t spawn_resident(const struct spawn *spawn)
{
    char path[64];
    unsigned long total, resident;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)spawn->pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t spawn_peak(const struct spawn *spawn)
{
    char path[64], line[128];
    unsigned long long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)spawn->pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (kib == 0 && fgets(line, sizeof(line), file))
        sscanf(line, "VmHWM: %llu kB", &kib);
    fclose(file);
    ck_assert_uint_gt(kib, 0);
    return (uint64_t)kib * 1024;
}

void spawn_free(struct spawn *spawn)
{
    char lock[112];
    if (spawn->pid > 0) {
        kill(spawn->pid, SIGKILL);
        waitpid(spawn->pid, NULL, 0);
    }
    snprintf(lock, sizeof(lock), "%s.lock", spawn->socket);
    unlink(spawn->socket);
    unlink(lock);
    unlink(spawn->log);
    unlink(spawn->config);
    rmdir(spawn->directory);
}

/* ---- wire --------------------------------------------------------------------------------------
 */

int wire_connect(const struct spawn *spawn)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, spawn->socket, strlen(spawn->socket));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

bool wire_try(struct wire *wire, const struct spawn *spawn)
{
    const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "test"};
    unsigned char buffer[512];
    struct frame frame;
    wire->length = wire->used = 0;
    wire->fd = wire_connect(spawn);
    if (wire->fd < 0)
        return false;
    size_t length = message_encode_hello(buffer, sizeof(buffer), &hello);
    if (send(wire->fd, buffer, length, MSG_NOSIGNAL) == (ssize_t)length &&
        wire_next(wire, &frame)) {
        ck_assert_uint_eq(frame.type, FRAME_WELCOME);
        return true;
    }
    close(wire->fd);
    return false;
}

void wire_open(struct wire *wire, const struct spawn *spawn)
{
    ck_assert_msg(wire_try(wire, spawn), "no WELCOME: %s", spawn_last_words(spawn));
}

void wire_close(struct wire *wire)
{
    close(wire->fd);
}

void wire_send(struct wire *wire, const void *bytes, size_t length)
{
    ck_assert_int_eq(send(wire->fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

bool wire_next(struct wire *wire, struct frame *ret_frame)
{
    memmove(wire->buffer, wire->buffer + wire->used, wire->length - wire->used);
    wire->length -= wire->used;
    wire->used = 0;
    for (;;) {
        struct error error;
        struct pollfd poll_fd = {.fd = wire->fd, .events = POLLIN};
        size_t used;
        enum frame_status status = frame_decode(wire->buffer, wire->length, sizeof(wire->buffer),
                                                ret_frame, &used, &error);
        ck_assert_msg(status != FRAME_BAD, "%s", error.text);
        if (status == FRAME_OK) {
            wire->used = used;
            return true;
        }
        ck_assert_msg(poll(&poll_fd, 1, SPAWN_PATIENCE_MS) == 1, "no answer in time");
        ssize_t got =
            recv(wire->fd, wire->buffer + wire->length, sizeof(wire->buffer) - wire->length, 0);
        if (got <= 0)
            return false;
        wire->length += (size_t)got;
    }
}

void wire_find(struct wire *wire, uint8_t type, struct frame *ret_frame)
{
    while (wire_next(wire, ret_frame))
        if (ret_frame->type == type)
            return;
    ck_abort_msg("the stream ended before a frame of type %u", type);
}

struct message_done wire_done(struct wire *wire)
{
    struct message_done message;
    struct frame frame;
    struct error error;
    wire_find(wire, FRAME_DONE, &frame);
    ck_assert_int_eq(message_decode_done(&frame, &message, &error), 0);
    return message;
}

void wire_control(struct wire *wire, uint8_t type, const char *head)
{
    unsigned char buffer[1024];
    wire_send(wire, buffer,
              message_encode_control(buffer, sizeof(buffer), type, 0, 1, head, strlen(head)));
}

size_t wire_encode_generate(void *buffer, size_t size, uint64_t id, uint32_t count,
                            uint32_t max_tokens)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    struct message_prompt prompts[64];
    for (uint32_t i = 0; i < count; i++) {
        prompts[i] = (struct message_prompt){
            .sampling = sampling_unset(), .tokens = tokens, .token_count = 5};
        prompts[i].sampling.max_tokens = max_tokens;
        prompts[i].sampling.ignore_eos = true;
    }
    const struct message_submit_out submit = {.params.job = JOB_GENERATE,
                                              .params.stream = true,
                                              .params.normalize = true,
                                              .prompt_count = count,
                                              .prompts = prompts};
    size_t length = message_encode_submit(buffer, size, id, &submit);
    ck_assert_uint_gt(length, 0);
    return length;
}

void wire_generate(struct wire *wire, uint64_t id, uint32_t count, uint32_t max_tokens)
{
    static _Alignas(8) unsigned char buffer[1u << 16];
    wire_send(wire, buffer, wire_encode_generate(buffer, sizeof(buffer), id, count, max_tokens));
}
