/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One trace of LuaJIT's compiler, copied out of the target: its IR, snapshots
 * and machine code, and the Lua frames that each snapshot describes.
 */
#ifndef LB_TRACE_H
#define LB_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target.h"

#define LB_TRACE_FRAMES 64  /* frames of one snapshot */
#define LB_TRACE_SLOTS	256 /* slots of one snapshot */
#define LB_IR_BIAS	0x8000
#define LB_NODE_NONE	UINT32_MAX /* no index of a chain of frames */

struct lb_trace {
	uint64_t addr; /* GCtrace */
	uint64_t mcode;
	uint64_t startpt;  /* GCproto */
	uint64_t startpc;  /* address of the instruction where it begins */
	uint32_t id;	   /* LB_TRACE_ID() */
	uint32_t szmcode;  /* bytes */
	uint32_t mcloop;   /* offset of its loop in the machine code, or 0 */
	uint32_t nk, nins; /* IR references are in [nk, nins) */
	uint32_t n_snaps, n_map;
	uint16_t no, root, link; /* trace numbers; root 0: it is one */
	uint8_t linktype;
	bool has_mcofs; /* snapshots say where their code begins */
	uint8_t *ir;	/* of nk ... nins */
	uint8_t *snaps;
	uint32_t *map;
	uint8_t *code;
};

/**
 * lb_trace_read() - copy trace number @no of a VM
 * @id: LB_TRACE_ID() that it must have; 0: whichever it is
 * @trace_ret: release with lb_trace_fini(); untouched on failure
 * Return: 0, -ENOENT (no such trace), -ESTALE (another trace has the number),
 * -EBADMSG (sizes contradict each other), -E2BIG, -EOPNOTSUPP (offsets not
 * known), -ENOMEM, or what reading gave.
 */
int lb_trace_read(struct lb_target *target, uint64_t g_addr, uint32_t no,
		  uint32_t id, struct lb_trace *trace_ret);
void lb_trace_fini(struct lb_trace *trace);
/**
 * lb_trace_check() - is it still the trace with its number?
 * All that was read meanwhile belongs to it if it is. Return: 0, -ESTALE.
 */
int lb_trace_check(struct lb_target *target, uint64_t g_addr,
		   const struct lb_trace *trace);
/**
 * lb_trace_find() - number of the trace whose machine code holds @pc
 * Return: 0, -ENOENT, or what reading gave.
 */
int lb_trace_find(struct lb_target *target, uint64_t g_addr, uint64_t pc,
		  uint32_t *no_ret);

enum lb_trace_link { /* how a frame is linked to the one below it */
		     LB_TRACE_LINK_LUA,
		     LB_TRACE_LINK_CONT,  /* a metamethod */
		     LB_TRACE_LINK_OTHER, /* pcall and such */
};

/* One frame of a snapshot. frames[0] is the one on the Lua stack. */
struct lb_trace_frame {
	uint64_t func;	/* GCfunc if it is a constant of the trace, else 0 */
	uint64_t proto; /* GCproto if only that is known, else 0 */
	uint64_t caller_pc; /* return address in the frame below, or 0 */
	uint16_t base;	    /* slot of its first parameter */
	uint8_t link;	    /* enum lb_trace_link */
};

struct lb_trace_snap {
	uint32_t mcofs;	 /* its code begins here; 0 without has_mcofs */
	uint32_t ref;	 /* first IR instruction behind it */
	uint64_t pc;	 /* bytecode to be executed next, in the last frame */
	bool tailcalled; /* frames[0] has left by a tail call */
	uint32_t n_frames;
	struct lb_trace_frame frames[LB_TRACE_FRAMES];
	/* functions in slots, where they are constants of the trace */
	uint64_t funcs[LB_TRACE_SLOTS];
};

/**
 * lb_trace_snap() - decode snapshot @i < n_snaps
 * Return: 0, -EBADMSG, -E2BIG (too many frames).
 */
int lb_trace_snap(const struct lj_offsets *off, const struct lb_trace *trace,
		  uint32_t i, struct lb_trace_snap *snap_ret);
/**
 * lb_trace_guard() - the next call target that the IR is specialized to
 * @ref: where to begin; set behind the one found. Up to @end.
 * Return: GCfunc (*is_proto false) or GCproto, 0 for none.
 */
uint64_t lb_trace_guard(const struct lj_offsets *off,
			const struct lb_trace *trace, uint32_t *ref,
			uint32_t end, bool *is_proto);
/** Is instruction @ref a comparison that leaves the trace when it fails? */
bool lb_trace_is_test(const struct lb_trace *trace, uint32_t ref);
/** Does any instruction have a 64-bit integer type? */
bool lb_trace_has_int64(const struct lb_trace *trace);

#endif
