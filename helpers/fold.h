/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of stacks: `comm;root;...;leaf`, equal texts added up.
 */
#ifndef LB_FOLD_H
#define LB_FOLD_H

#include <stddef.h>
#include <stdint.h>

#include "lb.h"
#include "splice.h"
#include "stacks.h"
#include "sym.h"

struct lb_folded { /* one text */
	char *text;
	uint64_t count;
	int pid; /* 0: of several processes */
};

struct lb_fold;

/**
 * lb_fold_new() - fold all stacks
 * @ksym: may be NULL: kernel frames are then `[unknown]`
 * @flags: enum lb_fold_flag
 * Return: 0, -ENOMEM.
 */
int lb_fold_new(struct lb_stacks *stacks, const struct lb_objects *objects,
		const struct lb_ksym *ksym, struct lb_traces *traces,
		unsigned int flags, struct lb_fold **fold_ret);
/**
 * lb_fold_one() - text of one stack, for a program that is still running
 * @leaf: as in struct lb_count_key
 * Return: the caller frees it; NULL when out of memory.
 */
char *lb_fold_one(struct lb_stack *stack, uint64_t leaf,
		  const struct lb_objects *objects, const struct lb_ksym *ksym,
		  struct lb_traces *traces, unsigned int flags);
void lb_fold_free(struct lb_fold *fold);
/** Texts in order. */
size_t lb_fold_texts(const struct lb_fold *fold,
		     const struct lb_folded **texts_ret);

/** One word for an enum lb_stop, as printed in `[failed:WORD]`. */
const char *lb_stop_word(unsigned int stop);

#endif
