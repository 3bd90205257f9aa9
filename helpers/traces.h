/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The traces of a run that samples fell into: copied when first seen, bounded
 * in number, memory and rate.
 */
#ifndef LB_TRACES_H
#define LB_TRACES_H

#include "subject.h"
#include "tracemap.h"

struct lb_traces;

/* Where a pc of machine code was sampled. */
struct lb_trace_key {
	struct lb_subject *subject;
	uint64_t g_addr;
	uint32_t vm;
	uint32_t no; /* trace number, with id */
	uint32_t id; /* LB_TRACE_ID(), 0: not known */
	uint64_t pc;
};

struct lb_traces_bounds {
	size_t traces; /* gone ones count, too */
	size_t bytes;  /* of maps; the last of them may go over it */
	uint32_t rate; /* copies a second, not 0 */
	uint32_t burst;
};

/**
 * lb_traces_new() - an empty store
 * @bounds: NULL for the usual ones
 * Return: 0, -ENOMEM.
 */
int lb_traces_new(const struct lb_traces_bounds *bounds,
		  struct lb_traces **traces_ret);
void lb_traces_free(struct lb_traces *traces);
/**
 * lb_traces_want() - a sample fell into this trace: copy it if it is new
 * @proto_addr: prototype of the Lua frame that runs it, 0 if not known
 * Or put it off to lb_traces_poll() when too many have come at once.
 */
void lb_traces_want(struct lb_traces *traces, const struct lb_trace_key *key,
		    uint64_t proto_addr);
/** Copy what was put off. */
void lb_traces_poll(struct lb_traces *traces);
/**
 * lb_traces_find() - the map of a trace
 * Without an id: the only one that ever held the pc, while it is still there.
 * Return: NULL when it was gone before it could be copied, or a bound was hit.
 */
struct lb_tracemap *lb_traces_find(struct lb_traces *traces,
				   const struct lb_trace_key *key);
/**
 * lb_traces_text() - one trace with samples, in one line
 * For i = 0, 1 ... : most samples first; NULL after the last. Owned by
 * @traces until the next call.
 */
const char *lb_traces_text(struct lb_traces *traces, size_t i);

#endif
