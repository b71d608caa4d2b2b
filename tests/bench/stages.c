/* What stages on streams of their own gain on a GPU:
 *     bench_stages [FOLDER]      the programs' modules; else ../../gpu/programs beside this program
 *
 * relevance and layers are enqueued as lanes do it, once with a stream for each stage and once with
 * the same stream for all, in turns; the middle one of the rounds counts, and both must give the
 * same bits. For relevance it is told what bounds it: the memory's rate, beside a plain copy's, and
 * what each stage takes of an image alone. Images follow each other no faster than the longest
 * stage does, so streams gain at most the sum of the stages over that, and less where it fills the
 * GPU. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/on_gpu.h"

#define ITEMS_MAX 32
#define TURNS 9
#define STREAMS 4
#define EVENTS 4

static cudaStream_t streams[STREAMS];
static cudaEvent_t events[EVENTS], begin, end, joined[STREAMS];
static bool wrong;

/* ---- a batch -----------------------------------------------------------------------------------
 */

struct batch {
    struct program program;
    struct sluice_item items[ITEMS_MAX], *device_items;
    uint32_t count;
    size_t out_bytes; /* of an item's first output */
};

/* All streams begin behind `begin`, and `end` is behind all of them. */
static double seconds_of(const struct batch *batch, bool apart)
{
    const struct sluice_batch given = {
        .count = batch->count, .items = batch->items, .device_items = batch->device_items};
    struct sluice_streams all = {.count = STREAMS, .event_count = EVENTS};
    struct sluice_allocator nothing = {.take = NULL};
    float ms = 0;
    for (int i = 0; i < STREAMS; i++)
        all.streams[i] = streams[apart ? i : 0];
    memcpy(all.events, events, sizeof(events));
    CHECK(cudaEventRecord(begin, streams[0]));
    for (int i = 1; i < STREAMS; i++)
        CHECK(cudaStreamWaitEvent(streams[i], begin, 0));
    on_gpu_check((cudaError_t)batch->program.enqueue(&given, &all, &nothing), batch->program.name);
    for (int i = 1; i < STREAMS; i++) {
        CHECK(cudaEventRecord(joined[i], streams[i]));
        CHECK(cudaStreamWaitEvent(streams[0], joined[i], 0));
    }
    CHECK(cudaEventRecord(end, streams[0]));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms / 1e3;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void fetch(const struct batch *batch, unsigned char *to)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        CHECK(cudaMemcpy(to + i * batch->out_bytes, batch->items[i].outputs[0], batch->out_bytes,
                         cudaMemcpyDeviceToHost));
        CHECK(cudaMemset(batch->items[i].outputs[0], 0xff, batch->out_bytes));
    }
    CHECK(cudaDeviceSynchronize()); /* the streams do not wait for the default one */
}

/* What each stage takes of the first item, or of those that go with it, by itself: all in one
 * stream, where the program's own events lie between, with timing here. */
static void alone(const struct batch *batch, double ret_us[3])
{
    struct batch one = *batch;
    const cudaEvent_t untimed[2] = {events[0], events[1]};
    double us[3][TURNS];
    one.count = 1;
    for (int i = 0; i < 2; i++)
        CHECK(cudaEventCreate(&events[i]));
    const cudaEvent_t marks[4] = {begin, events[0], events[1], end};
    for (int turn = 0; turn < TURNS; turn++) {
        (void)seconds_of(&one, false);
        for (int stage = 0; stage < 3; stage++) {
            float ms = 0;
            CHECK(cudaEventElapsedTime(&ms, marks[stage], marks[stage + 1]));
            us[stage][turn] = ms * 1e3;
        }
    }
    for (int stage = 0; stage < 3; stage++) {
        qsort(us[stage], TURNS, sizeof(double), compare);
        ret_us[stage] = us[stage][TURNS / 2];
    }
    for (int i = 0; i < 2; i++) {
        CHECK(cudaEventDestroy(events[i]));
        events[i] = untimed[i];
    }
}

/* ret_seconds: all stages in one stream, then each in its own. ret_us: of three stages, each alone;
 * NULL: they are not so many. */
static void measure(struct batch *batch, double ret_seconds[2], double ret_us[3])
{
    double seconds[2][TURNS];
    unsigned char *outputs[2];
    batch->device_items = on_gpu_memory(sizeof(batch->items));
    CHECK(cudaMemcpy(batch->device_items, batch->items, sizeof(batch->items),
                     cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    for (int apart = 0; apart < 2; apart++) {
        outputs[apart] = malloc(batch->count * batch->out_bytes);
        if (!outputs[apart])
            exit(1);
        (void)seconds_of(batch, apart);
        fetch(batch, outputs[apart]);
    }
    if (memcmp(outputs[0], outputs[1], batch->count * batch->out_bytes) != 0) {
        printf("%s: other bits on several streams: WRONG\n", batch->program.name);
        wrong = true;
    }
    for (int turn = 0; turn < TURNS; turn++)
        for (int apart = 0; apart < 2; apart++)
            seconds[apart][turn] = seconds_of(batch, apart);
    for (int apart = 0; apart < 2; apart++) {
        qsort(seconds[apart], TURNS, sizeof(double), compare);
        ret_seconds[apart] = seconds[apart][TURNS / 2];
        free(outputs[apart]);
    }
    if (ret_us)
        alone(batch, ret_us);
    CHECK(cudaFree(batch->device_items));
}

static void *filled(size_t bytes, unsigned (*value)(size_t i))
{
    unsigned char *host = malloc(bytes);
    void *memory = on_gpu_memory(bytes);
    if (!host)
        exit(1);
    for (size_t i = 0; i < bytes; i++)
        host[i] = (unsigned char)value(i);
    CHECK(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
    free(host);
    return memory;
}

/* Scratch and outputs of all items, by what the program says of itself; `bytes` for an output. */
static void open_item(struct batch *batch, struct sluice_item *item, size_t bytes)
{
    for (uint32_t i = 0; i < batch->program.output_count; i++)
        item->outputs[i] = on_gpu_memory(bytes);
    item->whole = item->sizes[0];
    item->scratch = on_gpu_memory(batch->program.scratch(item));
}

static void close_item(const struct batch *batch, struct sluice_item *item)
{
    for (uint32_t i = 0; i < batch->program.output_count; i++)
        CHECK(cudaFree(item->outputs[i]));
    CHECK(cudaFree(item->scratch));
}

/* ---- relevance ---------------------------------------------------------------------------------
 */

static unsigned noise(size_t i)
{
    return (unsigned)(i * 2654435761u >> 13);
}

static double copy_rate(void)
{
    const size_t bytes = (size_t)1 << 30;
    void *from = on_gpu_memory(bytes), *to = on_gpu_memory(bytes);
    double best = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        float ms = 0;
        CHECK(cudaEventRecord(begin, streams[0]));
        CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, streams[0]));
        CHECK(cudaEventRecord(end, streams[0]));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        const double rate = 2 * (double)bytes / ms * 1e3;
        best = rate > best ? rate : best;
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return best;
}

static void relevance_bench(const struct program *program, uint64_t height, uint64_t width,
                            uint32_t count, double copy)
{
    static struct batch batch;
    double seconds[2], us[3];
    batch = (struct batch){.program = *program, .count = count, .out_bytes = 25 * sizeof(int32_t)};
    void *image = filled(height * width * 3, noise);
    for (uint32_t i = 0; i < count; i++) {
        struct sluice_item *item = &batch.items[i];
        *item = (struct sluice_item){.sizes = {height, width, 5, 5}, .inputs = {image}};
        item->values[2].integer = 4096;
        open_item(&batch, item, 25 * 3 * sizeof(float));
    }
    measure(&batch, seconds, us);
    const double sum = us[0] + us[1] + us[2];
    double longest = us[0] > us[1] ? us[0] : us[1];
    longest = us[2] > longest ? us[2] : longest;
    /* Pixels are read, 13 floats written, all read once for sums, and six for salience. */
    const double bytes = (double)(height * width * count) * (3 + 4 * (13 + 13 + 6));
    printf("relevance, %lu x %lu: %.0f images/s on three streams, %.0f on one: %.2f times; %.0f "
           "GB/s, a copy has %.0f; alone its stages take %.1f, %.1f and %.1f us, which is %.2f "
           "times at "
           "most\n",
           width, height, count / seconds[1], count / seconds[0], seconds[0] / seconds[1],
           bytes / seconds[1] / 1e9, copy / 1e9, us[0], us[1], us[2], sum / longest);
    for (uint32_t i = 0; i < count; i++)
        close_item(&batch, &batch.items[i]);
    CHECK(cudaFree(image));
}

/* ---- layers ------------------------------------------------------------------------------------
 */

/* As bf16: of either sign, from 0.0001 to 0.03. */
static unsigned weight(size_t i)
{
    return i % 2 ? 0x38 + 4 * (noise(i) & 1) + ((noise(i) & 2) << 6) : noise(i);
}

static void layers_bench(const struct program *program, uint64_t rows, uint64_t width,
                         uint64_t layers)
{
    static struct batch batch;
    double seconds[2];
    batch = (struct batch){.program = *program, .count = 1, .out_bytes = rows * width * 2};
    struct sluice_item *item = &batch.items[0];
    void *x = filled(rows * width * 2, weight), *bias = filled(layers * width * 2, weight);
    void *weights = filled(layers * width * width * 2, weight);
    *item = (struct sluice_item){.sizes = {rows, width, layers}, .inputs = {x, weights, bias}};
    item->values[0].integer = 3;
    open_item(&batch, item, batch.out_bytes);
    measure(&batch, seconds, NULL);
    printf(
        "layers, %lu of %lu x %lu, %lu rows: %.2f ms in stages, %.2f on one stream: %.2f times\n",
        layers, width, width, rows, seconds[1] * 1e3, seconds[0] * 1e3, seconds[0] / seconds[1]);
    close_item(&batch, item);
    CHECK(cudaFree(x));
    CHECK(cudaFree(bias));
    CHECK(cudaFree(weights));
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static void open_streams(void)
{
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&joined[i], cudaEventDisableTiming));
    }
    for (int i = 0; i < EVENTS; i++)
        CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
}

int main(int argc, char **argv)
{
    char folder[PATH_MAX];
    on_gpu_folder(argc, argv, folder);
    open_streams();
    const struct program relevance = on_gpu_load(folder, "relevance"),
                         layers = on_gpu_load(folder, "layers");
    const double copy = copy_rate();
    relevance_bench(&relevance, 512, 512, 32, copy);
    relevance_bench(&relevance, 1080, 1920, 16, copy);
    relevance_bench(&relevance, 2160, 3840, 8, copy);
    layers_bench(&layers, 2048, 512, 12);
    layers_bench(&layers, 2048, 1024, 12);
    layers_bench(&layers, 8192, 4096, 6);
    return wrong;
}
