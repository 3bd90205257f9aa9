/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols: of one file (its own tables, a separate debug file by build ID or
 * debuglink, .gnu_debugdata), and of the kernel (/proc/kallsyms).
 */
#ifndef LB_SYM_H
#define LB_SYM_H

#include <stdbool.h>
#include <stdint.h>

#include "elf.h"
#include "proc.h"

struct lb_sym;	/* function symbols of one file, sorted */
struct lb_ksym; /* of the kernel */

/**
 * lb_sym_new() - load the function symbols of a file
 * @elf: kept by reference; must outlive the result
 * @proc: where to look for debug files (its root, then ours); may be NULL
 * Never fails for lack of symbols: the table is then empty.
 * Return: 0, -ENOMEM.
 */
int lb_sym_new(const struct lb_elf *elf, const struct lb_proc *proc,
	       struct lb_sym **sym_ret);
void lb_sym_free(struct lb_sym *sym);
/**
 * lb_sym_find() - symbol whose extent contains @vaddr, demangled
 * Only a symbol with a size that covers @vaddr counts; one without a size
 * (hand-written assembly) covers up to the next symbol or @limit, whichever is
 * first (@limit: end of the enclosing FDE or section, 0 if unknown: no match).
 * Return: text owned by @sym, or NULL. @start_ret (may be NULL): its vaddr.
 */
const char *lb_sym_find(struct lb_sym *sym, uint64_t vaddr, uint64_t limit,
			uint64_t *start_ret);

/** Return: 0, -EACCES (addresses hidden: kptr_restrict), -ENOENT. */
int lb_ksym_new(struct lb_ksym **ksym_ret);
void lb_ksym_free(struct lb_ksym *ksym);
/** Kernel function that contains @addr; NULL if none. Owned by @ksym. */
const char *lb_ksym_find(const struct lb_ksym *ksym, uint64_t addr);

#endif
