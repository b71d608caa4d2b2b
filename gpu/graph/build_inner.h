/* What the words of a list are made of: for the files that have words, and for nobody else. One
 * thread. */
#pragma once

#include "gpu/graph/build.h"

/* Ends the build: tp does not divide so many of what is named. */
void build_refuse(struct build *b, uint32_t size, const char *what);
/* Elements of a row; 0 where the build has failed. */
uint32_t build_width(const struct build *b, value_id x);
/* What all ranks' rows together are, and a rank's. */
uint32_t build_rows(const struct build *b, const struct build_part *parts, enum split split);

/* A value of the block, or of one before that began alike; one that is there all the time; and one
 * of plain rows. */
value_id build_value(struct build *b, struct list_value value);
value_id build_value_common(struct build *b, uint32_t width, enum value_type type);
value_id build_value_block(struct build *b, uint32_t width, enum value_type type);
/* A tensor of its own. */
tensor_id build_tensor(struct build *b, const char *name, const char *ending,
                       const struct list_tensor *shape);
/* `of`: whose it is. Synthetic ones leave what was normed as it is. */
weight_id build_norm_weight(struct build *b, struct build_part part, enum norm_kind kind,
                            const struct list_weight *of);
/* `parts` below one another in one weight. */
weight_id build_weight(struct build *b, const struct list_weight *like,
                       const struct build_part *parts, const char *ending);
/* Written by who asks; never NULL. */
struct op *build_op(struct build *b, enum op_kind kind, value_id in, value_id out);
/* What is added to the residual, before the first block. */
void build_sums(struct build *b);
/* Behind a sum of which each rank has a part. */
void build_reduce(struct build *b, value_id sum);
