/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of struct lj_offsets by name, and where each comes from: a member
 * of one of LuaJIT's structs, an enumerator, or the VM's code.
 */
#ifndef LB_FIELDS_H
#define LB_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "luajit.h"
#include "../bpf_c/lj_offsets.h"

enum lb_field_kind {
	LB_FIELD_OFFSET,   /* of member @path, or else of @other */
	LB_FIELD_SIZE,	   /* of type or member @path, bytes */
	LB_FIELD_DISTANCE, /* offset of @path - offset of @other */
	LB_FIELD_STATIC,   /* of dispatch table @path; see lj_dispatch.h */
	LB_FIELD_REFS,	   /* references in array @path */
	LB_FIELD_ENUM,	   /* value of @path, or else of @other */
	LB_FIELD_GC64,	   /* is the reference @path 64 bits wide? */
	LB_FIELD_CODE,	   /* see lb_fields_set_code() */
};

struct lb_field {
	const char *name;
	size_t off; /* in struct lj_offsets */
	enum lb_field_kind kind;
	const char *path;
	const char *other;
	bool optional; /* LJ_OFFSETS_NONE if there is none */
};

extern const struct lb_field lb_fields[];
extern const size_t lb_n_fields;

uint32_t lb_field_get(const struct lj_offsets *offsets,
		      const struct lb_field *field);
void lb_field_set(struct lj_offsets *offsets, const struct lb_field *field,
		  uint32_t value);

/* Debug info, or a table of offsets; see helpers/dwarf.h for the meaning. */
struct lb_field_source {
	void *arg;
	int (*member)(void *arg, const char *path, uint64_t *off_ret,
		      uint64_t *size_ret);
	int (*enumerator)(void *arg, const char *name, int64_t *value_ret);
};

/**
 * lb_fields_read() - all fields that are not from code
 * @path_ret: on failure, what could not be had
 * Return: 0, -ENOENT (the build has no such member), -ERANGE (a value that
 * cannot be), or what the source gave.
 */
int lb_fields_read(const struct lb_field_source *source,
		   struct lj_offsets *offsets_ret, const char **path_ret);

/** lb_fields_set_code() - C frame size and slots */
void lb_fields_set_code(struct lj_offsets *offsets,
			const struct lb_luajit *luajit);

/**
 * lb_fields_slots_by_rule() - slots of the C frame where there is no code
 * They follow from its size and the pointer mode in all builds that are known.
 * Return: 0, -EOPNOTSUPP (another size).
 */
int lb_fields_slots_by_rule(struct lb_luajit *luajit);

#endif
