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
#include "daemon/service/check_text.h"
#include "daemon/service/event_loop.h"
#include "daemon/service/jobs.h"
#include "daemon/service/log_writer.h"
#include "daemon/service/models.h"
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
          "  sluiced --model A=DIR --model B=DIR   several, which requests name\n"
          "  sluiced --model synthetic:null   no model at all: requests go the whole way and\n"
          "                                   are answered by a rule\n"
          "  sluiced --program FILE           a program for jobs, beside a model or without one\n"
          "  sluiced --program FILE --calibrate   find its chunks and lanes on this machine\n"
          "  sluiced --model DIR --check      say whether a model can be used, load nothing\n"
          "  sluiced --help                   all options\n\n"
          "Then, from another terminal: sluice health; sluice generate --tokens 1,2,3\n",
          stderr);
}

/* ---- what is looked at -------------------------------------------------------------------------
 */

struct service {
    struct options *options;
    struct event_loop loop;
    struct models models;
    struct job_programs programs;
};

static void print_names(const struct options *options, const struct gpu_model *model)
{
    struct model_names names;
    (void)model_names_read(&names, options->served_model_name, model->id, NULL);
    printf("model        %s (%s, %s)\n", names.names[0], model->arch, model->dtype);
    for (uint32_t i = 1; i < names.count; i++)
        printf("             also %s\n", names.names[i]);
}

static void print_host_cache(const struct options *options, const struct gpu_model *model)
{
    bool chosen = options->host_cache == OPTION_AUTO;
    if (model->host_bytes == 0)
        printf("host cache   none\n");
    else
        printf("host cache   up to %" PRIu64 " bytes%s\n", model->host_bytes,
               chosen ? " for each replica" : "");
}

static void print_model(const struct service *service, const struct options *options,
                        const struct gpu_model *model)
{
    print_names(options, model);
    printf("device       %s\n", service->models.gpu->name);
    printf("parameters   %" PRIu64 "\n", model->parameters);
    if (model->experts)
        printf("experts      %u, a token goes through %u (%" PRIu64 " parameters)\n",
               model->experts, model->experts_per_token, model->step_parameters);
    printf("weights      %" PRIu64 " bytes", model->weight_bytes);
    for (uint32_t i = 0; i < model->format_count; i++)
        printf("%s%s %" PRIu64, i ? ", " : " (", model->formats[i].name, model->formats[i].bytes);
    printf("%s\n", model->format_count ? ")" : "");
    printf("KV           %" PRIu64 " bytes a token (%s)\n", model->kv_token_bytes, model->kv_dtype);
    printf("invariant    %s\n", model->invariant ? "yes" : "no");
    print_host_cache(options, model);
    printf("vocabulary   %u\n", model->vocab);
    printf("context      %u tokens", model->context_max);
    if (options->context_max > model->context_max)
        printf(", the model's: context-max is %" PRIu64, options->context_max);
    printf("\n");
}

static int check_model(struct service *service, uint32_t index, struct error *error)
{
    const struct options *options = service->models.list.at[index];
    const struct adapter_names *adapters = &service->models.adapters;
    struct gpu_model model;
    struct model_text text = {0};
    int rc = models_check(&service->models, index, &model, error);
    if (!rc)
        rc = check_text_load(&text, options, error);
    if (!rc) {
        printf("%s", index > 0 ? "\n" : "");
        print_model(service, options, &model);
        if (service->models.asleep >> index & 1)
            printf("sleep        begins asleep, and is loaded once the daemon is ready, where it "
                   "fits\n");
        for (uint32_t i = 0; index == 0 && i < adapters->count; i++)
            printf("adapter      %s (%s)\n", adapters->at[i].name, adapters->at[i].directory);
        if (index == 0 && service->models.folder.count > 0)
            printf("adapter-dir  %u adapters (%s)\n", service->models.folder.count,
                   options->adapter_dir);
        check_text_print(&text, options, stdout);
    }
    model_text_free(&text);
    return rc;
}

static int check(struct service *service, struct error *error)
{
    int rc = models_find(&service->models, service->options, error);
    if (!rc)
        rc = jobs_load(&service->programs, service->options, service->models.gpu, false, error);
    if (!rc && service->models.list.count == 0)
        printf("device       %s\n", service->models.gpu->name);
    for (uint32_t i = 0; !rc && i < service->models.list.count; i++)
        rc = check_model(service, i, error);
    if (!rc)
        jobs_print(&service->programs, stdout);
    return rc;
}

static int calibrate(struct service *service, const struct option_command *command,
                     struct error *error)
{
    struct models *models = &service->models;
    struct device_memory memory;
    int rc = models_find(models, service->options, error);
    if (!rc)
        rc = device_module_found(models->gpu, models->numbers, &models->device_count, &memory,
                                 error);
    if (!rc)
        rc = jobs_load(&service->programs, service->options, models->gpu, false, error);
    return rc ? rc
              : jobs_calibrate(&service->programs, service->options, models->gpu,
                               models->numbers[0], command, error);
}

static int open_all(struct service *service, struct error *error)
{
    struct models *models = &service->models;
    int rc = models_layout(models, error);
    if (!rc)
        rc = jobs_open(&service->programs, service->options, models->gpu, models->numbers[0],
                       &service->loop, error);
    if (rc)
        return rc;
    return models->list.count > 0 ? models_open(models, &service->loop, error)
                                  : models_open_none(models, &service->loop, error);
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
    int rc = models_find(&service->models, service->options, &error);
    if (!rc)
        rc = jobs_load(&service->programs, service->options, service->models.gpu, true, &error);
    if (!rc)
        rc = event_loop_init(&service->loop, service->options, random_seed(), reload, line, &error);
    if (rc) {
        models_free(&service->models);
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
    models_free(&service->models);
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
           !command->calibrate && !command->calibrate_page && !command->calibrate_store &&
           (options->model[0] || options->program[0]);
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
    } else if ((command->calibrate_page || command->calibrate_store) && !command->calibrate) {
        code = complain(error_set(&error, ERR_USAGE, "--calibrate-%s goes with --calibrate",
                                  command->calibrate_page ? "page" : "store"),
                        &error);
    } else if (command->print_config) {
        options_print_config(options, stdout);
    } else if (!options->model[0] && !options->program[0]) {
        say_what_to_try();
        code = EXIT_CONFIG;
    } else if (command->calibrate) {
        int rc = calibrate(service, command, &error);
        code = rc ? complain(rc, &error) : 0;
    } else if (command->check) {
        int rc = check_whole(service, command->config, &error);
        code = rc ? complain(rc, &error) : 0;
    } else {
        raise_file_limit(options);
        return serve(service, line, command->config); /* frees the options, which a reload may have changed */
    }
    models_free(&service->models);
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
