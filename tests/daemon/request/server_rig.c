#include "tests/daemon/request/server_rig.h"

#include <check.h>

struct world world;
struct client client, other;
uint32_t server_rig_refuses;

int __real_seq_make_room(struct seq *seq, uint32_t hidden, struct error *error);
int __wrap_seq_make_room(struct seq *seq, uint32_t hidden, struct error *error);

int __wrap_seq_make_room(struct seq *seq, uint32_t hidden, struct error *error)
{
    if (server_rig_refuses == 0)
        return __real_seq_make_room(seq, hidden, error);
    server_rig_refuses--;
    return error_set(error, ERR_NO_MEMORY, "no memory for the results of a sequence");
}

void server_rig_setup(void)
{
    server_rig_refuses = 0;
    world_make(&world);
    world_ready(&world);
    client_open(&world, &client, 1000);
    client_open(&world, &other, 2000);
}

void server_rig_teardown(void)
{
    client_free(&client);
    client_free(&other);
    world_free(&world);
}

const struct ask one = {
    .job = JOB_GENERATE, .id = 1, .count = 1, .length = 4, .max_tokens = 5, .first = 100};

enum finish next_finish(struct client *of)
{
    struct frame frame;
    struct message_done done;
    struct error error;
    ck_assert(client_find(of, FRAME_DONE, &frame));
    ck_assert_int_eq(message_decode_done(&frame, &done, &error), 0);
    return done.finish;
}

uint64_t next_accept(struct client *of)
{
    struct frame frame;
    struct error error;
    uint64_t request = 0;
    ck_assert(client_find(of, FRAME_ACCEPT, &frame));
    ck_assert_int_eq(message_decode_accept(&frame, &request, &error), 0);
    return request;
}

uint32_t done_count(struct client *of)
{
    struct frame frame;
    uint32_t count = 0;
    while (client_find(of, FRAME_DONE, &frame))
        count++;
    return count;
}
