/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of one file with a LuaJIT VM in it: which build, where its offsets are
 * from, what symbols and unwind tables it has.
 */
#ifndef LB_VMFACTS_H
#define LB_VMFACTS_H

#include "facts.h"
#include "object.h"

/**
 * lb_vmfacts_brief() - group `vm`: build ID, version, pointer mode, build
 * @object: has a VM
 */
void lb_vmfacts_brief(struct lb_facts *facts, size_t item,
		      const struct lb_object *object);

/**
 * lb_vmfacts_all() - group `vm`: all that the file shows; group `offset`
 * @proc: where to look for debug files; may be NULL
 */
void lb_vmfacts_all(struct lb_facts *facts, size_t item,
		    const struct lb_object *object, const struct lb_proc *proc);

/** What became of a file's unwind table: "usable", or why not. */
const char *lb_vmfacts_unwind_text(const struct lb_object *object);

#endif
