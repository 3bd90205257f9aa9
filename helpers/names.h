/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of Lua functions: what a prototype is called, and what a fast function
 * is called. All evidence is read from the target soon after the prototype is
 * first seen; the name is settled when it is first asked for, and never
 * changes.
 */
#ifndef LB_NAMES_H
#define LB_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "escape.h"
#include "target.h"
#include "../bpf_c/lb_wire.h"
#include "../bpf_c/lj_offsets.h"

struct lb_names; /* of one process */

/** @read/@read_arg: how to read the target; used until lb_names_free(). */
int lb_names_new(lb_read_fn read, void *read_arg, struct lb_names **names_ret);
void lb_names_free(struct lb_names *names);

/**
 * lb_names_add_proto() - a prototype record came from the kernel
 * @offsets: of the LuaJIT build it belongs to; copied when new
 * @id_ret: index (1 ...) of this prototype, stable for the life of @names. The
 * same record again gives the same id; another prototype at the same address a
 * new one.
 *
 * Reads, bounded, what can name it: the prototype's own header, children and
 * bytecode, to be used for itself and as evidence for others. A prototype that
 * is gone already is recorded with what the record holds.
 */
int lb_names_add_proto(struct lb_names *names, const struct lb_proto_rec *rec,
		       const struct lj_offsets *offsets, uint32_t *id_ret);

/**
 * lb_names_add_call() - evidence: @callee_id was called from @caller_id
 * @caller_pos: bytecode index of the call instruction in the caller (the pos of
 * its frame), LB_POS_UNKNOWN is ignored
 *
 * Only for neighbours on the stack: with a C function in between (sort, pcall)
 * the instruction names that function instead.
 */
void lb_names_add_call(struct lb_names *names, uint32_t caller_id,
		       uint32_t caller_pos, uint32_t callee_id);

/**
 * lb_names_scan_tables() - evidence: walk globals and package.loaded of a VM
 * Bounded (reads, tables, depth, nodes); done once for each @g_addr and
 * repeated on request when functions are still unnamed. Finds the names of Lua
 * functions stored in tables and of fast functions. Return: 0, -E2BIG (a bound
 * was hit; what was found is kept), -EBADMSG, -ENOMEM, or what reading gave.
 */
int lb_names_scan_tables(struct lb_names *names, uint64_t g_addr,
			 const struct lj_offsets *offsets);

/**
 * lb_names_proto_text() - text of a Lua frame
 * @line: LB_LINE_UNKNOWN for the first line of the function
 * `name@chunk:line`, see design section 6; escaped, never empty. Owned by
 * @names, valid until the next call.
 */
const char *lb_names_proto_text(struct lb_names *names, uint32_t id,
				uint32_t line);
/** Name of a fast function as far as it is known by now, or NULL. */
const char *lb_names_fast_name(struct lb_names *names, uint64_t g_addr,
			       uint32_t ffid);
/** `string.gsub@[builtin]`, or `builtin#N@[builtin]` when not found. */
const char *lb_names_fast_text(struct lb_names *names, uint64_t g_addr,
			       uint32_t ffid);

#endif
