/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one LuaJIT VM holds at this moment.
 *
 * The collector links all objects but strings in one list, each by the first
 * reference in it; threads are told by their type. Objects lie close together,
 * so the list is read by the page, and a page is kept: that also makes a view
 * of one moment out of many objects. The list may still lead astray when the
 * VM frees what we are about to read. Then an object has no type that there is,
 * and the walk is made again.
 *
 * Whether the JIT compiler is on shows in the dispatch table: when it is off,
 * the opcode of a counted loop has the entry of the one that counts nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gstate.h"

#define PAGE_BYTES 4096
#define N_PAGES	   1024
#define WALKS_MAX  4
#define TRACES_MAX (1 << 16) /* LuaJIT allows 65535 */
#define AREAS_MAX  4096
#define AREA_MAX   (UINT64_C(1) << 31) /* bytes of one area */
#define HEADER_MAX 16		       /* bytes read of an object */

/* Opcodes that follow FORI in each build: JFORI, FORL, IFORL. */
#define FORL_FROM_FORI	2
#define IFORL_FROM_FORI 3

struct pages {
	struct lb_target *target;
	uint64_t addrs[N_PAGES]; /* 0: none */
	uint8_t (*data)[PAGE_BYTES];
};

static int read_paged(struct pages *pages, uint64_t addr, void *buf,
		      size_t size)
{
	uint64_t page = addr / PAGE_BYTES * PAGE_BYTES;
	size_t at = addr % PAGE_BYTES, slot = addr / PAGE_BYTES % N_PAGES;

	if (at + size > PAGE_BYTES)
		return lb_target_read(pages->target, addr, buf, size);
	if (!page || pages->addrs[slot] != page) {
		pages->addrs[slot] = 0;
		int err = lb_target_read(pages->target, page, pages->data[slot],
					 PAGE_BYTES);

		if (err) /* the block ends within the page */
			return lb_target_read(pages->target, addr, buf, size);
		pages->addrs[slot] = page;
	}
	memcpy(buf, pages->data[slot] + at, size);
	return 0;
}

static bool is_known(uint32_t offset)
{
	return offset != LJ_OFFSETS_NONE;
}

/* A reference-sized member of global_State. */
static uint64_t g_ref(struct lb_target *target, uint64_t g_addr,
		      uint32_t offset)
{
	uint8_t data[8];

	if (!is_known(offset) || lb_target_read(target, g_addr + offset, data,
						lb_target_ref_size(target)))
		return LB_GSTATE_UNKNOWN;
	return lb_target_ref(target, data);
}

/*
 * Count objects from the head of the list. Return: 0 at its end, -E2BIG,
 * -EAGAIN when it led astray.
 */
static int walk_list(struct pages *pages, uint64_t addr,
		     struct lb_gstate *gstate)
{
	struct lb_target *target = pages->target;
	const size_t gct = target->off->l_gct;
	uint8_t header[HEADER_MAX];

	gstate->n_objects = 0;
	gstate->n_threads = 0;
	for (; addr; gstate->n_objects++) {
		if (gstate->n_objects == LB_GSTATE_OBJECTS_MAX)
			return -E2BIG;
		int err = read_paged(pages, addr, header, gct + 1);

		if (err)
			return err == -E2BIG ? err : -EAGAIN;
		if (header[gct] < LB_LUA_STR || header[gct] > LB_LUA_UDATA)
			return -EAGAIN;
		gstate->n_threads += header[gct] == LB_LUA_THREAD;
		addr = lb_target_ref(target, header);
	}
	return 0;
}

static int count_objects(struct lb_target *target, struct lb_gstate *gstate)
{
	const struct lj_offsets *off = target->off;
	uint64_t best = 0, best_threads = 0;

	if (!is_known(off->g_gc_root) || off->l_gct >= HEADER_MAX)
		return 0;
	struct pages *pages = calloc(1, sizeof(*pages));

	if (!pages)
		return -ENOMEM;
	pages->target = target;
	pages->data = calloc(N_PAGES, PAGE_BYTES);
	if (!pages->data) {
		free(pages);
		return -ENOMEM;
	}
	for (int i = 0; i < WALKS_MAX; i++) {
		uint64_t root = g_ref(target, gstate->g_addr, off->g_gc_root);

		if (root == LB_GSTATE_UNKNOWN)
			break;
		memset(pages->addrs, 0, sizeof(pages->addrs));
		int err = walk_list(pages, root, gstate);

		if (gstate->n_objects > best) {
			best = gstate->n_objects;
			best_threads = gstate->n_threads;
		}
		gstate->n_threads_exact = !err;
		if (err != -EAGAIN)
			break;
	}
	if (!gstate->n_threads_exact) { /* the main one is there in any case */
		gstate->n_objects = best ? best : 1;
		gstate->n_threads = best_threads ? best_threads : 1;
	}
	free(pages->data);
	free(pages);
	return 0;
}

/* jit_State: references to traces by number, those of freed ones empty. */
static void count_traces(struct lb_target *target, struct lb_gstate *gstate)
{
	const struct lj_offsets *off = target->off;
	const size_t ref_size = lb_target_ref_size(target);
	uint64_t j_addr = gstate->g_addr + off->g_to_j, n = 0;
	uint8_t head[8], refs[PAGE_BYTES];
	uint32_t size;

	if (!is_known(off->g_to_j) || !is_known(off->j_trace) ||
	    !is_known(off->j_sizetrace) ||
	    lb_target_read(target, j_addr + off->j_sizetrace, &size,
			   sizeof(size)) ||
	    lb_target_read(target, j_addr + off->j_trace, head, ref_size) ||
	    size > TRACES_MAX)
		return;
	uint64_t addr = lb_target_ref(target, head);

	for (uint64_t left = size * ref_size; left;) {
		size_t part = left < sizeof(refs) ? left : sizeof(refs);

		if (lb_target_read(target, addr, refs, part))
			return;
		for (size_t i = 0; i < part; i += ref_size)
			n += lb_target_ref(target, refs + i) != 0;
		addr += part;
		left -= part;
	}
	gstate->n_traces = n;
}

/* Each area begins with the address and the size of the one before it. */
static void count_mcode(struct lb_target *target, struct lb_gstate *gstate)
{
	const struct lj_offsets *off = target->off;
	uint64_t j_addr = gstate->g_addr + off->g_to_j;
	uint64_t area[2], n = 0, bytes = 0;

	if (!is_known(off->g_to_j) || !is_known(off->j_mcarea) ||
	    !is_known(off->j_szmcarea) ||
	    lb_target_read(target, j_addr + off->j_mcarea, &area[0], 8) ||
	    lb_target_read(target, j_addr + off->j_szmcarea, &area[1], 8))
		return;
	while (area[0]) {
		if (n == AREAS_MAX || area[1] > AREA_MAX)
			return;
		n++;
		bytes += area[1];
		if (lb_target_read(target, area[0], area, sizeof(area)))
			return;
	}
	gstate->n_mcode_areas = n;
	gstate->mcode_bytes = bytes;
}

static enum lb_gstate_jit read_jit(struct lb_target *target, uint64_t g_addr)
{
	const struct lj_offsets *off = target->off;
	uint64_t entries[2]; /* FORL, IFORL */

	_Static_assert(IFORL_FROM_FORI == FORL_FROM_FORI + 1, "read as one");
	if (!is_known(off->g2disp) || !is_known(off->static_dispatch) ||
	    !is_known(off->bc_fori))
		return LB_GSTATE_JIT_UNKNOWN;
	uint64_t addr = g_addr + off->g2disp + off->static_dispatch +
			8ULL * (off->bc_fori + FORL_FROM_FORI);

	if (lb_target_read(target, addr, entries, sizeof(entries)) ||
	    !entries[0] || !entries[1])
		return LB_GSTATE_JIT_UNKNOWN;
	return entries[0] == entries[1] ? LB_GSTATE_JIT_OFF : LB_GSTATE_JIT_ON;
}

/* The main thread says whose it is. */
static int read_main(struct lb_target *target, struct lb_gstate *gstate)
{
	const struct lj_offsets *off = target->off;
	uint8_t data[8], gct;
	uint64_t l_addr;

	if (!is_known(off->g_mainthref))
		return 0;
	int err = lb_target_read(target, gstate->g_addr + off->g_mainthref,
				 data, lb_target_ref_size(target));

	if (err)
		return err;
	l_addr = lb_target_ref(target, data);
	err = lb_target_read(target, l_addr + off->l_gct, &gct, 1);
	if (!err)
		err = lb_target_read(target, l_addr + off->l_glref, data,
				     lb_target_ref_size(target));
	if (err == -E2BIG)
		return err;
	if (err || gct != LB_LUA_THREAD ||
	    lb_target_ref(target, data) != gstate->g_addr)
		return -EBADMSG;
	gstate->main_l_addr = l_addr;
	return 0;
}

int lb_gstate_read(struct lb_target *target, uint64_t g_addr,
		   struct lb_gstate *gstate_ret)
{
	const struct lj_offsets *off = target->off;
	struct lb_gstate gstate;
	uint8_t phase;

	memset(&gstate, 0xff, sizeof(gstate));
	gstate.g_addr = g_addr;
	gstate.n_threads_exact = false;
	gstate.jit = LB_GSTATE_JIT_UNKNOWN;
	int err = read_main(target, &gstate);

	if (err == -E2BIG)
		*gstate_ret = gstate;
	if (err)
		return err;
	gstate.gc_total_bytes = g_ref(target, g_addr, off->g_gc_total);
	gstate.gc_threshold_bytes = g_ref(target, g_addr, off->g_gc_threshold);
	gstate.gc_estimate_bytes = g_ref(target, g_addr, off->g_gc_estimate);
	if (is_known(off->g_gc_state) &&
	    !lb_target_read(target, g_addr + off->g_gc_state, &phase, 1))
		gstate.gc_phase = phase;
	gstate.jit = read_jit(target, g_addr);
	count_traces(target, &gstate);
	count_mcode(target, &gstate);
	err = count_objects(target, &gstate);
	if (err)
		return err;
	*gstate_ret = gstate;
	return 0;
}

const char *lb_gstate_phase(uint64_t phase)
{
	static const char *const words[] = { "pause",  "propagate",
					     "atomic", "sweep strings",
					     "sweep",  "finalize" };

	return phase < sizeof(words) / sizeof(words[0]) ? words[phase]
							: "unknown";
}
