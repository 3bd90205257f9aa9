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
 *
 * Where several entries have these marks, a field on which they disagree is
 * LJ_OFFSETS_NONE: it is not known for this file. That holds for the snapshots
 * and traces of LuaJIT 2.0, of which the VM's code shows nothing.
 * Return: 0, -ENOENT (no entry has these marks).
 */
int lb_offsets_find(const struct lb_luajit *luajit,
		    struct lj_offsets *offsets_ret, const char **name_ret);

/**
 * lb_offsets_entry() - one entry of the table, 0 and up
 * Return: 0, -ENOENT (behind the last).
 */
int lb_offsets_entry(size_t index, const struct lj_offsets **offsets_ret,
		     const char **name_ret);

/** lb_offsets_marks() - what the code of a build with these offsets shows */
struct lb_luajit lb_offsets_marks(const struct lj_offsets *offsets);

/** Are these equal in all that code shows of a build? */
bool lb_offsets_marks_equal(const struct lb_luajit *luajit,
			    const struct lj_offsets *offsets);

#endif
