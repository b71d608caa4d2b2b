#include "gpu/kernels/step/embed.h"

#include "gpu/kernels/cpu/body.h"

#define EMBED_PIECE 512

static void embed_row(const struct embed_args *args, uint32_t token)
{
    float wide[EMBED_PIECE];
    uint32_t size = args->table.k;
    size_t id = (size_t)((const int32_t *)dev(args->batch.token_id))[token];
    enum dtype dtype = format_info(args->table.format).dtype;
    const void *from = body_at(args->table.data, dtype, id, size);
    void *to = body_at(args->out, args->out_dtype, token, args->stride);
    for (uint32_t i = 0; i < size; i += EMBED_PIECE) {
        uint32_t count = size - i < EMBED_PIECE ? size - i : EMBED_PIECE;
        number_widen(wide, number_at(from, dtype, i), dtype, count);
        for (uint32_t j = 0; j < count && args->scale != 0; j++)
            wide[j] *= args->scale;
        number_round(number_at(to, args->out_dtype, i), wide, args->out_dtype, count);
    }
}

static void embed_share(const void *params, uint32_t index)
{
    const struct embed_args *args = params;
    const struct batch_counts *counts = dev(args->batch.counts);
    uint32_t share = body_share(args->table.k);
    for (uint32_t i = 0; i < share && index * share + i < counts->tokens; i++)
        embed_row(args, index * share + i);
}

cudaError_t op_embed(const struct embed_args *args, cudaStream_t stream)
{
    return body_launch(stream, "embed", embed_share, args, sizeof *args,
                       body_shares(args->batch.tokens_max, args->table.k));
}
