#include "tests/bench/on_gpu.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/jobs/module.h"

void on_gpu_check(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
            cudaGetErrorString(status));
    exit(1);
}

void *on_gpu_memory(size_t bytes)
{
    void *memory = NULL;
    CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

void on_gpu_folder(int argc, char **argv, char ret[PATH_MAX])
{
    char self[PATH_MAX] = {0};
    int devices = 0;
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        exit(1);
    snprintf(ret, PATH_MAX, "%.3900s/../../gpu/programs", dirname(self));
    if (argc > 1)
        snprintf(ret, PATH_MAX, "%.3900s", argv[1]);
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
        return;
    printf("SKIPPED: there is no GPU\n");
    exit(77);
}

struct program on_gpu_load(const char *folder, const char *name)
{
    struct program program;
    struct error error;
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.3900s/%s-cuda.so", folder, name);
    if (module_load(path, "cuda", &program, &error) == 0)
        return program;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.text);
    exit(1);
}
