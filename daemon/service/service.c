#include "daemon/service/service.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/api_key.h"
#include "daemon/base/option.h"
#include "daemon/base/prefix_key.h"
#include "daemon/net/listen.h"
#include "daemon/sched/kv.h"
#include "daemon/service/check_text.h"
#include "daemon/service/event_loop.h"
#include "daemon/service/jobs.h"
#include "daemon/service/layout.h"
#include "daemon/service/log_writer.h"
#include "daemon/service/sd_notify.h"
#include "daemon/service/sockets.h"
#include "daemon/service/unit_check.h"
#include "daemon/worker/device_module.h"
#include "protocol/base/log.h"
#include "protocol/base/standard.h"

/* Descriptors beside connections: sockets, eventfds, the device's. */
#define DESCRIPTORS_OTHER 64u
/* Blocks from this size on come from the system and go back to it, whatever was freed before. */
#define MMAP_THRESHOLD (256 << 10)

/* What SIGHUP reads again. */
struct command_line {
    int argc;
    char **argv, **environment;
};

static int exit_code(int rc)
{
    switch (-rc) {
    case ERR_USAGE:
        return EXIT_USAGE;
    case ERR_DEVICE:
    case ERR_DEVICE_MEMORY:
    case ERR_NO_MEMORY:
    case ERR_IO:
        return EXIT_DEVICE;
    default:
        return EXIT_CONFIG;
    }
}

static int complain(int rc, const struct error *error)
{
    log_line(LOG_ERROR, "sluiced", "%s", error->text);
    return exit_code(rc);
}

static int reload(void *context, const struct options *now, struct options **ret_next,
                  struct error *error)
{
    const struct command_line *line = context;
    struct option_command command;
    struct options *next;
    char unknown[64];
    uint32_t gid;
    int rc =
        options_load(line->argc, line->argv, line->environment, &next, &command, unknown, error);
    if (rc)
        return rc;
    rc = options_reloadable(now, next, error);
    if (!rc)
        rc = listen_group(next->admin_group, &gid, error);
    if (rc) {
        options_free(next);
        return rc;
    }
    *ret_next = next;
    return 0;
}

static void raise_file_limit(const struct options *options)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < options->connections_max + DESCRIPTORS_OTHER)
        log_line(LOG_WARNING, "sluiced",
                 "the file limit is %" PRIu64 ": fewer than %" PRIu64 " connections can be served",
                 (uint64_t)limit.rlim_cur, options->connections_max);
}

static void say_what_to_try(void)
{
    fputs("sluiced serves a model, or programs, over a Unix socket. It needs to be told which:\n\n"
          "  sluiced --model DIR              a Hugging Face directory with config.json,\n"
          "                                   safetensors and tokenizer.json\n"
          "  sluiced --model synthetic:null   no model at all: requests go the whole way and\n"
          "                                   are answered by a rule\n"
          "  sluiced --program FILE           a program for jobs, beside a model or without one\n"
          "  sluiced --program FILE --calibrate   find its chunks and lanes on this machine\n"
          "  sluiced --model DIR --check      say whether a model can be used, load nothing\n"
          "  sluiced --help                   all options\n\n"
          "Then, from another terminal: sluice health; sluice generate --tokens 1,2,3\n",
          stderr);
}

/* ---- model and device --------------------------------------------------------------------------
 */

struct service {
    struct options *options;
    struct event_loop loop;
    const struct gpu_api *gpu;
    int numbers[GPU_DEVICES_MAX];
    uint32_t device_count;
    struct layout layout;
    struct job_programs programs;
    struct adapter_names adapters;
    struct gpu_adapter adapters_given[GPU_ADAPTERS_MAX];
};

static int find_device(struct service *service, struct error *error)
{
    int rc =
        device_module_choose(service->options, service->numbers, &service->device_count, error);
    if (!rc)
        rc = adapter_names_read(&service->adapters, service->options->adapter, error);
    adapter_names_give(&service->adapters, service->adapters_given);
    return rc ? rc : device_module_load(service->options, &service->gpu, error);
}

static struct gpu_options gpu_options_of(const struct service *service, const int *numbers)
{
    struct gpu_options options = device_module_options(service->options, numbers);
    options.adapters = service->adapters_given;
    options.adapter_count = service->adapters.count;
    return options;
}

/* As for one device, where the options leave it open. */
static int check_model(const struct service *service, struct gpu_model *ret_model,
                       struct error *error)
{
    const struct gpu_options options = gpu_options_of(service, service->numbers);
    struct model_names names;
    int rc = service->gpu->check(&options, ret_model, error);
    if (!rc)
        rc = model_names_read(&names, service->options->served_model_name, ret_model->id, error);
    return rc ? rc : adapter_names_apart(&service->adapters, &names, error);
}

/* Of host-cache, what each replica has. */
static uint64_t host_share(const struct options *options, uint32_t replicas)
{
    if (!options->prefix_cache || options->host_cache == 0)
        return 0;
    if (options->host_cache == OPTION_AUTO)
        return GPU_HOST_AUTO;
    return options->host_cache > replicas ? options->host_cache / replicas : 1; /* 0: none */
}

static uint64_t left_of(const struct options *options, uint64_t bytes)
{
    bytes = bytes > options->gpu_memory_reserve ? bytes - options->gpu_memory_reserve : 0;
    return options->gpu_memory_max && bytes > options->gpu_memory_max ? options->gpu_memory_max
                                                                      : bytes;
}

/* What no other process's leaving will mend: with all of their memory to ourselves, the devices
 * would not do. */
static int check_room(const struct service *service, const struct device_memory *memory,
                      struct layout_facts facts, struct error *error)
{
    struct gpu_options options = gpu_options_of(service, service->numbers);
    struct gpu_model model;
    struct layout layout;
    char reason[LAYOUT_REASON_MAX];
    facts.memory_bytes = left_of(service->options, memory->total_bytes);
    int rc = layout_choose(service->options, &facts, &layout, reason, error);
    if (rc == -ERR_DEVICE_MEMORY)
        rc = -(error->code = ERR_BAD_CONFIG);
    if (rc)
        return rc;
    options.tp = layout.tp;
    options.pp = layout.pp;
    options.host_max = host_share(service->options, layout.dp);
    rc = service->gpu->check(&options, &model, error);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < model.group_count; i++)
        facts.slab_bytes += model.groups[i].block_bytes * model.groups[i].slab_blocks;
    return layout_check_room(&layout, &facts, error);
}

static int find_room(struct service *service, const struct gpu_model *model,
                     struct layout_facts *ret_facts, struct error *error)
{
    struct device_memory memory;
    struct layout_facts facts = {.named = service->options->gpus[0] != '\0',
                                 .weight_bytes = model->weight_bytes};
    int rc =
        device_module_found(service->gpu, service->numbers, &service->device_count, &memory, error);
    if (rc)
        return rc;
    facts.devices = service->device_count;
    rc = check_room(service, &memory, facts, error);
    facts.memory_bytes = left_of(service->options, memory.free_bytes);
    *ret_facts = facts;
    return rc;
}

static bool context_is_less(const struct service *service, const struct gpu_model *model)
{
    return service->options->context_max > model->context_max;
}

static void print_names(const struct service *service, const struct gpu_model *model)
{
    struct model_names names;
    (void)model_names_read(&names, service->options->served_model_name, model->id, NULL);
    printf("model        %s (%s, %s)\n", names.names[0], model->arch, model->dtype);
    for (uint32_t i = 1; i < names.count; i++)
        printf("             also %s\n", names.names[i]);
}

static void print_host_cache(const struct service *service, const struct gpu_model *model)
{
    bool chosen = service->options->host_cache == OPTION_AUTO;
    if (model->host_bytes == 0)
        printf("host cache   none\n");
    else
        printf("host cache   up to %" PRIu64 " bytes%s\n", model->host_bytes,
               chosen ? " for each replica" : "");
}

static int check(struct service *service, struct error *error)
{
    struct gpu_model model;
    struct layout_facts facts;
    struct model_text text = {0};
    int rc = find_device(service, error);
    if (!rc)
        rc = jobs_load(&service->programs, service->options, service->gpu, false, error);
    if (!rc && !service->options->model[0]) {
        printf("device       %s\n", service->gpu->name);
        jobs_print(&service->programs, stdout);
        return 0;
    }
    if (!rc)
        rc = check_model(service, &model, error);
    if (!rc)
        rc = find_room(service, &model, &facts, error);
    if (!rc)
        rc = check_text_load(&text, service->options, error);
    if (rc) {
        model_text_free(&text);
        return rc;
    }
    print_names(service, &model);
    printf("device       %s\n", service->gpu->name);
    printf("parameters   %" PRIu64 "\n", model.parameters);
    if (model.experts)
        printf("experts      %u, a token goes through %u (%" PRIu64 " parameters)\n", model.experts,
               model.experts_per_token, model.step_parameters);
    printf("weights      %" PRIu64 " bytes", model.weight_bytes);
    for (uint32_t i = 0; i < model.format_count; i++)
        printf("%s%s %" PRIu64, i ? ", " : " (", model.formats[i].name, model.formats[i].bytes);
    printf("%s\n", model.format_count ? ")" : "");
    printf("KV           %" PRIu64 " bytes a token (%s)\n", model.kv_token_bytes, model.kv_dtype);
    print_host_cache(service, &model);
    printf("vocabulary   %u\n", model.vocab);
    printf("context      %u tokens", model.context_max);
    if (context_is_less(service, &model))
        printf(", the model's: context-max is %" PRIu64, service->options->context_max);
    printf("\n");
    for (uint32_t i = 0; i < service->adapters.count; i++)
        printf("adapter      %s (%s)\n", service->adapters.at[i].name,
               service->adapters.at[i].directory);
    check_text_print(&text, service->options, stdout);
    jobs_print(&service->programs, stdout);
    model_text_free(&text);
    return 0;
}

static int calibrate(struct service *service, const char *page, struct error *error)
{
    struct device_memory memory;
    int rc = find_device(service, error);
    if (!rc)
        rc = device_module_found(service->gpu, service->numbers, &service->device_count, &memory,
                                 error);
    if (!rc)
        rc = jobs_load(&service->programs, service->options, service->gpu, false, error);
    return rc ? rc
              : jobs_calibrate(&service->programs, service->options, service->gpu,
                               service->numbers[0], page, error);
}

static int choose_layout(struct service *service, struct error *error)
{
    struct gpu_model model;
    struct layout_facts facts;
    char reason[LAYOUT_REASON_MAX];
    int rc = check_model(service, &model, error);
    if (!rc)
        rc = find_room(service, &model, &facts, error);
    if (!rc)
        rc = layout_choose(service->options, &facts, &service->layout, reason, error);
    if (rc)
        return rc;
    log_line(LOG_NOTICE, "device", "%s", reason);
    if (context_is_less(service, &model))
        log_line(LOG_WARNING, "sluiced",
                 "context-max is %" PRIu64 ", the model supports %u tokens: that holds",
                 service->options->context_max, model.context_max);
    return 0;
}

/* What all replicas have in common is told of the first. */
struct opened {
    struct replica_worker *replicas[SERVER_REPLICAS_MAX];
    uint32_t count;
    struct gpu_model model;
    struct gpu_limits limits;
};

static int open_replica(struct service *service, struct opened *opened, struct error *error)
{
    const uint32_t ranks = service->layout.tp * service->layout.pp;
    const int *numbers = service->numbers + opened->count * ranks;
    struct gpu_options options = gpu_options_of(service, numbers);
    struct gpu_engine *engine;
    options.tp = service->layout.tp;
    options.pp = service->layout.pp;
    options.host_max = host_share(service->options, service->layout.dp);
    int rc = service->gpu->open(&options, &engine, &opened->model, &opened->limits, error);
    if (rc)
        return rc;
    rc = replica_make(service->gpu, engine, &opened->model, &opened->limits, service->options,
                      &service->loop.completions, &opened->replicas[opened->count], error);
    if (rc) {
        service->gpu->close(engine);
        return rc;
    }
    if (opened->replicas[opened->count]->trace)
        trace_name(opened->replicas[opened->count]->trace, opened->count, numbers);
    struct replica *base = &opened->replicas[opened->count++]->base;
    memcpy(base->devices, numbers, ranks * sizeof(*numbers));
    return 0;
}

static int open_replicas(struct service *service, struct error *error)
{
    struct event_loop *loop = &service->loop;
    struct opened opened = {.count = 0};
    struct replica *bases[SERVER_REPLICAS_MAX];
    char name[96];
    const uint32_t used = service->layout.dp * service->layout.tp * service->layout.pp;
    int rc =
        device_module_describe(service->gpu, service->numbers, used, name, sizeof(name), error);
    while (!rc && opened.count < service->layout.dp)
        rc = open_replica(service, &opened, error);
    for (uint32_t i = 0; rc && i < opened.count; i++)
        replica_free(opened.replicas[i]);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < opened.count; i++)
        bases[i] = &opened.replicas[i]->base;
    server_serve(&loop->server, &opened.model, opened.limits.context_max,
                 kv_length_max(&opened.model, &opened.limits), name, bases, opened.count);
    return event_loop_start(loop, opened.replicas, opened.count, error);
}

/* Programs alone: the device is found, and nothing is loaded. */
static int open_none(struct service *service, struct error *error)
{
    const struct gpu_model none = {.id = ""};
    struct device_memory memory;
    char name[96];
    int rc = device_module_found(service->gpu, service->numbers, &service->device_count, &memory, error);
    if (!rc)
        rc = device_module_describe(service->gpu, service->numbers, 1, name, sizeof(name), error);
    if (rc)
        return rc;
    server_serve(&service->loop.server, &none, 0, 0, name, NULL, 0);
    return event_loop_start(&service->loop, NULL, 0, error);
}

static int open_all(struct service *service, struct error *error)
{
    const bool model = service->options->model[0] != '\0';
    int rc = model ? choose_layout(service, error) : 0;
    if (!rc)
        rc = jobs_open(&service->programs, service->options, service->gpu, service->numbers[0],
                       &service->loop, error);
    if (rc)
        return rc;
    return model ? open_replicas(service, error) : open_none(service, error);
}

/* ---- life --------------------------------------------------------------------------------------
 */

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        seed = clock_now_us() ^ (uint64_t)getpid() << 32;
    return seed;
}

/* A service that its own unit keeps from something is told by which setting. */
static void explain(const char *config, const struct options *options, struct error *error)
{
    struct unit unit;
    struct error why;
    if (getenv("INVOCATION_ID") && unit_read("", config, &unit) && unit_check(&unit, options, &why))
        *error = why;
}

static int serve(struct service *service, struct command_line *line, const char *config)
{
    struct error error;
    int rc = find_device(service, &error);
    if (!rc)
        rc = jobs_load(&service->programs, service->options, service->gpu, true, &error);
    if (!rc)
        rc = event_loop_init(&service->loop, service->options, random_seed(), reload, line, &error);
    if (rc) {
        options_free(service->options);
        return complain(rc, &error);
    }
    rc = sockets_open(&service->loop, service->options, random_seed(), &error);
    if (!rc)
        rc = open_all(service, &error);
    if (rc) {
        explain(config, service->options, &error);
        service->loop.exit_code = complain(rc, &error);
    }
    int code = rc ? service->loop.exit_code : event_loop_run(&service->loop);
    event_loop_destroy(&service->loop);
    return code;
}

/* What is a unit's is looked at as it would be there, where systemd runs. */
static int check_whole(struct service *service, const char *config, struct error *error)
{
    struct unit unit;
    bool known = access("/run/systemd/system", F_OK) == 0 && unit_read("", config, &unit);
    int rc = known ? unit_check(&unit, service->options, error) : 0;
    if (rc)
        return rc;
    if (known)
        rc = unit_become(&unit, error);
    if (!rc && known && access(config, R_OK) != 0)
        rc = error_set(error, ERR_BAD_CONFIG, "cannot read %.256s: %s", config, strerror(errno));
    if (!rc)
        rc = sockets_check(service->options, error);
    if (!rc)
        rc = check(service, error);
    if (rc && known)
        unit_explain(&unit, error);
    else if (known)
        printf("service      %s%s%s\n", unit.name, unit_is_user(&unit) ? ", as user " : "",
               unit_is_user(&unit) ? unit.user : "");
    return rc;
}

/* And does not only tell something. */
static bool serves(const struct option_command *command, const struct options *options)
{
    return !command->version && !command->help && !command->print_config && !command->check &&
           !command->calibrate && !command->calibrate_page && (options->model[0] || options->program[0]);
}

/* What was asked for is what stands on standard output. */
static int printed(int code)
{
    int rc = standard_flush(stdout);
    if (rc)
        log_line(LOG_ERROR, "sluiced", "standard output: %s", strerror(-rc));
    return rc && code == 0 ? EXIT_OUTPUT : code;
}

static int act(struct service *service, const struct option_command *command,
               struct command_line *line)
{
    static char output[1u << 16]; /* written at the end, which then knows why it cannot be */
    struct options *options = service->options;
    struct error error;
    int code = 0;
    (void)setvbuf(stdout, output, _IOFBF, sizeof(output));
    if (command->version) {
        printf("sluiced %s\n", SLUICE_VERSION);
    } else if (command->help) {
        options_print_help(stdout);
    } else if (command->calibrate_page && !command->calibrate) {
        code = complain(error_set(&error, ERR_USAGE, "--calibrate-page goes with --calibrate"),
                        &error);
    } else if (command->print_config) {
        options_print_config(options, stdout);
    } else if (!options->model[0] && !options->program[0]) {
        say_what_to_try();
        code = EXIT_CONFIG;
    } else if (command->calibrate) {
        int rc = calibrate(service, command->calibrate_page, &error);
        code = rc ? complain(rc, &error) : 0;
    } else if (command->check) {
        int rc = check_whole(service, command->config, &error);
        code = rc ? complain(rc, &error) : 0;
    } else {
        raise_file_limit(options);
        return serve(service, line, command->config); /* frees the options, which a reload may have changed */
    }
    options_free(options);
    return printed(code);
}

int service_main(int argc, char **argv, char **environment)
{
    static struct service service; /* large, and there is one */
    struct command_line line = {.argc = argc, .argv = argv, .environment = environment};
    struct option_command command;
    struct error error;
    char unknown[64];
    keys_set_secret(random_seed(), random_seed()); /* options name users, too */
    prefix_key_set_secret(random_seed(), random_seed());
    int rc = options_load(argc, argv, environment, &service.options, &command, unknown, &error);
    if (rc)
        return complain(rc, &error);
    log_setup((enum log_level)options_log_level(service.options),
              (enum log_format)service.options->log_format);
    mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    /* Small ones are merged when they are freed. Kept apart, they would hold the end of a pool thread's
     * heap, which malloc_trim() does not give back. */
    mallopt(M_MXFAST, 0);
    signal(SIGPIPE, SIG_IGN);
    rc = serves(&command, service.options) ? log_writer_start(&error) : 0;
    if (!rc && unknown[0])
        log_line(LOG_WARNING, "sluiced", "%s is no option and is ignored", unknown);
    if (!rc)
        rc = sd_notify_setup(&error);
    if (rc) {
        options_free(service.options);
        return complain(rc, &error);
    }
    return act(&service, &command, &line);
}
