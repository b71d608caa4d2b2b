/* Products whose results are handed on rounded, or whose inputs come so, as rows of the table of
 * fusions run them (fusions.c).
 *
 * What a product gives is normed or activated and rounded for the product that reads it by one
 * kernel behind it (matmul.h); in steps of more rows by the kernel that norms or activates (hand.h
 * of kernels). `ops` are the row's, of which HAND_ROUNDED and TAKE_ROUNDED are the product that
 * reads. Thread: the rank's own. */
#pragma once

#include "gpu/program/norms.h"
#include "gpu/program/walk.h"

/* MATMUL ADD NORM HAND_ROUNDED; MATMUL ACTIVATION HAND_ROUNDED. */
bool hand_norm_can(const struct walk *walk, op_run ops);
int hand_norm(struct walk *walk, op_run ops, struct error *error);
bool hand_activation_can(const struct walk *walk, op_run ops);
int hand_activation(struct walk *walk, op_run ops, struct error *error);

/* ADD NORM HAND_ROUNDED; NORM HAND_ROUNDED; ACTIVATION HAND_ROUNDED. */
bool hand_add_norm_alone_can(const struct walk *walk, op_run ops);
int hand_add_norm_alone(struct walk *walk, op_run ops, struct error *error);
bool hand_norm_alone_can(const struct walk *walk, op_run ops);
int hand_norm_alone(struct walk *walk, op_run ops, struct error *error);
bool hand_activation_alone_can(const struct walk *walk, op_run ops);
int hand_activation_alone(struct walk *walk, op_run ops, struct error *error);

/* TAKE_ROUNDED MATMUL; with ADD, ACTIVATION; with what is handed on again. */
int take(struct walk *walk, op_run ops, struct error *error);
bool take_add_can(const struct walk *walk, op_run ops);
int take_add(struct walk *walk, op_run ops, struct error *error);
bool take_activation_can(const struct walk *walk, op_run ops);
int take_activation(struct walk *walk, op_run ops, struct error *error);
bool take_hand_norm_can(const struct walk *walk, op_run ops);
int take_hand_norm(struct walk *walk, op_run ops, struct error *error);
bool take_hand_activation_can(const struct walk *walk, op_run ops);
int take_hand_activation(struct walk *walk, op_run ops, struct error *error);
