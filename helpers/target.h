/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LuaJIT values in target memory: references, tagged values and strings, in
 * both pointer modes, read through a callback and counted against a budget.
 */
#ifndef LB_TARGET_H
#define LB_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../bpf_c/lj_offsets.h"

/* Reads target memory: 0 when all bytes were read, else -errno. */
typedef int (*lb_read_fn)(void *arg, uint64_t addr, void *buf, size_t size);

struct lb_target {
	lb_read_fn read;
	void *read_arg;
	const struct lj_offsets *off;
	uint32_t budget; /* reads that are left, a long one counts as many */
};

/* Types, the same numbers in object headers and (complemented) in values. */
enum lb_lua_type {
	LB_LUA_STR = 4,
	LB_LUA_UPVAL = 5,
	LB_LUA_THREAD = 6,
	LB_LUA_PROTO = 7,
	LB_LUA_FUNC = 8,
	LB_LUA_TAB = 11,
	LB_LUA_UDATA = 12,
};

/* A dotted name that grows to the right; what did not fit shows as "...". */
#define LB_PATH_MAX 192
struct lb_path {
	char text[LB_PATH_MAX]; /* escaped */
	uint16_t len;
	uint16_t last; /* where the last component begins */
	bool cut;
};

/** Same as read(), paid from the budget; -E2BIG when that is used up. */
int lb_target_read(struct lb_target *target, uint64_t addr, void *buf,
		   size_t size);
/** Size of a reference in bytes. */
size_t lb_target_ref_size(const struct lb_target *target);
/** Reference stored at @data (which has lb_target_ref_size() bytes). */
uint64_t lb_target_ref(const struct lb_target *target, const void *data);
/** Type (enum lb_lua_type, or a number not in it) of a TValue. */
unsigned int lb_target_type(const struct lb_target *target, uint64_t value);
/** Object of a TValue that has one. */
uint64_t lb_target_object(const struct lb_target *target, uint64_t value);

void lb_path_clear(struct lb_path *path);
/**
 * lb_path_add() - append a component
 * @sep: goes before it unless the path is empty
 */
void lb_path_add(struct lb_path *path, char sep, const char *text, size_t size);
/** Append the GCstr at @addr as a component; the path is kept on failure. */
int lb_path_add_str(struct lb_target *target, struct lb_path *path, char sep,
		    uint64_t addr);

#endif
