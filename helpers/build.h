/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lj_offsets of one build of LuaJIT: from the debug info and the code of
 * a file, from its code alone, or from a column of a table of offsets.
 */
#ifndef LB_BUILD_H
#define LB_BUILD_H

#include <stdbool.h>

#include "scan.h"
#include "../bpf_c/lj_offsets.h"

/* Lines on where a build comes from. */
enum {
	LB_BUILD_FILE,
	LB_BUILD_GIVEN, /* by the user */
	LB_BUILD_ID,
	LB_BUILD_CFRAME,
	LB_BUILD_UNKNOWN,
	LB_BUILD_SOURCES
};

struct lb_build {
	struct lj_offsets offsets;
	/* Fields that could not be had, of a file without debug info. */
	bool unknown[LB_SCAN_N_FIELDS];
	size_t n_unknown;
	char file[64];			    /* its name without folders */
	char source[LB_BUILD_SOURCES][192]; /* may be empty */
};

/* Why there is none, and what to do about it. */
struct lb_build_error {
	char text[512];
	char hint[256];
	bool no_debug_info; /* of LuaJIT: lb_build_scan() may do */
};

/**
 * lb_build_read() - read the debug info and the code of a file
 * @debug_path: its separate debug file, or NULL
 * Return: 0, or -errno with *error filled.
 */
int lb_build_read(const char *path, const char *debug_path,
		  struct lb_build *build_ret, struct lb_build_error *error);

/**
 * lb_build_scan() - read the code of a file that has no debug info
 * @build_ret: fields from the code, the others from the entries of the built-in
 * table with the same marks, if there are any and they agree; else unknown
 * @scan_ret: what is from the code
 * Return: 0, -EINVAL (code and entry differ), or -errno; *error is filled.
 */
int lb_build_scan(const char *path, struct lb_build *build_ret,
		  struct lb_scan *scan_ret, struct lb_build_error *error);

/**
 * lb_build_read_table() - read one column of a table of offsets
 * @path: lines of fields between tabs; the first line names the columns, the
 * first field of the others a member (its cell is "offset:size"), "E." and an
 * enumerator, or "D." and a property of the build
 * Return: 0, or -errno with *error filled.
 */
int lb_build_read_table(const char *path, const char *column,
			struct lb_build *build_ret,
			struct lb_build_error *error);

#endif
