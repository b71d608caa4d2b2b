#include "tests/client/peer.h"

#include <check.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/request/session.h"

void peer_open(struct peer *peer)
{
    struct error error;
    int pair[2];
    memset(peer, 0, sizeof(*peer));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    peer->fd = pair[1];
    ck_assert_int_eq(session_make(pair[0], &peer->client, &error), 0);
}

size_t peer_welcome(void *out, size_t size)
{
    const struct message_welcome welcome = {.version = 1,
                                            .frame_max = 1 << 20,
                                            .batch_max = 256,
                                            .context_max = 4096,
                                            .vocabulary = 257,
                                            .logprobs_max = 20,
                                            .n_max = 16,
                                            .model = "m",
                                            .device = "d"};
    return message_encode_welcome(out, size, &welcome);
}

void peer_greet(struct peer *peer)
{
    unsigned char out[1024];
    struct frame hello;
    ck_assert(peer_next(peer, &hello));
    ck_assert_uint_eq(hello.type, FRAME_HELLO);
    peer_send(peer, out, peer_welcome(out, sizeof(out)));
    ck_assert_int_eq(sluice_client_process(peer->client), 0);
    ck_assert_str_eq(sluice_client_info(peer->client)->model, "m");
}

void peer_close(struct peer *peer)
{
    sluice_close(peer->client);
    if (peer->fd >= 0)
        close(peer->fd);
}

void peer_send(struct peer *peer, const void *bytes, size_t length)
{
    ck_assert_int_eq(send(peer->fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

bool peer_next(struct peer *peer, struct frame *ret_frame)
{
    struct error error;
    struct frame frame;
    size_t used;
    static unsigned char kept[sizeof(peer->in)];
    ssize_t count =
        recv(peer->fd, peer->in + peer->used, sizeof(peer->in) - peer->used, MSG_DONTWAIT);
    if (count > 0)
        peer->used += (size_t)count;
    if (frame_decode(peer->in, peer->used, 1 << 20, &frame, &used, &error) != FRAME_OK)
        return false;
    memcpy(kept, peer->in, used);
    peer->used -= used;
    memmove(peer->in, peer->in + used, peer->used);
    ck_assert_int_eq(frame_decode(kept, used, 1 << 20, ret_frame, &used, &error), FRAME_OK);
    return true;
}

size_t peer_conversation(void *out, size_t size, uint64_t id)
{
    unsigned char *at = out;
    const int32_t tokens[2] = {17, 18};
    struct message_error failure = {1, {0}};
    const struct message_done done = {
        .sequence = 0, .finish = FINISH_LENGTH, .prompt_tokens = 3, .completion_tokens = 1};
    size_t records = 0;
    error_set(&failure.error, ERR_DEVICE, "gone");
    at += message_encode_accept(at, size, id, 1001);
    for (uint32_t i = 0; i < 2; i++) {
        struct message_tokens record = {.sequence = i, .count = 1, .tokens = &tokens[i]};
        records += message_put_tokens(at + FRAME_HEADER_SIZE + records, 256, &record);
    }
    frame_encode_header(at, FRAME_TOKENS, 0, id, 0, (uint32_t)records);
    at += FRAME_HEADER_SIZE + records;
    at += message_encode_done(at, 512, id, 0, &done);
    at += message_encode_error(at, 1024, id, FRAME_FLAG_LAST, &failure);
    return (size_t)(at - (unsigned char *)out);
}
