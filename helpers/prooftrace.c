/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof: machine code areas, traces and their snapshots. A trace is one
 * allocation: header, instructions (from nk to nins), snapshots, their maps.
 */
#include <string.h>

#include "layout.h"
#include "proofrun.h"

#define AREAS_MAX   64
#define AREA_SIZE   (64U << 20)
#define AREA_ALIGN  4096
#define J_SEARCH    4096 /* bytes of jit_State behind its list of traces */
#define HEADER_MAX  256	 /* bytes of GCtrace; 88 to 120 were seen */
#define TRACES_SEEN 32
#define TRACES_MAX  65536
#define REF_BIAS    0x8000U
#define LINK_MAX    16 /* kinds of links; 9 were seen, from 1 on */
#define LINK_LOOP   2  /* to itself */
#define LINK_INTERP 6  /* to no trace */
#define LINK_RETURN 7
#define SNAP_MAX    16
#define SNAPS_SEEN  256
#define TAIL_MAX    64 /* bytes that a patched tail may be shorter */

struct areas {
	uint64_t start[AREAS_MAX], size[AREAS_MAX];
	size_t n;
};

/* ---- areas of machine code ---- */

static bool is_area(uint64_t start, uint64_t size)
{
	return start && !(start % AREA_ALIGN) && size && !(size % AREA_ALIGN) &&
	       size <= AREA_SIZE;
}

/* mcarea, mctop, mcbot, szmcarea stand in a row. */
static bool is_head(struct lb_proof_run *run, uint64_t addr,
		    struct areas *areas)
{
	uint64_t head[4];

	areas->n = 0;
	if (!lb_proof_read(run, addr, head, sizeof(head)) ||
	    !is_area(head[0], head[3]) || head[1] < head[0] ||
	    head[1] > head[0] + head[3] || head[2] < head[0] ||
	    head[2] > head[0] + head[3])
		return false;
	/* each begins with the address and the size of the one before */
	for (head[1] = head[3]; areas->n < AREAS_MAX;) {
		areas->start[areas->n] = head[0];
		areas->size[areas->n++] = head[1];
		if (!lb_proof_read(run, head[0], head, 16))
			return false;
		if (!head[0])
			return true;
		if (!is_area(head[0], head[1]))
			return false;
	}
	return true;
}

/* No area yet; or no more: a flush leaves the rest as it was. */
static bool is_empty(struct lb_proof_run *run, uint64_t addr)
{
	uint64_t head[4];

	if (!lb_proof_read(run, addr, head, sizeof(head)) || head[0])
		return false;
	return (!head[1] && !head[2]) ||
	       (is_area(AREA_ALIGN, head[3]) && head[2] && head[2] <= head[1] &&
		head[1] - head[2] <= head[3]);
}

static void find_areas(struct lb_proof_run *run, uint64_t j,
		       struct areas *areas)
{
	uint32_t n = 0, at = 0;

	for (uint32_t off = run->off.j_trace; off < run->off.j_trace + J_SEARCH;
	     off += 8) {
		if (!is_head(run, j + off, areas))
			continue;
		at = off;
		n++;
	}
	if (n != 1) {
		areas->n = 0;
		return;
	}
	is_head(run, j + at, areas);
	LB_FIND(run, j_mcarea, at);
	LB_FIND(run, j_szmcarea, at + 24);
	lb_proof_note(run, LB_CHECK_MCODE, true, NULL, 0);
}

static bool is_candidate(const struct lb_proof_run *run, size_t field)
{
	return run->from[field] == LB_FROM_NONE ||
	       run->from[field] == LB_FROM_LAYOUT;
}

static void check_areas(struct lb_proof_run *run, uint64_t j,
			struct areas *areas)
{
	const struct lj_offsets *off = &run->off;
	bool candidate = is_candidate(run, LB_SCAN_FIELD(j_mcarea));
	bool held = LB_HAS(run, j_mcarea) &&
		    off->j_szmcarea == off->j_mcarea + 24 &&
		    is_head(run, j + off->j_mcarea, areas);

	if (!held && candidate) {
		find_areas(run, j, areas);
		return;
	}
	if (!held && off->j_szmcarea == off->j_mcarea + 24 &&
	    is_empty(run, j + off->j_mcarea))
		return;
	lb_proof_note(run, LB_CHECK_MCODE, held, "the list of areas is none",
		      j);
}

static bool in_areas(const struct areas *areas, uint64_t start, uint64_t size)
{
	for (size_t i = 0; i < areas->n; i++)
		if (start >= areas->start[i] &&
		    start - areas->start[i] < areas->size[i] &&
		    size <= areas->size[i])
			return true;
	return false;
}

/* ---- traces ---- */

struct trace {
	uint64_t addr;
	uint8_t data[HEADER_MAX];
	uint32_t number, n_traces, sz_mcode, nk, nins;
	uint64_t ir, snap, snapmap;
};

static const char *check_start(struct lb_proof_run *run,
			       const struct trace *trace)
{
	const struct lj_offsets *off = &run->off;
	uint64_t proto =
		lb_target_ref(&run->target, trace->data + off->tr_startpt);
	uint64_t pc =
		lb_target_ref(&run->target, trace->data + off->tr_startpc);
	uint8_t size[4];

	if (!lb_proof_is(run, proto, LB_LUA_PROTO))
		return "it starts in no prototype";
	if (!LB_HAS(run, pt_sizebc) ||
	    !lb_proof_read(run, proto + off->pt_sizebc, size, sizeof(size)))
		return NULL;
	if (pc & 3 || pc < proto + off->pt_size ||
	    pc >= proto + off->pt_size + 4ULL * lb_proof_u32(size, 0))
		return "it starts outside of its prototype";
	if (LB_HAS(run, bc_funcf) &&
	    trace->data[off->tr_startins] >= off->bc_funcf + 8)
		return "it starts with no opcode";
	return NULL;
}

static const char *check_parts(const struct lb_proof_run *run,
			       const struct trace *trace, uint64_t *header_size)
{
	const struct lj_offsets *off = &run->off;
	uint64_t begin = trace->ir + (uint64_t)trace->nk * off->ir_size;
	uint64_t size = begin - trace->addr;

	if (trace->nk > REF_BIAS || trace->nins < REF_BIAS ||
	    trace->nins > 2 * REF_BIAS)
		return "its numbers of instructions are out of bounds";
	if (size < 64 || size > HEADER_MAX ||
	    (*header_size && size != *header_size))
		return "its instructions are not behind its header";
	*header_size = size;
	if (trace->snap != trace->ir + (uint64_t)trace->nins * off->ir_size)
		return "its snapshots are not behind its instructions";
	if (trace->snapmap < trace->snap)
		return "its maps are not behind its snapshots";
	return NULL;
}

static const char *check_code(const struct lb_proof_run *run,
			      const struct trace *trace,
			      const struct areas *areas)
{
	const struct lj_offsets *off = &run->off;
	uint64_t mcode = lb_proof_u64(trace->data, off->tr_mcode);
	uint32_t root = lb_proof_u16(trace->data, off->tr_root);
	uint32_t link = lb_proof_u16(trace->data, off->tr_link);
	uint16_t spadjust = lb_proof_u16(trace->data, off->tr_spadjust);

	if (!trace->sz_mcode || trace->sz_mcode > AREA_SIZE)
		return "its machine code has no size";
	if (lb_proof_u32(trace->data, off->tr_mcloop) >= trace->sz_mcode)
		return "its loop is behind its machine code";
	if (areas->n && areas->n < AREAS_MAX &&
	    !in_areas(areas, mcode, trace->sz_mcode))
		return "its machine code is in no area";
	if (root >= trace->n_traces || link >= trace->n_traces)
		return "it is linked with no trace";
	/* side traces start with a jump, and no other has a root */
	if (LB_HAS(run, bc_jmp) &&
	    (trace->data[off->tr_startins] == off->bc_jmp) != (root != 0))
		return "it has a root and does not start as a side trace";
	if (spadjust & 7)
		return "its stack frame is not aligned";
	return NULL;
}

/* ---- snapshots ---- */

static uint32_t map_ofs(const struct lb_proof_run *run, const uint8_t *snap)
{
	return run->off.sn_mapofs_size == 2
		       ? lb_proof_u16(snap, run->off.sn_mapofs)
		       : lb_proof_u32(snap, run->off.sn_mapofs);
}

static uint32_t n_maps(const struct lb_proof_run *run,
		       const struct trace *trace)
{
	return run->off.sn_mapofs_size == 2
		       ? lb_proof_u16(trace->data, run->off.tr_nsnapmap)
		       : lb_proof_u32(trace->data, run->off.tr_nsnapmap);
}

/* The last entry of a map is that of the highest slot. */
static bool has_slots(struct lb_proof_run *run, const struct trace *trace,
		      uint32_t ofs, const uint8_t *snap)
{
	uint8_t n = snap[run->off.sn_nent], entry[4];

	if (!n)
		return true;
	return lb_proof_read(run, trace->snapmap + 4ULL * (ofs + n - 1), entry,
			     sizeof(entry)) &&
	       entry[3] < snap[run->off.sn_nslots];
}

static bool is_snapshot(struct lb_proof_run *run, const struct trace *trace,
			const uint8_t *snap, const uint8_t *before)
{
	const struct lj_offsets *off = &run->off;
	uint32_t ofs = map_ofs(run, snap);
	uint16_t ref = lb_proof_u16(snap, off->sn_ref);

	if (ref < REF_BIAS || ref > trace->nins)
		return false;
	if (before ? ofs < map_ofs(run, before) + before[off->sn_nent] ||
			     ref < lb_proof_u16(before, off->sn_ref)
		   : ofs != 0)
		return false;
	if (off->sn_mcofs != LJ_OFFSETS_NONE &&
	    (lb_proof_u16(snap, off->sn_mcofs) > trace->sz_mcode + TAIL_MAX ||
	     (before && lb_proof_u16(snap, off->sn_mcofs) <
				lb_proof_u16(before, off->sn_mcofs))))
		return false;
	return has_slots(run, trace, ofs, snap);
}

static bool is_link(const struct lb_proof_run *run, const struct trace *trace)
{
	uint8_t type = trace->data[run->off.tr_linktype];
	uint16_t link = lb_proof_u16(trace->data, run->off.tr_link);

	if (type == LINK_LOOP)
		return link == trace->number;
	if (type == LINK_INTERP || type == LINK_RETURN)
		return !link;
	return type && type < LINK_MAX && (link || type > LINK_RETURN);
}

static const char *check_snapshots(struct lb_proof_run *run,
				   const struct trace *trace)
{
	const struct lj_offsets *off = &run->off;
	uint8_t snaps[2][SNAP_MAX];
	uint32_t n = lb_proof_u16(trace->data, off->tr_nsnap);
	uint32_t links = off->gc64 ? 2 : 1; /* behind the slots: pc, base */
	uint32_t end;

	if (!is_link(run, trace))
		return "its link is of no known kind";
	if (off->sn_count >= off->sn_size ||
	    (off->sn_mapofs_size != 2 && off->sn_mapofs_size != 4) ||
	    off->sn_mapofs + off->sn_mapofs_size != off->sn_ref)
		return "members of its snapshots do not fit";
	if (off->sn_size > SNAP_MAX || !n ||
	    trace->snapmap != trace->snap + (uint64_t)n * off->sn_size)
		return "its maps are not behind its snapshots";
	for (uint32_t i = 0; i < n && i < SNAPS_SEEN; i++) {
		if (!lb_proof_read(run,
				   trace->snap + (uint64_t)i * off->sn_size,
				   snaps[i & 1], off->sn_size))
			return "its snapshots are not there";
		if (!is_snapshot(run, trace, snaps[i & 1],
				 i ? snaps[~i & 1] : NULL))
			return "its snapshots do not follow each other";
	}
	if (n > SNAPS_SEEN)
		return NULL;
	/* 32-bit references: a link for each frame */
	end = map_ofs(run, snaps[~n & 1]) + snaps[~n & 1][off->sn_nent] + links;
	if (off->gc64 ? n_maps(run, trace) != end : n_maps(run, trace) < end)
		return "its maps do not end with its last snapshot";
	return NULL;
}

/* ---- all of them ---- */

static bool read_trace(struct lb_proof_run *run, struct trace *trace)
{
	const struct lj_offsets *off = &run->off;
	const uint8_t *data = trace->data;

	if (!lb_proof_read(run, trace->addr, trace->data, HEADER_MAX))
		return false;
	trace->sz_mcode = lb_proof_u32(data, off->tr_szmcode);
	trace->nk = lb_proof_u32(data, off->tr_nk);
	trace->nins = lb_proof_u32(data, off->tr_nins);
	trace->ir = lb_target_ref(&run->target, data + off->tr_ir);
	trace->snap = lb_target_ref(&run->target, data + off->tr_snap);
	trace->snapmap = lb_target_ref(&run->target, data + off->tr_snapmap);
	return true;
}

static bool is_usable(const struct lb_proof_run *run)
{
	const struct lj_offsets *off = &run->off;
	const uint32_t fields[] = {
		off->tr_startpt, off->tr_startpc,  off->tr_mcode,
		off->tr_szmcode, off->tr_root,	   off->tr_link,
		off->tr_traceno, off->tr_snap,	   off->tr_snapmap,
		off->tr_ir,	 off->tr_nk,	   off->tr_nins,
		off->tr_mcloop,	 off->tr_startins, off->tr_spadjust,
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (fields[i] > HEADER_MAX - 8)
			return false;
	return off->ir_size != LJ_OFFSETS_NONE;
}

static bool has_snapshots(const struct lb_proof_run *run)
{
	const struct lj_offsets *off = &run->off;

	return off->tr_nsnap < HEADER_MAX - 8 &&
	       off->tr_nsnapmap < HEADER_MAX - 8 &&
	       off->tr_linktype < HEADER_MAX - 8 && off->sn_nslots < SNAP_MAX &&
	       off->sn_nent < SNAP_MAX && off->sn_ref < SNAP_MAX - 1 &&
	       off->sn_mapofs < SNAP_MAX - 3 &&
	       (off->sn_mcofs < SNAP_MAX - 1 ||
		off->sn_mcofs == LJ_OFFSETS_NONE);
}

/* Layouts of snapshots that are not contradicted: if there is one, it is it. */
static void find_snapshots(struct lb_proof_run *run, const struct trace *traces,
			   size_t n)
{
	struct lj_offsets before = run->off, right = run->off;
	uint32_t n_right = 0;

	for (size_t i = 0; lb_layout_snapshots(i, &run->off); i++) {
		bool held = n > 0;

		for (size_t j = 0; j < n && held; j++)
			held = !check_snapshots(run, &traces[j]);
		if (held && !n_right++)
			right = run->off;
	}
	run->off = before;
	if (n_right != 1)
		return;
	for (size_t i = 0; i < LB_SCAN_N_FIELDS; i++) {
		uint32_t value = ((const __u32 *)&right)[i];

		if (value != ((const __u32 *)&before)[i])
			lb_proof_find(run, i, value);
	}
	for (size_t i = 0; i < n; i++)
		lb_proof_note(run, LB_CHECK_SNAPSHOT, true, NULL, 0);
}

static bool check_trace(struct lb_proof_run *run, struct trace *trace,
			const struct areas *areas, uint64_t *header_size)
{
	const char *why = NULL;

	if (!lb_proof_is(run, trace->addr, LB_PROOF_TRACE) ||
	    !read_trace(run, trace))
		why = "the list of traces has something else in it";
	else if (lb_proof_u16(trace->data, run->off.tr_traceno) !=
		 trace->number)
		why = "it is not at its number";
	if (!why)
		why = check_start(run, trace);
	if (!why)
		why = check_parts(run, trace, header_size);
	if (!why)
		why = check_code(run, trace, areas);
	return lb_proof_note(run, LB_CHECK_TRACE, !why, why, trace->addr);
}

/*
 * @j: jit_State, which begins with the trace that is being recorded. Until it
 * is whole the list refers to that one.
 */
static void check_traces(struct lb_proof_run *run, uint64_t j, uint64_t list,
			 uint32_t n, const struct areas *areas)
{
	struct trace traces[TRACES_SEEN];
	uint32_t ref = run->off.gc64 ? 8 : 4;
	uint64_t header_size = 0;
	size_t n_seen = 0;

	for (uint32_t i = 1; i < n && n_seen < TRACES_SEEN; i++) {
		struct trace *trace = &traces[n_seen];

		trace->addr = lb_proof_ref(run, list + (uint64_t)i * ref);
		trace->number = i;
		trace->n_traces = n;
		if (trace->addr && trace->addr != j &&
		    check_trace(run, trace, areas, &header_size))
			n_seen++;
	}
	if (!has_snapshots(run)) {
		if (is_candidate(run, LB_SCAN_FIELD(sn_size)))
			find_snapshots(run, traces, n_seen);
		return;
	}
	for (size_t i = 0; i < n_seen; i++) {
		const char *why = check_snapshots(run, &traces[i]);

		lb_proof_note(run, LB_CHECK_SNAPSHOT, !why, why,
			      traces[i].addr);
	}
}

void lb_proof_traces(struct lb_proof_run *run)
{
	const struct lj_offsets *off = &run->off;
	uint64_t j = run->g_addr + off->g_to_j, list;
	struct areas areas = { .n = 0 };
	uint8_t sizes[8];
	uint32_t n, first_free;

	if (!LB_HAS(run, g_to_j) || !LB_HAS(run, j_trace))
		return;
	check_areas(run, j, &areas);
	list = lb_proof_ref(run, j + off->j_trace);
	if (!list || !LB_HAS(run, j_sizetrace) || !LB_HAS(run, j_freetrace) ||
	    !is_usable(run) ||
	    !lb_proof_read(run, j + off->j_sizetrace, sizes, 4) ||
	    !lb_proof_read(run, j + off->j_freetrace, sizes + 4, 4))
		return;
	n = lb_proof_u32(sizes, 0);
	first_free = lb_proof_u32(sizes, 4);
	if (!lb_proof_note(run, LB_CHECK_TRACE,
			   n && n <= TRACES_MAX && first_free <= n,
			   "it has a list of traces without a size", j))
		return;
	check_traces(run, j, list, n, &areas);
	/* a list without traces proves nothing */
	if (run->held[LB_CHECK_TRACE] == 1)
		run->held[LB_CHECK_TRACE] = 0;
}
