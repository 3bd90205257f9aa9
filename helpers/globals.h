/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a VM, walked for functions: globals, package.loaded, the rest
 * of the registry, and what closures found there hold as upvalues.
 */
#ifndef LB_GLOBALS_H
#define LB_GLOBALS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto.h"
#include "target.h"

/*
 * Where a function was found; the better place first: a module is where its
 * functions were made, a global may be a shorter name for one of them.
 */
enum lb_source {
	LB_SOURCE_MODULE, /* package.loaded */
	LB_SOURCE_GLOBAL,
	LB_SOURCE_TABLE, /* one that an upvalue or the registry holds */
	LB_SOURCE_UPVALUE,
};

struct lb_place {
	const struct lb_path *path; /* empty: found, but without a name */
	enum lb_source source;
	unsigned int depth; /* tables on the way */
	bool colon;	    /* a method, whatever its parameters */
};

struct lb_globals_sink {
	void *arg;
	/* Return 0 or -errno, which ends the walk. Valid during the call. */
	int (*lua)(void *arg, struct lb_target *target,
		   const struct lb_proto *proto, const struct lb_place *place);
	int (*fast)(void *arg, unsigned int ffid, const struct lb_place *place);
};

/**
 * lb_globals_walk() - report each function that is found in the VM at @g_addr
 * The same function is reported once for each place. Breadth first, so that a
 * bound cuts off what is deepest.
 * Return: 0, -E2BIG (a bound was hit, more may be there), -EBADMSG (no VM
 * there), -ENOMEM, or what a callback or the first read gave.
 */
int lb_globals_walk(struct lb_target *target, uint64_t g_addr,
		    const struct lb_globals_sink *sink);

#endif
