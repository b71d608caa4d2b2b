/* Submitting a job: from the program's tensors to a JOB frame, with its payload or with memory that
 * is shared. What the daemon knows better it refuses itself. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/net/connection.h"
#include "client/request/batch.h"
#include "protocol/message_job.h"

#define INLINE_MAX (256u << 10)
#define WHOLE_MAX ((int64_t)1 << 53)

_Static_assert(SLUICE_ARRAYS_MAX == MESSAGE_TENSORS_MAX, "what is given fits a message");
_Static_assert(SLUICE_ARGUMENTS_MAX == MESSAGE_PARAMETERS_MAX, "likewise");
_Static_assert(SLUICE_ARRAY_RANK_MAX == TENSOR_RANK_MAX, "likewise");
_Static_assert((int)SLUICE_DTYPE_BOOL == TENSOR_BOOL && (int)SLUICE_DTYPE_F16 == TENSOR_F16 &&
                   (int)SLUICE_DTYPE_F64 == TENSOR_F64,
               "numbers are passed on");
_Static_assert((int)SLUICE_ARGUMENT_NUMBER == VALUE_NUMBER &&
                   (int)SLUICE_ARGUMENT_INTEGER == VALUE_INTEGER &&
                   (int)SLUICE_ARGUMENT_BOOL == VALUE_BOOL,
               "numbers are passed on");

/* What a JOB is written from, while it is. */
struct draft {
    const sluice_job *job;
    struct message_item item; /* of the item that is being written */
    uint64_t inputs;          /* bytes of all inputs, each padded */
    struct message_job_out out;
    int fds[CONNECTION_DESCRIPTORS_MAX]; /* owned until they are attached */
    uint32_t fd_count;
};

void sluice_job_init(sluice_job *job)
{
    *job = (sluice_job){
        .size = sizeof(*job), .inline_max = INLINE_MAX, .inputs_fd = -1, .outputs_fd = -1};
}

uint64_t sluice_array_bytes(const sluice_array *array)
{
    uint64_t bytes = 0;
    if (array->rank > SLUICE_ARRAY_RANK_MAX || array->dtype < 0 ||
        tensor_dtype_bytes((uint32_t)array->dtype) == 0)
        return 0;
    return tensor_bytes((uint32_t)array->dtype, (uint32_t)array->rank, array->shape, &bytes)
               ? 0
               : bytes;
}

/* ---- what is given -----------------------------------------------------------------------------
 */

static int check_array(const struct draft *draft, const sluice_array *array, struct error *error)
{
    if (!array->name || strlen(array->name) > TENSOR_NAME_MAX)
        return error_set(error, ERR_BAD_VALUE, "an input's name has 1 to %d bytes",
                         TENSOR_NAME_MAX);
    if (sluice_array_bytes(array) == 0)
        return error_set(
            error, ERR_BAD_VALUE,
            "input %s: its dtype, its number of dimensions or one of them is out of range",
            array->name);
    if (!array->data && draft->job->inputs_fd < 0)
        return error_set(error, ERR_USAGE, "input %s has no data", array->name);
    return 0;
}

static int check_argument(const sluice_argument *argument, struct error *error)
{
    bool whole = argument->type == SLUICE_ARGUMENT_INTEGER;
    if (!argument->name || strlen(argument->name) > TENSOR_NAME_MAX)
        return error_set(error, ERR_BAD_VALUE, "a parameter's name has 1 to %d bytes",
                         TENSOR_NAME_MAX);
    if (argument->type < SLUICE_ARGUMENT_NUMBER || argument->type > SLUICE_ARGUMENT_BOOL)
        return error_set(error, ERR_USAGE, "parameter %s has no type", argument->name);
    if (argument->type == SLUICE_ARGUMENT_NUMBER && !isfinite(argument->number))
        return error_set(error, ERR_BAD_VALUE, "parameter %s is no finite number", argument->name);
    if (whole && (argument->integer > WHOLE_MAX || argument->integer < -WHOLE_MAX))
        return error_set(error, ERR_BAD_VALUE, "parameter %s is beyond 2^53", argument->name);
    return 0;
}

static int check_item(struct draft *draft, const sluice_job_item *item, struct error *error)
{
    int rc = 0;
    if (item->input_count == 0 || item->input_count > SLUICE_ARRAYS_MAX ||
        item->argument_count > SLUICE_ARGUMENTS_MAX)
        return error_set(error, ERR_BAD_VALUE,
                         "an item has 1 to %d inputs and at most %d parameters", SLUICE_ARRAYS_MAX,
                         SLUICE_ARGUMENTS_MAX);
    for (size_t i = 0; !rc && i < item->input_count; i++) {
        rc = check_array(draft, &item->inputs[i], error);
        draft->inputs += rc ? 0 : tensor_pad(sluice_array_bytes(&item->inputs[i]));
        if (!rc && draft->inputs > (uint64_t)WHOLE_MAX)
            rc = error_set(error, ERR_TOO_LARGE, "the inputs have more than 2^53 bytes");
    }
    for (size_t i = 0; !rc && i < item->argument_count; i++)
        rc = check_argument(&item->arguments[i], error);
    return rc;
}

static int check_job(struct draft *draft, struct error *error)
{
    const sluice_job *job = draft->job;
    int rc = 0;
    if (job->size != sizeof(*job))
        return error_set(error, ERR_USAGE, "sluice_job_init() was not called");
    if (!job->program || strlen(job->program) > TENSOR_NAME_MAX)
        return error_set(error, ERR_USAGE, "a program's name has 1 to %d bytes", TENSOR_NAME_MAX);
    if (job->item_count == 0)
        return error_set(error, ERR_EMPTY, "the job has no items");
    if (job->item_count > MESSAGE_BATCH_MAX)
        return error_limit(error, ERR_TOO_LARGE, MESSAGE_BATCH_MAX, job->item_count,
                           "a job of %zu items, at most %d are possible", job->item_count,
                           MESSAGE_BATCH_MAX);
    for (size_t i = 0; !rc && i < job->item_count; i++)
        rc = check_item(draft, &job->items[i], error);
    if (!rc && job->inputs_fd >= 0 && job->inputs_bytes < draft->inputs)
        draft->inputs = job->inputs_bytes; /* the last one's padding, or the daemon says so */
    return rc;
}

/* ---- shared memory -----------------------------------------------------------------------------
 */

static int write_whole(int fd, const unsigned char *bytes, uint64_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        bytes += written;
        length -= (uint64_t)written;
    }
    return 0;
}

static int fill_memory(const sluice_job *job, int fd)
{
    static const unsigned char zeros[TENSOR_ALIGN];
    int why = 0;
    for (size_t i = 0; i < job->item_count; i++)
        for (size_t j = 0; !why && j < job->items[i].input_count; j++) {
            const sluice_array *array = &job->items[i].inputs[j];
            uint64_t bytes = sluice_array_bytes(array);
            why = write_whole(fd, array->data, bytes);
            if (!why)
                why = write_whole(fd, zeros, tensor_pad(bytes) - bytes);
        }
    if (!why && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        why = errno;
    return why;
}

static int share_inputs(struct draft *draft, struct error *error)
{
    int fd = memfd_create("sluice-inputs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int why = fd < 0 ? errno : fill_memory(draft->job, fd);
    if (fd >= 0)
        draft->fds[draft->fd_count++] = fd;
    return why ? error_set(error, error_of_system(why, ERR_IO),
                           "no memory to share with the daemon: %s", strerrordesc_np(why))
               : 0;
}

static int share_own(struct draft *draft, int own, struct error *error)
{
    int fd = fcntl(own, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return error_set(error, ERR_IO, "the descriptor of shared memory: %s",
                         strerrordesc_np(errno));
    draft->fds[draft->fd_count++] = fd;
    return 0;
}

static int share(struct draft *draft, struct error *error)
{
    const sluice_job *job = draft->job;
    bool shared = job->inputs_fd >= 0 || draft->inputs > job->inline_max;
    int rc = 0;
    if (job->inputs_fd >= 0)
        rc = share_own(draft, job->inputs_fd, error);
    else if (shared)
        rc = share_inputs(draft, error);
    if (!rc && job->outputs_fd >= 0)
        rc = share_own(draft, job->outputs_fd, error);
    draft->out.input_memory = shared ? draft->inputs : 0;
    draft->out.output_memory = job->outputs_fd >= 0 ? job->outputs_bytes : 0;
    draft->out.payload_length = shared ? 0 : draft->inputs;
    return rc;
}

/* ---- the frame ---------------------------------------------------------------------------------
 */

static const struct message_item *item_at(void *context, uint32_t index)
{
    struct draft *draft = context;
    const sluice_job_item *from = &draft->job->items[index];
    struct message_item *to = &draft->item;
    to->input_count = (uint32_t)from->input_count;
    to->value_count = (uint32_t)from->argument_count;
    for (size_t i = 0; i < from->input_count; i++) {
        const sluice_array *array = &from->inputs[i];
        to->inputs[i] = (struct message_tensor){
            .name = array->name, .dtype = (uint32_t)array->dtype, .rank = (uint32_t)array->rank};
        memcpy(to->inputs[i].shape, array->shape, sizeof(array->shape));
    }
    for (size_t i = 0; i < from->argument_count; i++)
        to->values[i] =
            (struct message_value){.name = from->arguments[i].name,
                                   .type = (enum message_value_type)from->arguments[i].type,
                                   .integer = from->arguments[i].integer,
                                   .number = from->arguments[i].number};
    return to;
}

static void put_payload(const sluice_job *job, unsigned char *at)
{
    for (size_t i = 0; i < job->item_count; i++)
        for (size_t j = 0; j < job->items[i].input_count; j++) {
            const sluice_array *array = &job->items[i].inputs[j];
            uint64_t bytes = sluice_array_bytes(array), padded = tensor_pad(bytes);
            memcpy(at, array->data, bytes);
            memset(at + bytes, 0, padded - bytes);
            at += padded;
        }
}

static int open_batch(sluice_client *client, const sluice_job *job, struct batch **ret_batch,
                      struct error *error)
{
    const sluice_batch like = {
        .job = BATCH_PROGRAM, .callbacks = {.end = job->end}, .context = job->context};
    struct batch *batch = batch_add(client, client->next_id, (uint32_t)job->item_count, &like);
    if (!batch)
        return error_set(error, ERR_NO_MEMORY, "no memory for a job");
    batch->output = job->output;
    *ret_batch = batch;
    return 0;
}

static int send_draft(sluice_client *client, struct draft *draft, uint64_t *ret_id,
                      struct error *error)
{
    struct batch *batch = NULL;
    size_t size = message_job_size_bound(&draft->out);
    void *room = connection_room(client, size);
    int rc = room ? open_batch(client, draft->job, &batch, error)
                  : error_set(error, ERR_NO_MEMORY, "no memory for a job");
    if (rc)
        return rc;
    size_t used = message_encode_job(room, size, batch->id, &draft->out);
    if (used == 0)
        rc = error_set(error, ERR_TOO_LARGE,
                       "the job has too many items or parameters for one message");
    else
        rc = connection_check_room(client, used + draft->out.payload_length, error);
    if (!rc && draft->fd_count > 0 && connection_attach(client, draft->fds, draft->fd_count))
        rc = error_set(error, ERR_NO_MEMORY, "no memory for a job");
    if (rc) {
        batch_drop(client, batch);
        return rc;
    }
    draft->fd_count = 0; /* they are the connection's */
    if (draft->out.payload_length > 0)
        put_payload(draft->job, (unsigned char *)room + used);
    client->next_id++;
    if (ret_id)
        *ret_id = batch->id;
    connection_wrote(client, used + draft->out.payload_length);
    return 0;
}

int sluice_submit_job(sluice_client *client, const sluice_job *job, uint64_t *ret_id)
{
    struct error error;
    struct draft draft = {.job = job};
    if (connection_check_speaking(client))
        return -client->error.code;
    int rc = check_job(&draft, &error);
    if (!rc)
        rc = share(&draft, &error);
    draft.out.program = job->program;
    draft.out.priority = job->priority;
    draft.out.deadline_ms = job->deadline_ms;
    draft.out.item_count = (uint32_t)job->item_count;
    draft.out.item = item_at;
    draft.out.context = &draft;
    if (!rc)
        rc = send_draft(client, &draft, ret_id, &error);
    for (uint32_t i = 0; i < draft.fd_count; i++)
        close(draft.fds[i]);
    return rc ? connection_fail(client, &error) : 0;
}
