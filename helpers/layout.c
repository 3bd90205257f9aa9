/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of LuaJIT's structs that all known builds share. */
#include "layout.h"

#define FIELD(name, gc64, ref32)     \
	{                            \
		LB_SCAN_FIELD(name), \
		{                    \
			ref32, gc64  \
		}                    \
	}

/* By pointer mode. */
static const struct {
	size_t field;
	uint32_t values[2];
} shared[] = {
	FIELD(l_env, 72, 44),	     FIELD(fn_nupvalues, 11, 7),
	FIELD(pt_numparams, 10, 6),  FIELD(pt_sizebc, 12, 8),
	FIELD(pt_k, 32, 16),	     FIELD(pt_sizekgc, 48, 24),
	FIELD(pt_sizept, 56, 32),    FIELD(pt_sizeuv, 60, 36),
	FIELD(pt_flags, 61, 37),     FIELD(pt_chunkname, 64, 40),
	FIELD(pt_firstline, 72, 44), FIELD(pt_numline, 76, 48),
	FIELD(pt_lineinfo, 80, 52),  FIELD(pt_uvinfo, 88, 56),
	FIELD(pt_varinfo, 96, 60),   FIELD(tr_startpt, 64, 48),
	FIELD(tr_startpc, 72, 52),   FIELD(tr_szmcode, 84, 60),
	FIELD(tr_root, 108, 84),     FIELD(tr_link, 106, 82),
	FIELD(tr_traceno, 104, 80),  FIELD(tr_snap, 48, 32),
	FIELD(tr_snapmap, 56, 40),   FIELD(tr_ir, 32, 16),
	FIELD(tr_nk, 40, 24),	     FIELD(tr_nins, 12, 8),
	FIELD(tr_mcloop, 96, 72),    FIELD(tr_startins, 80, 56),
	FIELD(tr_spadjust, 102, 78), FIELD(ir_size, 8, 8),
};

/* By pointer mode: behind jit_State.trace. */
static const struct {
	size_t field;
	uint32_t distances[2];
} behind_trace[] = {
	FIELD(j_freetrace, 8, 8),
	FIELD(j_sizetrace, 12, 12),
	FIELD(j_mcarea, 2664, 2136),
	FIELD(j_szmcarea, 2688, 2160),
};

/* The newest first. */
static const struct snapshots {
	uint32_t tr_nsnap[2], tr_nsnapmap[2], tr_linktype[2]; /* by mode */
	uint32_t size, mapofs, mapofs_size, ref, mcofs, nslots, topslot, nent,
		count;
} snapshots[] = {
	{ { 6, 10 }, { 28, 44 }, { 92, 116 }, 12, 0, 4, 4, 6, 8, 9, 10, 11 },
	{ { 6, 10 },
	  { 28, 44 },
	  { 92, 116 },
	  12,
	  0,
	  4,
	  4,
	  LJ_OFFSETS_NONE,
	  6,
	  7,
	  8,
	  9 },
	{ { 28, 44 },
	  { 30, 46 },
	  { 7, 11 },
	  8,
	  0,
	  2,
	  2,
	  LJ_OFFSETS_NONE,
	  4,
	  5,
	  6,
	  7 },
};

#define N_SHARED       (sizeof(shared) / sizeof(shared[0]))
#define N_BEHIND_TRACE (sizeof(behind_trace) / sizeof(behind_trace[0]))
#define N_SNAPSHOTS    (sizeof(snapshots) / sizeof(snapshots[0]))

bool lb_layout_snapshots(size_t index, struct lj_offsets *offsets)
{
	const struct snapshots *from = &snapshots[index];
	size_t mode = offsets->gc64 ? 1 : 0;

	if (index >= N_SNAPSHOTS)
		return false;
	offsets->tr_nsnap = from->tr_nsnap[mode];
	offsets->tr_nsnapmap = from->tr_nsnapmap[mode];
	offsets->tr_linktype = from->tr_linktype[mode];
	offsets->sn_size = from->size;
	offsets->sn_mapofs = from->mapofs;
	offsets->sn_mapofs_size = from->mapofs_size;
	offsets->sn_ref = from->ref;
	offsets->sn_mcofs = from->mcofs;
	offsets->sn_nslots = from->nslots;
	offsets->sn_topslot = from->topslot;
	offsets->sn_nent = from->nent;
	offsets->sn_count = from->count;
	return true;
}

static void add(struct lb_offsets_source *source, size_t field, uint32_t value)
{
	if (source->from[field] || value == LJ_OFFSETS_NONE)
		return;
	((__u32 *)&source->offsets)[field] = value;
	source->from[field] = LB_FROM_LAYOUT;
}

void lb_layout_add(struct lb_offsets_source *source)
{
	struct lj_offsets *offsets = &source->offsets;
	size_t mode = offsets->gc64 ? 1 : 0;

	for (size_t i = 0; i < N_SHARED; i++)
		add(source, shared[i].field, shared[i].values[mode]);
	if (source->from[LB_SCAN_FIELD(j_trace)])
		for (size_t i = 0; i < N_BEHIND_TRACE; i++)
			add(source, behind_trace[i].field,
			    offsets->j_trace + behind_trace[i].distances[mode]);
}
