/* Checkpoints of other families made of one of Llama or Mistral, which compute the same, bit for
 * bit.
 *
 * As Phi-3 has it: q, k and v below one another in one tensor, gate and up in another. As Granite:
 * with multipliers that are powers of two, by which weights in BF16 are divided. As SmolLM3, with
 * rope in all layers; and without, which computes something else. One thread. */
#pragma once

#include <stdbool.h>

/* Writes config.json and model.safetensors to the directory, which exists. */
bool packed_make(const char *from, const char *type, const char *directory);
bool scaled_make(const char *from, const char *type, const char *directory);    /* heads of 64 */
bool unrotated_make(const char *from, const char *type, const char *directory); /* one layer */
bool rotated_make(const char *from, const char *type, const char *directory);
