/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One prototype, copied out of the target: what its bytecode and debug
 * information say about names, of its children and of what it calls.
 */
#ifndef LB_PROTO_H
#define LB_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target.h"

#define LB_BUILTIN_LINE 0xffffffffU /* first line of builtins in bytecode */

struct lb_proto_var; /* a local variable */

struct lb_proto {
	uint64_t addr;
	uint64_t chunk_addr; /* GCstr */
	uint32_t chunk_id;   /* see str_id */
	uint32_t first_line;
	uint32_t num_line;
	uint32_t size_bc;
	uint32_t size_kgc;
	uint32_t size; /* bytes of data */
	uint8_t num_params;
	uint8_t size_uv;
	uint8_t *data; /* the whole object */
	uint32_t kgc_off;
	uint32_t uvinfo_off; /* 0: stripped */
	struct lb_proto_var *vars;
	size_t n_vars;
};

/**
 * lb_proto_read() - copy the prototype at @addr
 * @proto_ret: release with lb_proto_fini(); untouched on failure
 * Return: 0, -EBADMSG (no prototype there, or its sizes contradict each other),
 * -E2BIG (over a bound of ours), -ENOMEM, or what reading gave.
 */
int lb_proto_read(struct lb_target *target, uint64_t addr,
		  struct lb_proto *proto_ret);
void lb_proto_fini(struct lb_proto *proto);
/**
 * lb_proto_check() - is it still the same prototype in the target?
 * To be asked after strings were read, before they are believed.
 * Return: 0, -ESTALE, or what reading gave.
 */
int lb_proto_check(struct lb_target *target, const struct lb_proto *proto);

/** Does it take `...`, as every main chunk does? */
bool lb_proto_is_vararg(const struct lj_offsets *off,
			const struct lb_proto *proto);
/** Is its first parameter named `self`? */
bool lb_proto_has_self(const struct lb_proto *proto);
/** Name of upvalue @index, NULL if not known. */
const char *lb_proto_upvalue_name(const struct lb_proto *proto,
				  unsigned int index);
/** Opcode at bytecode index @pos < size_bc. */
unsigned int lb_proto_op(const struct lj_offsets *off,
			 const struct lb_proto *proto, uint32_t pos);

struct lb_proto_child {
	uint64_t addr;
	const struct lb_path *path; /* empty: anonymous */
	bool field; /* path is a field of a table that has no name here */
};

/** Return non-zero to stop. @child is valid during the call. */
typedef int (*lb_proto_child_fn)(void *arg, const struct lb_proto_child *child);
/** Prototypes that @proto makes closures of, each with its name. */
int lb_proto_each_child(struct lb_target *target, const struct lb_proto *proto,
			lb_proto_child_fn fn, void *arg);

/** Return non-zero to stop. */
typedef int (*lb_proto_call_fn)(void *arg, uint32_t pos, const char *name);
/** Call instructions whose callee has a name in the bytecode, by position. */
int lb_proto_each_call(struct lb_target *target, const struct lb_proto *proto,
		       lb_proto_call_fn fn, void *arg);

/**
 * lb_proto_metamethod() - which metamethod can instruction @op call?
 * Return: its name, NULL for none.
 */
const char *lb_proto_metamethod(const struct lj_offsets *off, unsigned int op);

#endif
