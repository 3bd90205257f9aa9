/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One trace of LuaJIT's compiler, copied out of the target.
 *
 * A snapshot lists the slots that the trace has changed, relative to the frame
 * on the Lua stack; a call that was inlined shows as a slot with a frame mark.
 * With two-slot frames (GC64) that slot holds the link, a constant, and the
 * one below it the function; behind the entries stand the bytecode pc and the
 * base slot. With one-slot frames it holds the function, and behind the
 * entries stand the pc and the links, innermost first (lj_snap.c).
 *
 * The trace may be flushed at any moment: whoever copies it asks
 * lb_trace_check() afterwards.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"
#include "../bpf_c/lb_wire.h"

#define HEADER_MAX 256	      /* bytes of GCtrace, all builds */
#define MCODE_MAX  (1U << 20) /* bytes of machine code of one trace */
#define SNAPS_MAX  16384
#define SNAP_SIZE  16 /* bytes, at most */
#define TRACES_MAX 65536
#define IR_SIZE	   8
#define IRT_PROTO  7
#define IRT_FUNC   8
#define IRT_P64	   9
#define IRT_I64	   21
#define IRT_U64	   22
#define IRT_GUARD  0x80
#define IR_EQ	   8 /* the first opcodes are the same in all builds */
#define TRACE_TYPE 9
#define SNAP_FRAME 0x010000
#define SNAP_CONT  0x020000
#define LINK_CONT  2
#define LINK_VARG  3

static uint16_t get_u16(const uint8_t *data)
{
	uint16_t value;

	memcpy(&value, data, sizeof(value));
	return value;
}

static uint32_t get_u32(const uint8_t *data)
{
	uint32_t value;

	memcpy(&value, data, sizeof(value));
	return value;
}

static uint64_t get_u64(const uint8_t *data)
{
	uint64_t value;

	memcpy(&value, data, sizeof(value));
	return value;
}

/* Bytes of the header that have all fields we read; 0 if one is not known. */
static uint32_t header_size(const struct lj_offsets *off)
{
	const uint32_t fields[] = {
		off->tr_startpt,  off->tr_startpc, off->tr_mcode,
		off->tr_szmcode,  off->tr_root,	   off->tr_link,
		off->tr_traceno,  off->tr_nsnap,   off->tr_nsnapmap,
		off->tr_snap,	  off->tr_snapmap, off->tr_ir,
		off->tr_nk,	  off->tr_nins,	   off->tr_mcloop,
		off->tr_linktype, off->pt_gct
	};
	const uint32_t snap[] = { off->sn_mapofs, off->sn_ref, off->sn_nent };
	uint32_t size = 0;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i] > HEADER_MAX - 8)
			return 0;
		if (fields[i] + 8 > size)
			size = fields[i] + 8;
	}
	for (size_t i = 0; i < sizeof(snap) / sizeof(snap[0]); i++)
		if (snap[i] > SNAP_SIZE - 4)
			return 0;
	if (off->sn_size > SNAP_SIZE || off->sn_size < 4 ||
	    off->ir_size != IR_SIZE || off->j_trace == LJ_OFFSETS_NONE ||
	    (off->sn_mcofs != LJ_OFFSETS_NONE &&
	     off->sn_mcofs > off->sn_size - 2))
		return 0;
	return size;
}

/* J->trace and how many entries it has. */
static int trace_table(struct lb_target *target, uint64_t g_addr,
		       uint64_t *table_ret, uint32_t *size_ret)
{
	const struct lj_offsets *off = target->off;
	uint64_t j = g_addr + off->g_to_j;
	uint8_t ref[8], size[4];
	int err = lb_target_read(target, j + off->j_sizetrace, size, 4);

	if (!err)
		err = lb_target_read(target, j + off->j_trace, ref,
				     lb_target_ref_size(target));
	if (err)
		return err;
	*table_ret = lb_target_ref(target, ref);
	*size_ret = get_u32(size);
	return *size_ret > TRACES_MAX ? -EBADMSG : 0;
}

/* Header of trace @no, and its address. */
static int read_header(struct lb_target *target, uint64_t g_addr, uint32_t no,
		       uint8_t *header, uint64_t *addr_ret)
{
	uint32_t size = header_size(target->off), n;
	size_t ref_size = lb_target_ref_size(target);
	uint64_t table, addr;
	uint8_t ref[8];

	if (!size)
		return -EOPNOTSUPP;
	int err = trace_table(target, g_addr, &table, &n);

	if (err)
		return err;
	if (!no || no >= n)
		return -ENOENT;
	err = lb_target_read(target, table + no * ref_size, ref, ref_size);
	if (err)
		return err;
	addr = lb_target_ref(target, ref);
	if (!addr)
		return -ENOENT;
	err = lb_target_read(target, addr, header, size);
	if (err)
		return err;
	/* one that is being recorded has no machine code yet */
	if (header[target->off->pt_gct] != TRACE_TYPE ||
	    get_u16(header + target->off->tr_traceno) != no)
		return -ENOENT;
	*addr_ret = addr;
	return 0;
}

static void parse_header(const struct lb_target *target, const uint8_t *header,
			 struct lb_trace *trace)
{
	const struct lj_offsets *off = target->off;

	trace->mcode = get_u64(header + off->tr_mcode);
	trace->szmcode = get_u32(header + off->tr_szmcode);
	trace->mcloop = get_u32(header + off->tr_mcloop);
	trace->startpt = lb_target_ref(target, header + off->tr_startpt);
	trace->startpc = lb_target_ref(target, header + off->tr_startpc);
	trace->nk = get_u32(header + off->tr_nk);
	trace->nins = get_u32(header + off->tr_nins);
	trace->n_snaps = get_u16(header + off->tr_nsnap);
	trace->n_map = off->sn_mapofs_size == 2
			       ? get_u16(header + off->tr_nsnapmap)
			       : get_u32(header + off->tr_nsnapmap);
	trace->no = get_u16(header + off->tr_traceno);
	trace->root = get_u16(header + off->tr_root);
	trace->link = get_u16(header + off->tr_link);
	trace->linktype = header[off->tr_linktype];
	trace->has_mcofs = off->sn_mcofs != LJ_OFFSETS_NONE;
	trace->id = LB_TRACE_ID(trace->addr, trace->mcode, trace->szmcode,
				trace->startpt, trace->startpc,
				(uint16_t)trace->nins);
}

static int copy(struct lb_target *target, uint64_t addr, size_t size,
		void *data_ret)
{
	void *data = malloc(size ? size : 1);

	if (!data)
		return -ENOMEM;
	memcpy(data_ret, &data, sizeof(data));
	return size ? lb_target_read(target, addr, data, size) : 0;
}

static int copy_parts(struct lb_target *target, const uint8_t *header,
		      struct lb_trace *trace)
{
	const struct lj_offsets *off = target->off;

	if (trace->nk > LB_IR_BIAS || trace->nins < LB_IR_BIAS ||
	    trace->nins > 2 * LB_IR_BIAS || trace->n_map > 1U << 20)
		return -EBADMSG;
	if (trace->szmcode > MCODE_MAX || trace->n_snaps > SNAPS_MAX)
		return -E2BIG;
	int err = copy(target,
		       get_u64(header + off->tr_ir) +
			       (uint64_t)IR_SIZE * trace->nk,
		       (size_t)IR_SIZE * (trace->nins - trace->nk), &trace->ir);

	if (!err)
		err = copy(target, get_u64(header + off->tr_snap),
			   (size_t)off->sn_size * trace->n_snaps,
			   &trace->snaps);
	if (!err)
		err = copy(target, get_u64(header + off->tr_snapmap),
			   sizeof(uint32_t) * trace->n_map, &trace->map);
	if (!err)
		err = copy(target, trace->mcode, trace->szmcode, &trace->code);
	return err;
}

int lb_trace_read(struct lb_target *target, uint64_t g_addr, uint32_t no,
		  uint32_t id, struct lb_trace *trace_ret)
{
	struct lb_trace trace = { .addr = 0 };
	uint8_t header[HEADER_MAX];
	int err = read_header(target, g_addr, no, header, &trace.addr);

	if (err)
		return err;
	parse_header(target, header, &trace);
	if (id && trace.id != id)
		return -ESTALE;
	if (!trace.mcode || !trace.szmcode)
		return -ENOENT;
	err = copy_parts(target, header, &trace);
	if (err) {
		lb_trace_fini(&trace);
		return err;
	}
	*trace_ret = trace;
	return 0;
}

void lb_trace_fini(struct lb_trace *trace)
{
	free(trace->ir);
	free(trace->snaps);
	free(trace->map);
	free(trace->code);
	memset(trace, 0, sizeof(*trace));
}

int lb_trace_check(struct lb_target *target, uint64_t g_addr,
		   const struct lb_trace *trace)
{
	struct lb_trace now = { .addr = 0 };
	uint8_t header[HEADER_MAX];

	if (read_header(target, g_addr, trace->no, header, &now.addr))
		return -ESTALE;
	parse_header(target, header, &now);
	return now.id == trace->id ? 0 : -ESTALE;
}

int lb_trace_find(struct lb_target *target, uint64_t g_addr, uint64_t pc,
		  uint32_t *no_ret)
{
	const struct lj_offsets *off = target->off;
	size_t ref_size = lb_target_ref_size(target);
	uint64_t table;
	uint32_t n;

	if (!header_size(off))
		return -EOPNOTSUPP;
	int err = trace_table(target, g_addr, &table, &n);

	if (err)
		return err;
	uint8_t *refs = NULL;

	err = copy(target, table, n * ref_size, &refs);
	for (uint32_t no = 1; no < n && !err; no++) {
		uint64_t addr = lb_target_ref(target, refs + no * ref_size);
		uint8_t mcode[8], size[4];

		/* one that cannot be read is none */
		if (!addr ||
		    lb_target_read(target, addr + off->tr_mcode, mcode, 8) ||
		    lb_target_read(target, addr + off->tr_szmcode, size, 4))
			continue;
		if (pc - get_u64(mcode) >= get_u32(size))
			continue;
		free(refs);
		*no_ret = no;
		return 0;
	}
	free(refs);
	return err ? err : -ENOENT;
}

/* ---- IR ---- */

/* Instruction or constant @ref, NULL if there is none. */
static const uint8_t *ir_at(const struct lb_trace *trace, uint32_t ref)
{
	if (ref < trace->nk || ref >= trace->nins)
		return NULL;
	return trace->ir + (size_t)IR_SIZE * (ref - trace->nk);
}

static unsigned int ir_type(const uint8_t *ir)
{
	return ir[4] & 0x1f;
}

/* 64 bits behind a constant: numbers, and references of GC64. */
static uint64_t ir_wide(const struct lb_trace *trace, uint32_t ref)
{
	const uint8_t *ir = ref + 1 < LB_IR_BIAS ? ir_at(trace, ref + 1) : NULL;

	return ir ? get_u64(ir) : 0;
}

/* The object or address of constant @ref, if it has type @type. */
static uint64_t ir_object(const struct lj_offsets *off,
			  const struct lb_trace *trace, uint32_t ref,
			  unsigned int type)
{
	const uint8_t *ir = ref < LB_IR_BIAS ? ir_at(trace, ref) : NULL;

	if (!ir || ir_type(ir) != type)
		return 0;
	return off->gc64 ? ir_wide(trace, ref) : get_u32(ir);
}

/* Is @ref what FLOAD gives of @func, or @func itself? */
static bool is_load_of(const struct lb_trace *trace, uint32_t ref,
		       uint32_t func)
{
	const uint8_t *ir = ref >= LB_IR_BIAS ? ir_at(trace, ref) : NULL;

	return ir && get_u16(ir) == func;
}

/*
 * Prototype of a function that is no constant: with many closures of one
 * prototype a call is specialized to the address of its bytecode.
 */
static uint64_t proto_of(const struct lj_offsets *off,
			 const struct lb_trace *trace, uint32_t func)
{
	for (uint32_t ref = LB_IR_BIAS; ref < trace->nins; ref++) {
		const uint8_t *ir = ir_at(trace, ref);

		if (ir[5] != IR_EQ || ir_type(ir) != IRT_P64 ||
		    !is_load_of(trace, get_u16(ir), func))
			continue;
		uint64_t code = ir_object(off, trace, get_u16(ir + 2), IRT_P64);

		if (code)
			return code - off->pt_size;
	}
	return 0;
}

uint64_t lb_trace_guard(const struct lj_offsets *off,
			const struct lb_trace *trace, uint32_t *ref,
			uint32_t end, bool *is_proto)
{
	while (*ref < end) {
		const uint8_t *ir = ir_at(trace, (*ref)++);

		if (!ir || ir[5] != IR_EQ)
			continue;
		uint32_t left = get_u16(ir), right = get_u16(ir + 2);
		uint64_t object = 0;

		*is_proto = false;
		if (ir_type(ir) == IRT_FUNC) {
			const uint8_t *from = ir_at(trace, left);

			/* no call: the function on the stack is a constant */
			if (from && left >= LB_IR_BIAS && !get_u16(from))
				continue;
			object = ir_object(off, trace, right, IRT_FUNC);
		} else if (ir_type(ir) == IRT_P64) {
			const uint8_t *from = ir_at(trace, left);
			const uint8_t *func =
				from ? ir_at(trace, get_u16(from)) : NULL;

			/* the bytecode of a function, no slot of a table */
			if (func && ir_type(func) == IRT_FUNC)
				object = ir_object(off, trace, right, IRT_P64);
			if (object)
				object -= off->pt_size;
			*is_proto = true;
		}
		if (object)
			return object;
	}
	return 0;
}

bool lb_trace_is_test(const struct lb_trace *trace, uint32_t ref)
{
	const uint8_t *ir = ref >= LB_IR_BIAS ? ir_at(trace, ref) : NULL;

	/* not what a call is specialized to */
	return ir && ir[4] & IRT_GUARD && ir[5] <= IR_EQ + 1 &&
	       ir_type(ir) != IRT_P64;
}

bool lb_trace_has_int64(const struct lb_trace *trace)
{
	for (uint32_t ref = LB_IR_BIAS; ref < trace->nins; ref++) {
		unsigned int type = ir_type(ir_at(trace, ref));

		if (type == IRT_I64 || type == IRT_U64)
			return true;
	}
	return false;
}

/* ---- snapshots ---- */

static struct lb_trace_frame *add_frame(struct lb_trace_snap *snap)
{
	if (snap->n_frames == LB_TRACE_FRAMES)
		return NULL;
	struct lb_trace_frame *f = &snap->frames[snap->n_frames++];

	memset(f, 0, sizeof(*f));
	return f;
}

static void set_function(const struct lj_offsets *off,
			 const struct lb_trace *trace, uint32_t ref,
			 struct lb_trace_frame *f)
{
	f->func = ir_object(off, trace, ref, IRT_FUNC);
	if (!f->func && ref >= LB_IR_BIAS)
		f->proto = proto_of(off, trace, ref);
}

/* The link of the frame on top, and what stands below it. */
static void set_link(struct lb_trace_snap *snap, uint64_t link,
		     uint64_t cont_pc)
{
	struct lb_trace_frame *f = &snap->frames[snap->n_frames - 1];

	f->link = LB_TRACE_LINK_OTHER;
	if (!(link & 3)) {
		f->link = LB_TRACE_LINK_LUA;
		f->caller_pc = link;
	} else if ((link & 7) == LINK_CONT) {
		f->link = LB_TRACE_LINK_CONT;
		f->caller_pc = cont_pc;
	} else if ((link & 7) == LINK_VARG) {
		/* the same function again, above its variable arguments */
		f[-1].base = f->base;
		snap->n_frames--;
	}
}

/* Two-slot frames. */
static int frames_wide(const struct lj_offsets *off,
		       const struct lb_trace *trace, const uint32_t *map,
		       uint32_t n, struct lb_trace_snap *snap)
{
	uint64_t pc_base;

	memcpy(&pc_base, map + n, sizeof(pc_base));
	snap->pc = pc_base >> 8;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = map[i] >> 24, ref = map[i] & 0xffff;
		uint32_t below = i ? map[i - 1] : 0;

		if (!slot)
			set_function(off, trace, ref, &snap->frames[0]);
		if (slot == 1 && map[i] & SNAP_FRAME)
			snap->tailcalled = true;
		if (!(map[i] & SNAP_FRAME) || slot < 2)
			continue;
		struct lb_trace_frame *f = add_frame(snap);

		if (!f)
			return -E2BIG;
		f->base = slot + 1;
		if (i && below >> 24 == slot - 1)
			set_function(off, trace, below & 0xffff, f);
		uint64_t cont_pc = 0;

		for (uint32_t k = i; k && map[k - 1] >> 24 >= slot - 2; k--)
			if (map[k - 1] >> 24 == slot - 2 &&
			    map[k - 1] & SNAP_CONT)
				cont_pc = ir_wide(trace, map[k - 1] & 0xffff);
		set_link(snap, ref < LB_IR_BIAS ? ir_wide(trace, ref) : 4 | 1,
			 cont_pc);
	}
	return 0;
}

/* One-slot frames; @end: entries of the map behind @map. */
static int frames_narrow(const struct lj_offsets *off,
			 const struct lb_trace *trace, const uint32_t *map,
			 uint32_t n, uint32_t end, struct lb_trace_snap *snap)
{
	uint32_t links[2 * LB_TRACE_FRAMES], n_links = 0, n_frames = 0;
	uint32_t at = n + 1;

	snap->pc = map[n];
	for (uint32_t i = 0; i < n; i++)
		n_frames += map[i] & SNAP_FRAME && map[i] >> 24;
	if (n_frames >= LB_TRACE_FRAMES)
		return -E2BIG;
	for (uint32_t i = 0; i < n_frames; i++) {
		if (at + 1 > end)
			return -EBADMSG;
		links[n_links++] = map[at++];
		links[n_links] = 0;
		if ((links[n_links - 1] & 7) == LINK_CONT) {
			if (at + 1 > end)
				return -EBADMSG;
			links[n_links] = map[at++];
		}
		n_links++;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = map[i] >> 24;

		if (!slot)
			set_function(off, trace, map[i] & 0xffff,
				     &snap->frames[0]);
		if (!(map[i] & SNAP_FRAME) || !slot)
			continue;
		struct lb_trace_frame *f = add_frame(snap);

		if (!f)
			return -E2BIG;
		f->base = slot + 1;
		set_function(off, trace, map[i] & 0xffff, f);
		n_links -= 2;
		set_link(snap, links[n_links], links[n_links + 1]);
	}
	return 0;
}

int lb_trace_snap(const struct lj_offsets *off, const struct lb_trace *trace,
		  uint32_t i, struct lb_trace_snap *snap_ret)
{
	if (i >= trace->n_snaps)
		return -EBADMSG;
	const uint8_t *raw = trace->snaps + (size_t)off->sn_size * i;
	uint32_t map_at = off->sn_mapofs_size == 2
				  ? get_u16(raw + off->sn_mapofs)
				  : get_u32(raw + off->sn_mapofs);
	uint32_t n = raw[off->sn_nent];
	const uint32_t *map = trace->map + map_at;

	if (map_at > trace->n_map || trace->n_map - map_at < n + 2 - !off->gc64)
		return -EBADMSG;
	memset(snap_ret, 0, sizeof(*snap_ret));
	snap_ret->ref = get_u16(raw + off->sn_ref);
	if (trace->has_mcofs)
		snap_ret->mcofs = get_u16(raw + off->sn_mcofs);
	snap_ret->n_frames = 1;
	snap_ret->frames[0].base = off->gc64 ? 2 : 1;
	for (uint32_t k = 0; k < n; k++)
		snap_ret->funcs[map[k] >> 24] =
			ir_object(off, trace, map[k] & 0xffff, IRT_FUNC);
	if (off->gc64)
		return frames_wide(off, trace, map, n, snap_ret);
	return frames_narrow(off, trace, map, n, trace->n_map - map_at,
			     snap_ret);
}
