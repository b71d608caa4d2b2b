#include "tests/faults/scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/base/clock.h"
#include "protocol/frame.h"
#include "protocol/message.h"

#define PROMPTS 3
#define TOKENS 12
#define LEAVE_MS 5000 /* for descriptors of clients that have gone */
#define DYING_MS 500  /* for a process whose clients saw it die */

/* In the daemon's own directory. */
enum file { SOCKET, SOCKET_LOCK, HTTP, HTTP_LOCK, LOG, CONFIG, PROFILE, NOTIFY, SEEN, FILES };
static const char *const files[FILES] = {"socket", "socket.lock", "http",   "http.lock", "log",
                                         "config", "profile",     "notify", "seen"};

struct scene {
    pid_t pid; /* 0 once it has ended */
    int status;
    const struct scene_fault *fault;
    struct scene_report *report;
    struct faults_seen *seen;
    char directory[64];
    char paths[FILES][96];
    int notify;
    bool was_ready;
};

static bool wrong(struct scene *scene, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(struct scene *scene, const char *format, ...)
{
    va_list list;
    if (scene->report->outcome == SCENE_WRONG)
        return false;
    scene->report->outcome = SCENE_WRONG;
    va_start(list, format);
    vsnprintf(scene->report->wrong, sizeof(scene->report->wrong), format, list);
    va_end(list);
    return false;
}

static bool struck(const struct scene *scene)
{
    return atomic_load(&scene->seen->struck) > 0;
}

static bool for_ever(const struct scene *scene)
{
    const char *name = scene->fault->call ? scene->fault->name : "";
    return *name && name[strlen(name) - 1] == '*';
}

static bool faulty(const struct scene *scene, const char *call)
{
    return scene->fault->call && strcmp(scene->fault->call, call) == 0;
}

/* Whether the process has ended. */
static bool ended(struct scene *scene)
{
    if (scene->pid > 0 && waitpid(scene->pid, &scene->status, WNOHANG) == scene->pid)
        scene->pid = 0;
    return scene->pid == 0;
}

/* Nobody is ever accepted: then clients wait, as they do when a daemon has no descriptors left. */
static bool unheard(const struct scene *scene)
{
    return faulty(scene, "accept4") && for_ever(scene) && struck(scene);
}

/* ---- clients -----------------------------------------------------------------------------------
 * What one is told: all it asked for, a refusal or a closed connection, or what may not be.
 */

enum told { TOLD_ALL, TOLD_NO, TOLD_WRONG };

/* -1 at the end of what came in time; 0 at the end of the stream. */
static ssize_t receive(struct scene *scene, int fd, void *bytes, size_t room)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    for (int ms = 0; poll(&readable, 1, 100) == 0; ms += 100) {
        if (unheard(scene))
            return -1;
        if (ms >= SCENE_PATIENCE_MS) {
            wrong(scene, "no answer in time: a client hangs");
            return -1;
        }
    }
    return recv(fd, bytes, room, 0);
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, path, strlen(path));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

struct talk {
    struct scene *scene;
    int fd;
    _Alignas(8) unsigned char buffer[1u << 16];
    size_t length, used; /* used: of the frame given last */
    bool over[PROMPTS], refused;
    uint64_t sum[PROMPTS]; /* of its tokens */
};

/* The next frame; NULL at the end of the stream, or when the scene went wrong. */
static const struct frame *next_frame(struct talk *talk, struct frame *frame)
{
    struct error error;
    memmove(talk->buffer, talk->buffer + talk->used, talk->length - talk->used);
    talk->length -= talk->used;
    talk->used = 0;
    for (;;) {
        size_t used;
        switch (frame_decode(talk->buffer, talk->length, sizeof(talk->buffer), frame, &used, &error)) {
        case FRAME_OK:
            talk->used = used;
            return frame;
        case FRAME_BAD:
            wrong(talk->scene, "a frame is broken: %s", error.text);
            return NULL;
        case FRAME_MORE:
            break;
        }
        ssize_t got = receive(talk->scene, talk->fd, talk->buffer + talk->length,
                              sizeof(talk->buffer) - talk->length);
        if (got <= 0)
            return NULL;
        talk->length += (size_t)got;
    }
}

static void end_of(struct talk *talk, uint32_t sequence)
{
    if (sequence >= PROMPTS || talk->over[sequence])
        wrong(talk->scene, "sequence %u ends twice, or was not asked for", sequence);
    else
        talk->over[sequence] = true;
}

static void take_error(struct talk *talk, const struct frame *frame)
{
    struct message_error message;
    struct error error;
    talk->refused = true;
    if (message_decode_error(frame, &message, &error)) {
        wrong(talk->scene, "an error cannot be read: %s", error.text);
        return;
    }
    if (message.sequence != MESSAGE_NO_SEQUENCE)
        end_of(talk, message.sequence);
    for (uint32_t i = 0; message.sequence == MESSAGE_NO_SEQUENCE && frame->id && i < PROMPTS; i++)
        end_of(talk, i);
}

static void take_done(struct talk *talk, const struct frame *frame)
{
    struct message_done done;
    struct error error;
    if (message_decode_done(frame, &done, &error))
        wrong(talk->scene, "an end cannot be read: %s", error.text);
    else if (done.finish == FINISH_LENGTH && done.completion_tokens != TOKENS)
        wrong(talk->scene, "a sequence ended with %u tokens", done.completion_tokens);
    else if (done.finish != FINISH_ERROR) /* that one has an ERROR, too */
        end_of(talk, done.sequence);
}

static void take_tokens(struct talk *talk, const struct frame *frame)
{
    struct message_tokens record;
    struct error error;
    size_t offset = 0;
    while (message_next_tokens(frame, &offset, &record, &error) == 0)
        for (uint32_t i = 0; i < record.count && record.sequence < PROMPTS; i++)
            talk->sum[record.sequence] =
                talk->sum[record.sequence] * 1099511628211u + (uint32_t)record.tokens[i];
}

static bool all_over(const struct talk *talk)
{
    bool all = true;
    for (int i = 0; i < PROMPTS; i++)
        all = all && talk->over[i];
    return all;
}

/* The prompts are equal, and so are their answers. */
static enum told judge(struct talk *talk)
{
    static uint64_t sum; /* of the first whole answer in this process's lifetime */
    if (talk->scene->report->outcome == SCENE_WRONG)
        return TOLD_WRONG;
    if (!all_over(talk) || talk->refused)
        return TOLD_NO;
    if (sum == 0)
        sum = talk->sum[0];
    for (int i = 0; i < PROMPTS; i++)
        if (talk->sum[i] != sum) {
            wrong(talk->scene, "tokens differ between equal prompts");
            return TOLD_WRONG;
        }
    return TOLD_ALL;
}

static size_t encode_generate(void *buffer, size_t size)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    struct message_prompt prompts[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) {
        prompts[i] = (struct message_prompt){
            .sampling = sampling_unset(), .tokens = tokens, .token_count = 5};
        prompts[i].sampling.max_tokens = TOKENS;
        prompts[i].sampling.ignore_eos = true;
    }
    const struct message_submit_out submit = {.params.job = JOB_GENERATE,
                                              .params.stream = true,
                                              .params.normalize = true,
                                              .prompt_count = PROMPTS,
                                              .prompts = prompts};
    return message_encode_submit(buffer, size, 1, &submit);
}

static enum told generate(struct scene *scene)
{
    static const struct message_hello hello = {.version_min = 1, .version_max = 1, .client = "f"};
    static _Alignas(8) unsigned char buffer[1u << 14];
    static struct talk talk;
    struct frame frame;
    talk = (struct talk){.scene = scene, .fd = connect_to(scene->paths[SOCKET])};
    if (talk.fd < 0)
        return TOLD_NO;
    size_t length = message_encode_hello(buffer, sizeof(buffer), &hello);
    length += encode_generate(buffer + length, sizeof(buffer) - length);
    if (send(talk.fd, buffer, length, MSG_NOSIGNAL) == (ssize_t)length) {
        while (!all_over(&talk) && next_frame(&talk, &frame)) {
            if (frame.type == FRAME_TOKENS)
                take_tokens(&talk, &frame);
            else if (frame.type == FRAME_DONE)
                take_done(&talk, &frame);
            else if (frame.type == FRAME_ERROR)
                take_error(&talk, &frame);
        }
    }
    close(talk.fd);
    return judge(&talk);
}

static enum told complete(struct scene *scene)
{
    /* Constrained: by threads of its own, and samplings behind the steps. */
    static const char body[] = "{\"prompt\":[1,2,3],\"max_tokens\":5,"
                               "\"structured_outputs\":{\"regex\":\"[a-z]{5,9}\"}}";
    static char answer[1u << 16];
    char request[512];
    size_t length = 0;
    ssize_t got = 0;
    int fd = connect_to(scene->paths[HTTP]);
    if (fd < 0)
        return TOLD_NO;
    int size = snprintf(request, sizeof(request),
                        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        sizeof(body) - 1, body);
    if (send(fd, request, (size_t)size, MSG_NOSIGNAL) == size)
        while ((got = receive(scene, fd, answer + length, sizeof(answer) - 1 - length)) > 0)
            length += (size_t)got;
    close(fd);
    answer[length] = '\0';
    if (scene->report->outcome == SCENE_WRONG)
        return TOLD_WRONG;
    bool whole = strstr(answer, " 200 ") && strstr(answer, "\"completion_tokens\":5");
    if (length > 0 && !whole && strstr(answer, " 200 "))
        wrong(scene, "an HTTP answer of 200 is not whole: %.200s", answer);
    return scene->report->outcome == SCENE_WRONG ? TOLD_WRONG : whole ? TOLD_ALL : TOLD_NO;
}

/* ---- a life ------------------------------------------------------------------------------------
 */

static void prepare(struct scene *scene)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(scene->directory, "/tmp/sluiced-XXXXXX");
    if (!mkdtemp(scene->directory))
        abort();
    for (int i = 0; i < FILES; i++)
        snprintf(scene->paths[i], sizeof(scene->paths[i]), "%s/%s", scene->directory, files[i]);
    int fd = open(scene->paths[SEEN], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (ftruncate(fd, sizeof(*scene->seen)) != 0)
        abort();
    scene->seen = mmap(NULL, sizeof(*scene->seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fd = open(scene->paths[CONFIG], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (write(fd, "batch-max = 100\n", 16) != 16)
        abort();
    close(fd);
    memcpy(address.sun_path, scene->paths[NOTIFY], strlen(scene->paths[NOTIFY]));
    scene->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(scene->notify, (const struct sockaddr *)&address, sizeof(address)) != 0)
        abort();
}

static void become(const struct scene *scene, const char *model)
{
    char http[128], fault[96], number[32];
    snprintf(http, sizeof(http), "unix:%s", scene->paths[HTTP]);
    snprintf(number, sizeof(number), "%lu", scene->fault->nth);
    snprintf(fault, sizeof(fault), "%s:%s:%s", scene->fault->call ? scene->fault->call : "",
             number, scene->fault->name);
    const char *const argv[] = {
        SLUICED, "--socket", scene->paths[SOCKET], "--module-dir", SLUICE_MODULES, "--model", model,
        "--device", "cpu", "--http", http, "--config", scene->paths[CONFIG], "--stall-timeout", "1s",
        "--handshake-timeout", "1s", "--frame-timeout", "1s", "--drain-timeout", "2s",
        "--profile-steps", "3", "--profile-file", scene->paths[PROFILE], NULL};
    setenv("SLUICE_TEST_SEEN", scene->paths[SEEN], 1);
    setenv("NOTIFY_SOCKET", scene->paths[NOTIFY], 1);
    if (scene->fault->call)
        setenv("SLUICE_TEST_FAULT", fault, 1);
    int log = open(scene->paths[LOG], O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, STDERR_FILENO);
    dup2(log, STDOUT_FILENO);
    close(log);
    execv(SLUICED, (char *const *)(uintptr_t)argv);
    _exit(127);
}

static void start(struct scene *scene, const char *model)
{
    scene->pid = fork();
    if (scene->pid == 0)
        become(scene, model);
}

static bool logged(const struct scene *scene, const char *text)
{
    static char log[1u << 18];
    int fd = open(scene->paths[LOG], O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, log, sizeof(log)) : 0;
    if (fd >= 0)
        close(fd);
    return length > 0 && memmem(log, (size_t)length, text, strlen(text));
}

static void take_words(struct scene *scene)
{
    char word[1024];
    ssize_t got;
    while ((got = recv(scene->notify, word, sizeof(word) - 1, 0)) > 0) {
        word[got] = '\0';
        scene->was_ready = scene->was_ready || strncmp(word, "READY=1", 7) == 0;
    }
}

/* Until it says that it is ready, or has ended. Without a word it may still serve: then it is given a
 * while, and asked. */
static void await_ready(struct scene *scene)
{
    time_us end_us = clock_now_us() + SCENE_PATIENCE_MS * 1000u;
    if (for_ever(scene) && (faulty(scene, "sendto") || faulty(scene, "accept4")))
        end_us = clock_now_us() + 1000000u;
    while (!ended(scene) && !scene->was_ready && clock_now_us() < end_us) {
        poll(NULL, 0, 2);
        take_words(scene);
    }
    if (!ended(scene) && !scene->was_ready && !for_ever(scene))
        wrong(scene, "alive, and not ready in time");
}

static unsigned count_descriptors(const struct scene *scene)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)scene->pid);
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static void check_descriptors(struct scene *scene, unsigned allowed)
{
    time_us end_us = clock_now_us() + LEAVE_MS * 1000u;
    if (allowed && faulty(scene, "pthread_create"))
        allowed++; /* the profile that no thread could write stays open to the end */
    unsigned count = count_descriptors(scene);
    while (allowed && count > allowed && clock_now_us() < end_us && !ended(scene)) {
        poll(NULL, 0, 5);
        count = count_descriptors(scene);
    }
    scene->report->descriptors = count;
    if (allowed && count > allowed && !ended(scene))
        wrong(scene, "%u descriptors are open, not %u", count, allowed);
}

/* Two rounds of clients: what struck in the first must not be felt in the second. */
static void visit(struct scene *scene)
{
    for (int round = 0; round < 2; round++) {
        bool before = struck(scene) && !for_ever(scene);
        enum told told[2] = {generate(scene), complete(scene)};
        bool all = told[0] == TOLD_ALL && told[1] == TOLD_ALL;
        for (int ms = 0; !all && !unheard(scene) && ms < DYING_MS && !ended(scene); ms += 5)
            poll(NULL, 0, 5);
        for (int i = 0; i < 2 && !ended(scene); i++) {
            const char *who = i ? "HTTP" : "the native protocol";
            if (told[i] == TOLD_NO && before)
                wrong(scene, "a client of %s is refused after the fault has passed", who);
            if (told[i] == TOLD_NO && !struck(scene))
                wrong(scene, "a client of %s is refused without a fault", who);
        }
    }
}

/* libuv 1.44 aborts where it cannot make its first pipe or its threads (tried before by the daemon,
 * but for these it is too late), or watch a descriptor that it could watch a moment ago. */
static bool libuv_aborts(const struct scene *scene)
{
    bool threads = faulty(scene, "pthread_create") && !scene->was_ready;
    return (faulty(scene, "pipe2") || faulty(scene, "epoll_ctl") || threads) && struck(scene) &&
           WIFSIGNALED(scene->status) && WTERMSIG(scene->status) == SIGABRT;
}

static void check_ended_by_itself(struct scene *scene)
{
    int code = WIFEXITED(scene->status) ? WEXITSTATUS(scene->status) : -1;
    if (libuv_aborts(scene))
        return;
    if (!struck(scene))
        wrong(scene, "ended by itself without a fault, exit code %d", code);
    else if (code != 75 && code != 78)
        wrong(scene, "ended by itself with %s %d", code < 0 ? "signal" : "exit code",
              code < 0 ? WTERMSIG(scene->status) : code);
    else if (!faulty(scene, "write") && !logged(scene, " error "))
        wrong(scene, "ended by itself without a word, exit code %d", code);
}

static void end(struct scene *scene)
{
    kill(scene->pid, SIGTERM);
    for (int ms = 0; ms < SCENE_PATIENCE_MS && !ended(scene); ms += 5)
        poll(NULL, 0, 5);
    if (!ended(scene)) {
        wrong(scene, "does not end");
        return;
    }
    int code = WIFEXITED(scene->status) ? WEXITSTATUS(scene->status) : -1;
    if (libuv_aborts(scene))
        return;
    if (code != 0 && (code != 75 || !struck(scene)))
        wrong(scene, "asked to end, it did with %s %d", code < 0 ? "signal" : "exit code",
              code < 0 ? WTERMSIG(scene->status) : code);
    bool there = access(scene->paths[SOCKET], F_OK) == 0;
    if (code == 0 && there && !faulty(scene, "unlink") && !faulty(scene, "lstat"))
        wrong(scene, "the socket's file is left behind");
}

static void clear(struct scene *scene)
{
    for (int call = 0; call < FAULTS_CALLS; call++)
        scene->report->calls[call] = atomic_load(&scene->seen->calls[call]);
    close(scene->notify);
    munmap(scene->seen, sizeof(*scene->seen));
    if (scene->pid > 0) {
        kill(scene->pid, SIGKILL);
        waitpid(scene->pid, NULL, 0);
    }
    for (int i = 0; i < FILES; i++)
        unlink(scene->paths[i]);
    rmdir(scene->directory);
}

void scene_run(const char *model, const struct scene_fault *fault, unsigned descriptors,
               struct scene_report *ret_report)
{
    struct scene scene = {.fault = fault, .report = ret_report};
    memset(ret_report, 0, sizeof(*ret_report));
    prepare(&scene);
    start(&scene, model);
    await_ready(&scene);
    if (!ended(&scene))
        visit(&scene);
    if (!ended(&scene)) {
        kill(scene.pid, SIGHUP);
        poll(NULL, 0, 20); /* two signals at once may come in either order */
        check_descriptors(&scene, for_ever(&scene) ? 0 : descriptors);
    }
    if (!ended(&scene))
        end(&scene);
    else
        check_ended_by_itself(&scene);
    if (ret_report->outcome == SCENE_GOOD && fault->call && !struck(&scene))
        ret_report->outcome = SCENE_NOT_STRUCK;
    clear(&scene);
}
