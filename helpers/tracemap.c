/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a trace's machine code belongs to which Lua frames.
 *
 * The code between two snapshots is that of the bytecode between them
 * (tracewalk). If all of it that can have become code is of one activation, so
 * is the code. If not, the code is split at its instructions: operations on
 * floating point numbers and calls stand in the order of the bytecode. Each is
 * placed as early and as late as the others allow; where both places are of
 * one activation, that is the right one. All else belongs to what is common to
 * the activations in question, and is not called exact.
 */
#include <capstone/capstone.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tracemap.h"
#include "tracewalk.h"

#define ANCHORS_MAX 1024
#define INSNS_MAX   4096 /* of one piece of code */
#define CONVERSION  3	 /* instructions from cvttsd2si to ucomisd */

/* One instruction of the machine code between two snapshots. */
struct insn {
	uint32_t ofs, end;
	uint8_t host;	/* enum lb_step_host, 0: says nothing */
	uint32_t reads; /* xmm registers that it names, as bits */
	uint32_t sets;	/* the one it writes */
	bool jumps;
};

/* The steps that an anchor may have come from: indices of steps. */
struct range {
	uint32_t lo, hi;
};

struct builder {
	struct lb_funcs *funcs;
	const struct lj_offsets *off;
	const struct lb_trace *trace;
	struct lb_walk *walk;
	struct lb_trace_nodes *nodes;
	csh cs;
	cs_insn *cs_insn;
	bool has_cs;
	bool use_anchors;
	struct lb_trace_span *spans;
	size_t n_spans, room;
	struct insn insns[INSNS_MAX];
	struct range ranges[ANCHORS_MAX];
	bool failed;
};

/* ---- spans ---- */

static uint32_t line_at(const struct builder *b, uint32_t node, uint32_t pos)
{
	if (node == LB_NODE_NONE || pos == LB_POS_UNKNOWN ||
	    !b->nodes->nodes[node].proto)
		return LB_LINE_UNKNOWN;
	return lb_fproto_line(b->nodes->nodes[node].proto, pos);
}

static void add_span(struct builder *b, uint32_t ofs, uint32_t node,
		     uint32_t pos, bool exact)
{
	struct lb_trace_span *last =
		b->n_spans ? &b->spans[b->n_spans - 1] : NULL;
	uint32_t line = line_at(b, node, pos);

	if (last && last->node == node && last->line == line &&
	    last->exact == exact)
		return;
	if (last && last->ofs == ofs) {
		b->n_spans--; /* it is empty */
	} else if (b->n_spans == b->room) {
		size_t room = b->room ? 2 * b->room : 64;
		void *bigger = realloc(b->spans, room * sizeof(*b->spans));

		if (!bigger) {
			b->failed = true;
			return;
		}
		b->spans = bigger;
		b->room = room;
	}
	b->spans[b->n_spans++] = (struct lb_trace_span){ .ofs = ofs,
							 .node = node,
							 .pos = pos,
							 .line = line,
							 .exact = exact };
}

/* ---- which steps ---- */

/* What steps [lo, hi] that emit code have in common. */
struct verdict {
	uint32_t node;
	uint32_t pos;
	bool any, same;
};

static struct verdict judge(const struct builder *b,
			    const struct lb_step *steps, struct range range,
			    uint8_t host)
{
	struct verdict v = { .node = LB_NODE_NONE, .same = true };

	for (uint32_t i = range.lo; i <= range.hi; i++) {
		if (!steps[i].emits || (host && !(steps[i].host & host)))
			continue;
		if (!v.any) {
			v.any = true;
			v.node = steps[i].node;
			v.pos = steps[i].pos;
		} else if (v.node != steps[i].node) {
			v.node = lb_trace_common(b->nodes, v.node,
						 steps[i].node);
			v.same = false;
		}
	}
	return v;
}

/* Where a chain stands while one that it has called runs. */
static uint32_t call_pos(const struct builder *b, uint32_t node,
			 const struct lb_step *step)
{
	uint32_t at = step->node;

	if (at == node)
		return step->pos;
	while (at != LB_NODE_NONE && b->nodes->nodes[at].parent != node)
		at = b->nodes->nodes[at].parent;
	return at == LB_NODE_NONE ? LB_POS_UNKNOWN
				  : b->nodes->nodes[at].call_pos;
}

static void add_verdict(struct builder *b, uint32_t ofs, struct verdict v,
			const struct lb_step *first, bool sure)
{
	uint32_t pos = v.same ? v.pos : call_pos(b, v.node, first);

	add_span(b, ofs, v.node, pos, v.same && sure);
}

/* ---- machine code ---- */

static uint32_t xmm_bits(const char *text)
{
	uint32_t bits = 0;

	while ((text = strstr(text, "xmm"))) {
		text += 3;
		bits |= 1U << (strtoul(text, NULL, 10) & 15);
	}
	return bits;
}

static uint8_t host_of(const char *mnemonic)
{
	static const struct {
		const char *mnemonic;
		uint8_t host;
	} hosts[] = {
		{ "addsd", LB_HOST_ADD },	{ "subsd", LB_HOST_SUB },
		{ "mulsd", LB_HOST_MUL },	{ "divsd", LB_HOST_DIV },
		{ "ucomisd", LB_HOST_COMPARE }, { "call", LB_HOST_CALL }
	};

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
		if (!strcmp(mnemonic, hosts[i].mnemonic))
			return hosts[i].host;
	return 0;
}

/* Instructions of [ofs, end) into b->insns; 0 when they make no sense. */
static uint32_t disassemble(struct builder *b, uint32_t ofs, uint32_t end)
{
	const uint8_t *code = b->trace->code + ofs;
	uint64_t addr = ofs;
	uint32_t truncated = 0; /* the last conversion to an integer */
	size_t left = end - ofs;
	uint32_t n = 0;

	if (!b->has_cs)
		return 0;
	while (left && cs_disasm_iter(b->cs, &code, &left, &addr, b->cs_insn)) {
		if (n == INSNS_MAX)
			return 0;
		struct insn *insn = &b->insns[n++];
		const char *ops = b->cs_insn->op_str;
		const char *comma = strchr(ops, ',');

		insn->ofs = b->cs_insn->address;
		insn->end = addr;
		insn->host = host_of(b->cs_insn->mnemonic);
		/* a number compared with its integer part is no test of ours */
		if (!strcmp(b->cs_insn->mnemonic, "cvttsd2si"))
			truncated = n;
		if (insn->host == LB_HOST_COMPARE && truncated &&
		    n - truncated <= CONVERSION)
			insn->host = 0;
		insn->jumps = b->cs_insn->mnemonic[0] == 'j';
		insn->reads = xmm_bits(ops);
		insn->sets = comma && !strncmp(ops, "xmm", 3)
				     ? 1U << (strtoul(ops + 3, NULL, 10) & 15)
				     : 0;
	}
	return left ? 0 : n;
}

/* Place the anchors as early as possible, in lo; false: they do not fit. */
static bool place_early(const struct lb_step *steps, uint32_t n_steps,
			const uint8_t *hosts, uint32_t n, struct range *ranges)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		while (at < n_steps && !(steps[at].host & hosts[i]))
			at++;
		if (at == n_steps)
			return false;
		ranges[i].lo = at;
		at += steps[at].once;
	}
	return true;
}

static bool place_late(const struct lb_step *steps, uint32_t n_steps,
		       const uint8_t *hosts, uint32_t n, struct range *ranges)
{
	uint32_t at = n_steps;

	for (uint32_t i = n; i-- > 0;) {
		while (at && !(steps[at - 1].host & hosts[i]))
			at--;
		if (!at)
			return false;
		ranges[i].hi = at - 1;
		at -= steps[at - 1].once;
	}
	return true;
}

/* Code that makes ready what the anchor at @anchor reads begins here. */
static uint32_t setup_of(const struct builder *b, uint32_t from,
			 uint32_t anchor)
{
	uint32_t wanted = b->insns[anchor].reads, at = anchor;

	while (at > from && b->insns[at - 1].sets & wanted)
		at--;
	return at;
}

/* The jumps that an anchor decides are part of it. */
static uint32_t behind_anchor(const struct builder *b, uint32_t n,
			      uint32_t anchor)
{
	uint32_t at = anchor + 1;

	while (at < n && b->insns[at].jumps)
		at++;
	return at;
}

/* Split the code of these steps at its anchors. */
static bool split(struct builder *b, const struct lb_step *steps,
		  uint32_t n_steps, bool sure, uint32_t ofs, uint32_t end)
{
	uint8_t hosts[ANCHORS_MAX];
	uint32_t n_insns = disassemble(b, ofs, end), n = 0;

	for (uint32_t i = 0; i < n_insns; i++) {
		if (b->insns[i].host && n == ANCHORS_MAX)
			return false;
		if (b->insns[i].host)
			hosts[n++] = b->insns[i].host;
	}
	if (!n || !place_early(steps, n_steps, hosts, n, b->ranges) ||
	    !place_late(steps, n_steps, hosts, n, b->ranges))
		return false;
	uint32_t from = 0, lo = 0;

	for (uint32_t i = 0, k = 0; i < n_insns; i++) {
		if (!b->insns[i].host)
			continue;
		struct range range = b->ranges[k];
		struct range gap = { .lo = lo, .hi = range.hi };
		struct verdict v = judge(b, steps, range, hosts[k]);
		uint32_t setup = setup_of(b, from, i);

		if (from < setup)
			add_verdict(b, b->insns[from].ofs,
				    judge(b, steps, gap, 0), &steps[lo], sure);
		add_verdict(b, b->insns[setup].ofs, v, &steps[range.lo], sure);
		from = behind_anchor(b, n_insns, i);
		lo = range.lo;
		k++;
	}
	struct range rest = { .lo = lo, .hi = n_steps - 1 };

	if (from < n_insns)
		add_verdict(b, b->insns[from].ofs, judge(b, steps, rest, 0),
			    &steps[lo], sure);
	return true;
}

/* ---- one piece between two snapshots ---- */

struct end {
	struct lb_walk_state state;
	struct lb_walk_end walk;
	uint32_t ofs;
	bool unknown; /* it may be a test, but not which */
};

static uint32_t top_node(const struct lb_walk_state *state)
{
	return state->n ? state->frames[state->n - 1].node : LB_NODE_NONE;
}

static uint32_t top_pos(const struct lb_walk_state *state)
{
	return state->n && state->whole ? state->frames[state->n - 1].pos
					: LB_POS_UNKNOWN;
}

/* No way was found: what both ends have in common. */
static void add_common(struct builder *b, uint32_t ofs,
		       const struct lb_walk_state *from,
		       const struct lb_walk_state *to)
{
	uint32_t a = top_node(from), c = top_node(to), node, pos;

	node = a == LB_NODE_NONE || c == LB_NODE_NONE
		       ? LB_NODE_NONE
		       : lb_trace_common(b->nodes, a, c);
	pos = node == a ? top_pos(from) : LB_POS_UNKNOWN;
	if (node != a && node != LB_NODE_NONE) {
		struct lb_step step = { .node = a };

		pos = call_pos(b, node, &step);
	}
	add_span(b, ofs, node, pos, false);
}

static void add_piece(struct builder *b, const struct end *from, struct end *to)
{
	const struct lb_step *steps;
	uint32_t n, ofs = from->ofs, end = to->ofs;
	bool sure;

	if (from->unknown ||
	    lb_walk_go(b->walk, &from->walk, &to->walk, &steps, &n, &sure)) {
		to->unknown = lb_walk_branch(b->walk, &to->walk) != 0;
		if (ofs < end)
			add_common(b, ofs, &from->state, &to->state);
		return;
	}
	to->unknown = false;
	if (ofs >= end)
		return;
	struct verdict all = { .same = true };

	if (n)
		all = judge(b, steps, (struct range){ 0, n - 1 }, 0);
	if (!all.any) {
		add_span(b, ofs, top_node(&from->state), top_pos(&from->state),
			 sure);
		return;
	}
	if (b->use_anchors && !all.same && split(b, steps, n, sure, ofs, end))
		return;
	add_verdict(b, ofs, all, &steps[0], sure);
}

/* ---- the whole trace ---- */

/* The function on the stack, if some snapshot has it as a constant. */
static uint64_t find_base(struct builder *b, struct lb_trace_snap *snap)
{
	uint64_t func = 0;

	for (uint32_t i = 0; i < b->trace->n_snaps && !func; i++)
		if (!lb_trace_snap(b->off, b->trace, i, snap) &&
		    !snap->tailcalled)
			func = snap->frames[0].func;
	return func;
}

struct ends {
	struct end first, second; /* of a piece, in turn */
	struct end loop;	  /* where the body of the loop begins */
	struct lb_trace_snap snap;
};

static bool end_at(struct builder *b, struct ends *e, uint32_t i, uint64_t base,
		   struct end *end)
{
	if (lb_trace_snap(b->off, b->trace, i, &e->snap))
		return false;
	lb_walk_state(b->walk, &e->snap, base, &end->state);
	end->walk = (struct lb_walk_end){ .state = &end->state,
					  .ref = e->snap.ref,
					  .branch = LB_POS_UNKNOWN };
	end->ofs = e->snap.mcofs;
	end->unknown = false;
	return true;
}

/* A loop goes on where its body begins; all else ends at its last snapshot. */
static void add_last(struct builder *b, const struct end *last,
		     struct end *loop)
{
	if (loop) {
		loop->ofs = b->trace->szmcode;
		loop->walk.ref = b->trace->nins;
		add_piece(b, last, loop);
	} else if (last->ofs < b->trace->szmcode) {
		add_span(b, last->ofs, top_node(&last->state),
			 top_pos(&last->state), last->state.whole);
	}
}

static void add_pieces(struct builder *b, struct ends *e)
{
	const struct lb_trace *trace = b->trace;
	uint64_t base = find_base(b, &e->snap);
	struct end *from = &e->first, *to = &e->second;
	bool has_loop = false;

	/* all snapshots first: they tell who is called where */
	for (uint32_t i = 0; i < trace->n_snaps; i++)
		end_at(b, e, i, base, to);
	for (uint32_t i = 0; i < trace->n_snaps; i++) {
		struct end *other = from;

		if (!end_at(b, e, i, base, to))
			break;
		if (i && to->ofs < from->ofs)
			break; /* nothing behind it is believed */
		if (i)
			add_piece(b, from, to);
		if (trace->mcloop && to->ofs <= trace->mcloop) {
			e->loop = *to;
			e->loop.walk.state = &e->loop.state;
			has_loop = true;
		}
		from = to;
		to = other;
	}
	if (trace->n_snaps)
		add_last(b, from, has_loop ? &e->loop : NULL);
}

/* Without the places of snapshots: where the trace begins. */
static void add_start(struct builder *b, struct ends *e)
{
	uint64_t base = find_base(b, &e->snap);

	if (end_at(b, e, 0, base, &e->first))
		add_span(b, 0, top_node(&e->first.state),
			 top_pos(&e->first.state), false);
}

static int finish(struct builder *b, struct lb_tracemap *map)
{
	const struct lb_fproto *start =
		lb_funcs_proto(b->funcs, b->trace->startpt);

	map->nodes = calloc(b->nodes->n + 1, sizeof(*map->nodes));
	if (!map->nodes || b->failed)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->nodes->n; i++) {
		const struct lb_trace_node *from = &b->nodes->nodes[i];

		map->nodes[i] = (struct lb_inline){
			.parent = from->parent,
			.proto_id = from->proto ? from->proto->id : 0,
			.call_pos = from->call_pos,
			.call_line = line_at(b, from->parent, from->call_pos),
			.ffid = from->ffid,
			.replaced = from->replaced
		};
	}
	map->n_nodes = b->nodes->n;
	map->spans = b->spans;
	map->n_spans = b->n_spans;
	b->spans = NULL;
	if (start) {
		uint64_t pos = (b->trace->startpc - start->code) / 4;

		map->start_id = start->id;
		map->start_line = LB_LINE_UNKNOWN;
		if (pos < start->proto.size_bc)
			map->start_line = lb_fproto_line(start, pos);
	}
	return 0;
}

static int build(struct builder *b, struct lb_tracemap *map)
{
	struct ends *ends = calloc(1, sizeof(*ends));

	if (!ends)
		return -ENOMEM;
	/* integers of 64 bits are converted with floating point operations */
	b->use_anchors = !lb_trace_has_int64(b->trace);
	b->has_cs = cs_open(CS_ARCH_X86, CS_MODE_64, &b->cs) == CS_ERR_OK;
	if (b->has_cs)
		b->cs_insn = cs_malloc(b->cs);
	b->has_cs = b->has_cs && b->cs_insn;
	add_span(b, 0, LB_NODE_NONE, LB_POS_UNKNOWN, false);
	lb_funcs_proto(b->funcs, b->trace->startpt);
	if (b->trace->has_mcofs)
		add_pieces(b, ends);
	else
		add_start(b, ends);
	free(ends);
	int err = finish(b, map);

	if (b->cs_insn)
		cs_free(b->cs_insn, 1);
	if (b->cs)
		cs_close(&b->cs);
	return err;
}

int lb_tracemap_new(struct lb_target *target, struct lb_funcs *funcs,
		    const struct lb_trace *trace, struct lb_tracemap **map_ret)
{
	struct lb_tracemap *map = calloc(1, sizeof(*map));
	struct builder *b = calloc(1, sizeof(*b));
	int err = -ENOMEM;

	if (map && b) {
		map->mcode = trace->mcode;
		map->szmcode = trace->szmcode;
		map->id = trace->id;
		map->no = trace->no;
		map->root = trace->root;
		map->link = trace->link;
		map->linktype = trace->linktype;
		b->funcs = funcs;
		b->off = target->off;
		b->trace = trace;
		err = lb_walk_new(target, funcs, trace, &b->walk);
	}
	if (!err) {
		b->nodes = lb_walk_nodes(b->walk);
		err = build(b, map);
		lb_walk_free(b->walk);
		free(b->spans);
	}
	free(b);
	if (err)
		lb_tracemap_free(map);
	else
		*map_ret = map;
	return err;
}

void lb_tracemap_free(struct lb_tracemap *map)
{
	if (!map)
		return;
	free(map->nodes);
	free(map->spans);
	free(map);
}

const struct lb_trace_span *lb_tracemap_at(const struct lb_tracemap *map,
					   uint64_t pc)
{
	uint64_t ofs = pc - map->mcode;
	size_t lo = 0, hi = map->n_spans;

	if (ofs >= map->szmcode || !map->n_spans)
		return NULL;
	while (hi - lo > 1) {
		size_t mid = (lo + hi) / 2;

		if (map->spans[mid].ofs <= ofs)
			lo = mid;
		else
			hi = mid;
	}
	return &map->spans[lo];
}

size_t lb_tracemap_size(const struct lb_tracemap *map)
{
	return sizeof(*map) + map->n_nodes * sizeof(*map->nodes) +
	       map->n_spans * sizeof(*map->spans);
}
