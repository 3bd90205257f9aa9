/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM with one trace in target memory, in either pointer mode: outer calls
 * middle, which reads a field whose metamethod is inner; all inlined.
 *
 *     mcode   snapshot   frames
 *     0       0          outer
 *     8       1          outer, middle
 *     16      2          outer, middle, inner (a metamethod)
 *     24      3          outer
 *
 * outer begins in line 10, middle in 20, inner in 30.
 */
#ifndef TRACE_IMAGE_H
#define TRACE_IMAGE_H

#include "lj_image.h"
#include "trace.h"

#define TRACE_NO    3
#define TRACE_SIZE  32
#define TRACE_SNAPS 4

enum { TRACE_OUTER, TRACE_MIDDLE, TRACE_INNER, TRACE_FUNCS };

struct trace_world {
	uint64_t g_addr;
	uint64_t table; /* J->trace */
	uint64_t trace; /* GCtrace */
	uint64_t mcode;
	uint64_t ir, snaps, map;
	uint64_t protos[TRACE_FUNCS], funcs[TRACE_FUNCS];
	uint32_t nk;
	uint32_t n_map;
};

static inline const struct lj_offsets *trace_offsets(bool gc64)
{
	size_t n = sizeof(lj_offsets_table) / sizeof(lj_offsets_table[0]);

	for (size_t i = 0; i < n; i++) {
		const struct lj_offsets *off = &lj_offsets_table[i].offsets;

		if (off->gc64 == gc64 && off->sn_mcofs != LJ_OFFSETS_NONE)
			return off;
	}
	return NULL;
}

static inline void trace_u64(struct img *img, uint64_t addr, uint64_t value)
{
	img_put(img, addr, &value, sizeof(value));
}

static inline void trace_u16(struct img *img, uint64_t addr, uint16_t value)
{
	img_put(img, addr, &value, sizeof(value));
}

static inline void trace_func(struct img *img, struct trace_world *w, int i,
			      const uint32_t *bc, uint32_t n)
{
	struct img_proto spec = { .chunk = img_str(img, "@trace.lua"),
				  .first_line = 10 + 10 * (uint32_t)i,
				  .num_line = 9,
				  .bc = bc,
				  .size_bc = n };

	w->protos[i] = img_proto(img, &spec);
	w->funcs[i] = img_func(img, w->protos[i], 0, NULL, 0);
}

static inline void trace_code(struct img *img, struct trace_world *w)
{
	const struct lj_offsets *off = img->off;
	unsigned int args = off->gc64 ? 2 : 1;
	const uint32_t outer[] = {
		img_ad(off->bc_kstr + 2, 0, 1),	    /* 1 KSHORT 0 */
		img_ad(off->bc_mov, 1 + args, 0),   /* 2 */
		img_abc(off->bc_call + 1, 1, 2, 2), /* 3 CALL 1 */
		img_abc(off->bc_addvn, 0, 1, 0),    /* 4 ADDVN */
		img_ad(off->bc_retm + 3, 0, 2),	    /* 5 RET1 */
	};
	const uint32_t middle[] = {
		img_abc(off->bc_addvn, 1, 0, 0), /* 1 ADDVN */
		img_abc(off->bc_tgets, 1, 0, 0), /* 2 TGETS */
		img_ad(off->bc_retm + 3, 1, 2),	 /* 3 RET1 */
	};
	const uint32_t inner[] = {
		img_abc(off->bc_addvn, 0, 0, 0), /* 1 ADDVN */
		img_ad(off->bc_retm + 3, 0, 2),	 /* 2 RET1 */
	};

	trace_func(img, w, TRACE_OUTER, outer, 5);
	trace_func(img, w, TRACE_MIDDLE, middle, 3);
	trace_func(img, w, TRACE_INNER, inner, 2);
}

static inline uint64_t trace_pc(const struct img *img,
				const struct trace_world *w, int func,
				uint32_t pos)
{
	return w->protos[func] + img->off->pt_size + 4 * pos;
}

/* A constant of the IR, below those there are. */
static inline uint32_t trace_const(struct img *img, struct trace_world *w,
				   unsigned int type, uint64_t value)
{
	bool wide = img->off->gc64 || type == 14;

	w->nk -= wide ? 2 : 1;
	uint64_t at = w->ir + 8ULL * w->nk;

	if (!wide)
		img_u32(img, at, (uint32_t)value);
	img_u8(img, at + 4, type);
	if (wide)
		trace_u64(img, at + 8, value);
	return w->nk;
}

static inline void trace_entry(struct img *img, struct trace_world *w,
			       uint32_t slot, uint32_t flags, uint32_t ref)
{
	img_u32(img, w->map + 4 * w->n_map++, slot << 24 | flags | ref);
}

/* One snapshot whose entries are at @map_at ... */
static inline void trace_snap(struct img *img, struct trace_world *w,
			      uint32_t i, uint32_t map_at, uint32_t n_entries)
{
	const struct lj_offsets *off = img->off;
	uint64_t at = w->snaps + off->sn_size * i;

	img_u32(img, at + off->sn_mapofs, map_at);
	trace_u16(img, at + off->sn_ref, LB_IR_BIAS + 1 + i);
	trace_u16(img, at + off->sn_mcofs, 8 * i);
	img_u8(img, at + off->sn_nent, n_entries);
}

static inline void trace_pc_base(struct img *img, struct trace_world *w,
				 uint64_t pc, uint32_t base)
{
	if (img->off->gc64) {
		trace_u64(img, w->map + 4 * w->n_map, pc << 8 | (base - 2));
		w->n_map += 2;
	} else {
		img_u32(img, w->map + 4 * w->n_map++, pc);
	}
}

static inline void trace_snaps_wide(struct img *img, struct trace_world *w)
{
	uint32_t middle = trace_const(img, w, 8, w->funcs[TRACE_MIDDLE]);
	uint32_t inner = trace_const(img, w, 8, w->funcs[TRACE_INNER]);
	uint32_t call = trace_const(img, w, 14, trace_pc(img, w, 0, 4));
	uint32_t cont = trace_const(img, w, 14, trace_pc(img, w, 1, 3));
	uint32_t delta = trace_const(img, w, 14, 8 * 5 | 2);

	for (uint32_t i = 0; i < TRACE_SNAPS; i++) {
		uint32_t at = w->n_map, n = i == 1 ? 2 : i == 2 ? 5 : 0;

		if (n) {
			trace_entry(img, w, 3, 0, middle);
			trace_entry(img, w, 4, 0x010000, call);
		}
		if (n > 2) {
			trace_entry(img, w, 8, 0x020000, cont);
			trace_entry(img, w, 9, 0, inner);
			trace_entry(img, w, 10, 0x010000, delta);
		}
		trace_pc_base(img, w, trace_pc(img, w, n / 2, i == 3 ? 4 : 1),
			      n > 2 ? 11
			      : n   ? 5
				    : 2);
		trace_snap(img, w, i, at, n);
	}
}

static inline void trace_snaps_narrow(struct img *img, struct trace_world *w)
{
	uint32_t middle = trace_const(img, w, 8, w->funcs[TRACE_MIDDLE]);
	uint32_t inner = trace_const(img, w, 8, w->funcs[TRACE_INNER]);

	for (uint32_t i = 0; i < TRACE_SNAPS; i++) {
		uint32_t at = w->n_map, n = i == 1 ? 1 : i == 2 ? 2 : 0;

		if (n)
			trace_entry(img, w, 2, 0x010000, middle);
		if (n > 1)
			trace_entry(img, w, 6, 0x010000, inner);
		trace_pc_base(img, w, trace_pc(img, w, n, i == 3 ? 4 : 1), 0);
		if (n > 1) {
			img_u32(img, w->map + 4 * w->n_map++, 8 * 4 | 2);
			img_u32(img, w->map + 4 * w->n_map++,
				trace_pc(img, w, 1, 3));
		}
		if (n)
			img_u32(img, w->map + 4 * w->n_map++,
				trace_pc(img, w, 0, 4));
		trace_snap(img, w, i, at, n);
	}
}

static inline void trace_header(struct img *img, struct trace_world *w)
{
	const struct lj_offsets *off = img->off;
	uint64_t t = w->trace;

	img_u8(img, t + off->pt_gct, 9);
	trace_u16(img, t + off->tr_traceno, TRACE_NO);
	trace_u16(img, t + off->tr_link, TRACE_NO);
	trace_u16(img, t + off->tr_nsnap, TRACE_SNAPS);
	img_u32(img, t + off->tr_nsnapmap, w->n_map);
	img_u32(img, t + off->tr_nk, w->nk);
	img_u32(img, t + off->tr_nins, LB_IR_BIAS + 8);
	trace_u64(img, t + off->tr_ir, w->ir);
	trace_u64(img, t + off->tr_snap, w->snaps);
	trace_u64(img, t + off->tr_snapmap, w->map);
	trace_u64(img, t + off->tr_mcode, w->mcode);
	img_u32(img, t + off->tr_szmcode, TRACE_SIZE);
	img_ref(img, t + off->tr_startpt, w->protos[TRACE_OUTER]);
	img_ref(img, t + off->tr_startpc, trace_pc(img, w, TRACE_OUTER, 1));
	img_ref(img, w->table + img_ref_size(img) * TRACE_NO, t);
}

static inline struct trace_world trace_world_make(struct img *img)
{
	const struct lj_offsets *off = img->off;
	/* addsd xmm0, xmm1; nops: 8 bytes, four times */
	static const uint8_t code[8] = { 0xf2, 0x0f, 0x58, 0xc1,
					 0x90, 0x90, 0x90, 0x90 };
	struct trace_world w = { .nk = LB_IR_BIAS };

	trace_code(img, &w);
	w.g_addr = img_alloc(img, off->g_to_j + off->j_sizetrace + 64);
	w.table = img_alloc(img, 8 * 8);
	w.trace = img_alloc(img, 128);
	w.mcode = img_alloc(img, TRACE_SIZE);
	w.ir = img_alloc(img, 8 * 64) + 8 * 32 - 8ULL * LB_IR_BIAS;
	w.snaps = img_alloc(img, off->sn_size * TRACE_SNAPS);
	w.map = img_alloc(img, 4 * 64);
	for (int i = 0; i < 4; i++)
		img_put(img, w.mcode + 8 * i, code, sizeof(code));
	if (off->gc64)
		trace_snaps_wide(img, &w);
	else
		trace_snaps_narrow(img, &w);
	img_ref(img, w.g_addr + off->g_to_j + off->j_trace, w.table);
	img_u32(img, w.g_addr + off->g_to_j + off->j_sizetrace, 8);
	trace_header(img, &w);
	return w;
}

#endif
