#include "tests/hostile/scene.h"

#include <check.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hostile/bad.h"

const char *const scene_null_model[] = {"--model",
                                        "synthetic:null",
                                        "--device",
                                        "cpu",
                                        "--log-level",
                                        "debug",
                                        "--cpu-threads",
                                        "1",
                                        "--kv-idle-release",
                                        "100ms",
                                        "--cache-idle-release",
                                        "100ms",
                                        NULL};

uint64_t scene_gauge(const struct scene *scene, const char *name)
{
    struct wire own;
    struct frame frame;
    char text[16384], key[64];
    wire_open(&own, &scene->spawn);
    wire_control(&own, FRAME_STATS, "");
    wire_find(&own, FRAME_STATS, &frame);
    ck_assert_uint_lt(frame.head_length, sizeof(text));
    memcpy(text, frame.head, frame.head_length);
    text[frame.head_length] = '\0';
    wire_close(&own);
    ck_assert_ptr_null(strstr(text, BAD_CANARY));
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *found = strstr(text, key);
    ck_assert_msg(found != NULL, "no %s in %s", name, text);
    return strtoull(found + strlen(key), NULL, 10);
}

void scene_start(struct scene *scene, const char *const *arguments, const struct canary_song *song)
{
    scene->slack = 2u << 20;
    spawn_start(&scene->spawn, arguments, NULL);
    spawn_await_ready(&scene->spawn);
    canary_start(&scene->canary, scene->spawn.socket, 7, song);
    /* What memory it takes is of interest where it is known. */
    ck_assert_msg(canary_sings(&scene->canary, SCENE_RESIDENT_KNOWN ? 200 : 20), "%s",
                  scene->canary.wrong);
    scene->descriptors = spawn_descriptors(&scene->spawn);
    scene->resident = spawn_resident(&scene->spawn);
}

static bool settled(const struct scene *scene)
{
    return scene_gauge(scene, "live_sequences") == 0 && scene_gauge(scene, "requests") == 0 &&
           scene_gauge(scene, "waiting") == 0 &&
           spawn_descriptors(&scene->spawn) <= scene->descriptors &&
           (!SCENE_RESIDENT_KNOWN ||
            spawn_resident(&scene->spawn) <= scene->resident + scene->slack);
}

void scene_check(struct scene *scene)
{
    ck_assert_msg(canary_sings(&scene->canary, 20), "the canary: %s", scene->canary.wrong);
}

void scene_end(struct scene *scene)
{
    scene_check(scene);
    canary_stop(&scene->canary);
    ck_assert_msg(scene->canary.wrong[0] == '\0', "the canary: %s", scene->canary.wrong);
    bool same = false;
    for (int i = 0; i < SCENE_SETTLE_MS / 20 && !(same = settled(scene)); i++)
        poll(NULL, 0, 20);
    ck_assert_msg(same,
                  "%" PRIu64 " sequences live, %" PRIu64
                  " waiting; %u descriptors, were %u; %" PRIu64 " bytes, were %" PRIu64,
                  scene_gauge(scene, "live_sequences"), scene_gauge(scene, "waiting"),
                  spawn_descriptors(&scene->spawn), scene->descriptors,
                  spawn_resident(&scene->spawn), scene->resident);
    kill(scene->spawn.pid, SIGTERM);
    int code = spawn_wait(&scene->spawn);
    ck_assert_msg(code == 0, "exit code %d: %s", code, spawn_last_words(&scene->spawn));
    ck_assert_msg(!spawn_logged(&scene->spawn, BAD_CANARY), "content of a request is in the log");
}

void scene_free(struct scene *scene)
{
    spawn_free(&scene->spawn);
}
