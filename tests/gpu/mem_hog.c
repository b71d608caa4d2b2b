/* Another tenant of the GPU, for tests/gpu/operate.py. After a line on standard input it takes
 * device memory until LEAVE MiB are free, says so, and goes on taking what becomes free until the
 * input ends. hog LEAVE
 */
#include <cuda_runtime_api.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define EVERY_MS 5

static size_t free_bytes(void)
{
    size_t now = 0, total = 0;
    if (cudaMemGetInfo(&now, &total) != cudaSuccess)
        exit(1);
    return now;
}

/* In pieces that become smaller as memory becomes scarce. */
static size_t take(size_t leave)
{
    size_t taken = 0;
    for (size_t piece = 1024 * MIB; piece >= 2 * MIB; piece /= 2) {
        void *at;
        while (free_bytes() >= leave + piece && cudaMalloc(&at, piece) == cudaSuccess)
            taken += piece;
        (void)cudaGetLastError();
    }
    return taken;
}

int main(int count, char **arguments)
{
    size_t leave = (count > 1 ? strtoull(arguments[1], NULL, 10) : 0) * MIB, taken = 0;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (cudaFree(NULL) != cudaSuccess)
        return 1;
    puts("is there");
    fflush(stdout);
    if (read(STDIN_FILENO, &byte, 1) <= 0)
        return 0;
    taken = take(leave);
    printf("holds %zu MiB, %zu MiB are free\n", taken / MIB, free_bytes() / MIB);
    fflush(stdout);
    while (poll(&input, 1, EVERY_MS) == 0 || read(STDIN_FILENO, &byte, 1) > 0)
        taken += take(leave);
    printf("held %zu MiB at its end\n", taken / MIB);
    return 0;
}
