/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lj_offsets of one file: the table entry whose marks equal those of
 * the file's machine code. A function of the file; knows no process.
 */
#ifndef LB_OFFSETS_H
#define LB_OFFSETS_H

#include "luajit.h"
#include "../bpf_c/lj_offsets.h"

/**
 * lb_offsets_find() - offsets for a VM found in a file
 * @name_ret: name of the entry, static storage
 * Return: 0, -ENOENT (no entry has these marks).
 */
int lb_offsets_find(const struct lb_luajit *luajit,
		    struct lj_offsets *offsets_ret, const char **name_ret);

#endif
