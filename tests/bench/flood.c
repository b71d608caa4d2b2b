/* A server that costs next to nothing, to find what the load generator itself can drive: it answers
 * each SUBMIT at once by ACCEPT, one token and DONE, of which only ids are written anew. One
 * thread.
 *
 * flood PATH: listens there until it is killed. Used by flood.sh. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/message.h"

#define INPUT_MAX (4u << 20)
#define OUTPUT_MAX (4u << 20)
#define ID_AT 8 /* in a frame's header */

struct peer {
    int fd;
    size_t used;
    unsigned char input[INPUT_MAX];
};

static unsigned char template[1024], output[OUTPUT_MAX];
static size_t template_size, frames[3];

static void make_template(void)
{
    const int32_t token = 7;
    const struct message_tokens record = {.count = 1, .tokens = &token};
    const struct message_done done = {.finish = FINISH_LENGTH,
                                      .prompt_tokens = 8,
                                      .completion_tokens = 1,
                                      .queued_us = 1,
                                      .first_token_us = 2,
                                      .total_us = 3};
    size_t size = message_encode_accept(template, sizeof(template), 1, 1001);
    frames[1] = size;
    frame_encode_header(template + size, FRAME_TOKENS, 0, 1, 0,
                        (uint32_t)message_tokens_size(&record));
    size += FRAME_HEADER_SIZE;
    size += message_put_tokens(template + size, sizeof(template) - size, &record);
    frames[2] = size;
    template_size = size + message_encode_done(template + size, sizeof(template) - size, 1,
                                               FRAME_FLAG_LAST, &done);
}

static size_t greet(unsigned char *out)
{
    const struct message_welcome welcome = {.version = 1,
                                            .frame_max = 16u << 20,
                                            .batch_max = 4096,
                                            .context_max = 8192,
                                            .vocabulary = 257,
                                            .logprobs_max = 20,
                                            .n_max = 128,
                                            .model = "flood",
                                            .device = "none"};
    return message_encode_welcome(out, 4096, &welcome);
}

static bool put(int fd, const unsigned char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Answers every whole frame there is; false when the peer is to be closed. */
static bool serve(struct peer *peer)
{
    ssize_t count = recv(peer->fd, peer->input + peer->used, INPUT_MAX - peer->used, 0);
    size_t at = 0, made = 0, used;
    struct frame frame;
    struct error error;
    if (count <= 0)
        return false;
    peer->used += (size_t)count;
    while (frame_decode(peer->input + at, peer->used - at, INPUT_MAX, &frame, &used, &error) ==
           FRAME_OK) {
        if (OUTPUT_MAX - made < 4096) {
            if (!put(peer->fd, output, made))
                return false;
            made = 0;
        }
        if (frame.type == FRAME_HELLO) {
            made += greet(output + made);
        } else if (frame.type == FRAME_SUBMIT) {
            memcpy(output + made, template, template_size);
            for (int i = 0; i < 3; i++)
                memcpy(output + made + frames[i] + ID_AT, &frame.id, sizeof(frame.id));
            made += template_size;
        }
        at += used;
    }
    peer->used -= at;
    memmove(peer->input, peer->input + at, peer->used);
    return put(peer->fd, output, made);
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), watch = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (argc != 2)
        return 2;
    make_template();
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", argv[1]);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 64) ||
        epoll_ctl(watch, EPOLL_CTL_ADD, listener, &event)) {
        perror(argv[1]);
        return 1;
    }
    while (epoll_wait(watch, &event, 1, -1) == 1) {
        struct peer *peer = event.data.ptr;
        if (peer) {
            if (!serve(peer)) {
                close(peer->fd);
                free(peer);
            }
            continue;
        }
        peer = malloc(sizeof(*peer));
        if (!peer)
            return 1;
        peer->fd = accept(listener, NULL, NULL);
        peer->used = 0;
        event = (struct epoll_event){.events = EPOLLIN, .data.ptr = peer};
        epoll_ctl(watch, EPOLL_CTL_ADD, peer->fd, &event);
    }
    return 1;
}
