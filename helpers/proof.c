/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof of struct lj_offsets on a live VM: the looks, and what follows from
 * them for each field. What is looked at: proofvm.c, proofproto.c,
 * prooftrace.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "proofrun.h"

#define LOOKS	     5
#define LOOK_WAIT_US 1000
#define BUDGET	     60000 /* reads of one look */
/* Objects that change under a look: one in so many may be wrong. */
#define TORN 8

#define F(name) LB_SCAN_FIELD(name)

/* What each check proves. A field may stand with several. */
static const struct {
	const char *text;
	uint8_t n;
	uint8_t fields[20];
} checks[LB_CHECK_MAX] = {
	[LB_CHECK_CIRCLE] = { "current thread",
			      3,
			      { F(g_cur_l), F(l_gct), F(l_glref) } },
	[LB_CHECK_MAIN] = { "main thread", 2, { F(g_mainthref), F(l_size) } },
	[LB_CHECK_ENV] = { "globals", 2, { F(l_env), F(tab_hmask) } },
	[LB_CHECK_STACK] = { "Lua stack",
			     4,
			     { F(l_stack), F(l_base), F(l_top),
			       F(l_maxstack) } },
	[LB_CHECK_CFRAME] = { "C frame",
			      3,
			      { F(l_cframe), F(cf_l), F(cf_prev) } },
	[LB_CHECK_FRAMES] = { "Lua frames", 2, { F(l_base), F(fn_gct) } },
	[LB_CHECK_STATE] = { "state of the VM",
			     3,
			     { F(g_vmstate), F(g_jit_base), F(g_gc_state) } },
	[LB_CHECK_REGISTRY] = { "registry", 1, { F(g_registry) } },
	[LB_CHECK_ROOTS] = { "metamethod names",
			     2,
			     { F(g_gcroot), F(g_n_gcroot) } },
	[LB_CHECK_OBJECTS] = { "list of objects", 1, { F(g_gc_root) } },
	[LB_CHECK_FUNCTION] = { "functions",
				6,
				{ F(fn_pc), F(pt_size), F(pt_gct),
				  F(fn_nupvalues), F(pt_sizeuv),
				  F(fn_uvptr) } },
	[LB_CHECK_PROTO] = { "prototypes",
			     8,
			     { F(pt_sizebc), F(pt_k), F(pt_sizekgc),
			       F(pt_chunkname), F(pt_size), F(str_len),
			       F(str_size), F(pt_numparams) } },
	[LB_CHECK_DEBUG] = { "debug info of prototypes",
			     6,
			     { F(pt_lineinfo), F(pt_uvinfo), F(pt_varinfo),
			       F(pt_sizept), F(pt_sizeuv), F(pt_numline) } },
	[LB_CHECK_LINES] = { "lines of functions",
			     2,
			     { F(pt_firstline), F(pt_numline) } },
	[LB_CHECK_MCODE] = { "areas of machine code",
			     2,
			     { F(j_mcarea), F(j_szmcarea) } },
	[LB_CHECK_TRACE] = { "traces",
			     20,
			     { F(j_trace), F(j_sizetrace), F(j_freetrace),
			       F(tr_traceno), F(tr_startpt), F(tr_startpc),
			       F(tr_mcode), F(tr_szmcode), F(tr_mcloop),
			       F(tr_root), F(tr_link), F(tr_nk), F(tr_nins),
			       F(tr_ir), F(ir_size), F(tr_snap), F(tr_snapmap),
			       F(tr_startins), F(tr_spadjust) } },
	[LB_CHECK_SNAPSHOT] = { "snapshots",
				12,
				{ F(tr_nsnap), F(tr_nsnapmap), F(tr_linktype),
				  F(sn_size), F(sn_mapofs), F(sn_mapofs_size),
				  F(sn_ref), F(sn_mcofs), F(sn_nslots),
				  F(sn_topslot), F(sn_nent), F(sn_count) } },
};

_Static_assert(LB_SCAN_N_FIELDS <= UINT8_MAX, "fields as bytes");

const char *lb_proof_check_text(unsigned int check)
{
	return check < LB_CHECK_MAX ? checks[check].text : "?";
}

const uint8_t *lb_proof_fields(unsigned int check, size_t *n_ret)
{
	*n_ret = checks[check].n;
	return checks[check].fields;
}

/* ---- reading ---- */

uint16_t lb_proof_u16(const uint8_t *data, uint32_t off)
{
	uint16_t value;

	memcpy(&value, data + off, sizeof(value));
	return value;
}

uint32_t lb_proof_u32(const uint8_t *data, uint32_t off)
{
	uint32_t value;

	memcpy(&value, data + off, sizeof(value));
	return value;
}

uint64_t lb_proof_u64(const uint8_t *data, uint32_t off)
{
	uint64_t value;

	memcpy(&value, data + off, sizeof(value));
	return value;
}

bool lb_proof_read(struct lb_proof_run *run, uint64_t addr, void *buf,
		   size_t size)
{
	return addr && !lb_target_read(&run->target, addr, buf, size);
}

uint64_t lb_proof_ref(struct lb_proof_run *run, uint64_t addr)
{
	uint8_t buf[8];

	if (!lb_proof_read(run, addr, buf, lb_target_ref_size(&run->target)))
		return 0;
	return lb_target_ref(&run->target, buf);
}

bool lb_proof_is(struct lb_proof_run *run, uint64_t addr, unsigned int type)
{
	uint8_t gct;

	/* objects of Lua's own lie at multiples of 4 at least */
	return !(addr & 3) &&
	       lb_proof_read(run, addr + run->off.fn_gct, &gct, 1) &&
	       gct == type;
}

bool lb_proof_is_str(struct lb_proof_run *run, uint64_t addr, const char *text)
{
	const struct lj_offsets *off = &run->off;
	uint8_t len[4], end;
	char got[32];
	uint32_t n;

	if (!LB_HAS(run, str_len) || !LB_HAS(run, str_size) ||
	    !lb_proof_is(run, addr, LB_LUA_STR) ||
	    !lb_proof_read(run, addr + off->str_len, len, sizeof(len)))
		return false;
	n = lb_proof_u32(len, 0);
	if (n >= 1U << 30 ||
	    !lb_proof_read(run, addr + off->str_size + n, &end, 1) || end)
		return false;
	if (!text)
		return true;
	return n == strlen(text) && n < sizeof(got) &&
	       lb_proof_read(run, addr + off->str_size, got, n) &&
	       !memcmp(got, text, n);
}

bool lb_proof_is_thread(struct lb_proof_run *run, uint64_t addr)
{
	uint8_t gct;

	return !(addr & 7) &&
	       lb_proof_read(run, addr + run->off.l_gct, &gct, 1) &&
	       gct == LB_LUA_THREAD &&
	       lb_proof_ref(run, addr + run->off.l_glref) == run->g_addr;
}

void lb_proof_add(struct lb_proof_list *list, uint64_t addr)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->addrs[i] == addr)
			return;
	if (list->n < list->max)
		list->addrs[list->n++] = addr;
}

/* ---- one look ---- */

bool lb_proof_note(struct lb_proof_run *run, unsigned int check, bool held,
		   const char *why, uint64_t addr)
{
	if (held) {
		run->held[check]++;
		return true;
	}
	if (!run->failed[check]++) {
		run->why[check] = why;
		run->where[check] = addr;
	}
	return false;
}

void lb_proof_find(struct lb_proof_run *run, size_t field, uint32_t value)
{
	((__u32 *)&run->off)[field] = value;
	run->found[field] = true;
}

static bool look(struct lb_proof_run *run)
{
	if (!lb_proof_globals(run))
		return false;
	lb_proof_objects(run);
	lb_proof_threads(run);
	lb_proof_protos(run);
	lb_proof_traces(run);
	return true;
}

static struct lb_proof_run *new_run(lb_read_fn read, void *read_arg,
				    uint64_t g_addr,
				    const struct lb_offsets_source *source)
{
	struct lb_proof_run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	run->off = source->offsets;
	run->from = source->from;
	run->g_addr = g_addr;
	run->target.read = read;
	run->target.read_arg = read_arg;
	run->target.off = &run->off;
	run->target.budget = BUDGET;
	run->threads.max = LB_PROOF_THREADS;
	run->funcs.max = LB_PROOF_FUNCS;
	run->protos.max = LB_PROOF_PROTOS;
	return run;
}

/* ---- all looks ---- */

static enum lb_proof_state state_of(const struct lb_proof_run *run,
				    unsigned int check)
{
	if (run->failed[check])
		return run->failed[check] * TORN > run->held[check]
			       ? LB_PROOF_FAILED
			       : LB_PROOF_UNSEEN;
	return run->held[check] ? LB_PROOF_HELD : LB_PROOF_UNSEEN;
}

/* @n_looks looks before this one. A check that held once stays so. */
static void add_look(struct lb_proof *proof, const struct lb_proof_run *run,
		     int n_looks)
{
	for (unsigned int i = 0; i < LB_CHECK_MAX; i++) {
		uint8_t state = (uint8_t)state_of(run, i);
		uint8_t *to = &proof->states[i];

		if (*to == LB_PROOF_HELD)
			continue;
		if (state == LB_PROOF_HELD || !n_looks)
			*to = state;
		else if (state != LB_PROOF_FAILED)
			*to = LB_PROOF_UNSEEN;
		proof->n_held[i] = run->held[i];
		proof->why[i] = run->why[i];
		proof->where[i] = run->where[i];
	}
	if (run->main_l)
		proof->main_l_addr = run->main_l;
}

static bool has_failed(const struct lb_proof *proof)
{
	for (unsigned int i = 0; i < LB_CHECK_MAX; i++)
		if (proof->states[i] == LB_PROOF_FAILED)
			return true;
	return false;
}

/* What every VM has, and another look may show. */
static bool is_complete(const struct lb_proof *proof)
{
	return proof->states[LB_CHECK_MAIN] == LB_PROOF_HELD &&
	       proof->states[LB_CHECK_STACK] == LB_PROOF_HELD &&
	       proof->states[LB_CHECK_ROOTS] == LB_PROOF_HELD &&
	       proof->states[LB_CHECK_OBJECTS] == LB_PROOF_HELD;
}

/* Fields that were found in a look whose check held. */
static void take_found(struct lb_offsets_source *source,
		       const struct lb_proof_run *run)
{
	for (unsigned int i = 0; i < LB_CHECK_MAX; i++) {
		for (size_t j = 0; j < checks[i].n; j++) {
			size_t field = checks[i].fields[j];

			if (!run->found[field] ||
			    state_of(run, i) != LB_PROOF_HELD ||
			    (source->from[field] != LB_FROM_NONE &&
			     source->from[field] != LB_FROM_LAYOUT))
				continue;
			((__u32 *)&source->offsets)[field] =
				((const __u32 *)&run->off)[field];
			source->from[field] = LB_FROM_LIVE;
		}
	}
}

/*
 * What a check that has failed says of its fields: candidates among them are
 * to blame; without any, table and machine code are.
 */
static bool blame(struct lb_offsets_source *source, unsigned int check)
{
	bool has_candidates = false;

	for (size_t j = 0; j < checks[check].n; j++) {
		size_t field = checks[check].fields[j];

		if (source->from[field] != LB_FROM_LAYOUT)
			continue;
		source->from[field] = LB_FROM_NONE;
		((__u32 *)&source->offsets)[field] = LJ_OFFSETS_NONE;
		has_candidates = true;
	}
	return has_candidates;
}

static int conclude(struct lb_offsets_source *source, struct lb_proof *proof)
{
	int err = 0;

	for (unsigned int i = 0; i < LB_CHECK_MAX; i++)
		if (proof->states[i] == LB_PROOF_FAILED && !blame(source, i))
			err = -EBADMSG;
	for (unsigned int i = 0; i < LB_CHECK_MAX; i++) {
		if (proof->states[i] != LB_PROOF_HELD)
			continue;
		for (size_t j = 0; j < checks[i].n; j++)
			if (source->from[checks[i].fields[j]] == LB_FROM_LAYOUT)
				source->from[checks[i].fields[j]] =
					LB_FROM_LIVE;
	}
	return err;
}

int lb_proof_run(lb_read_fn read, void *read_arg, uint64_t g_addr,
		 struct lb_offsets_source *source, struct lb_proof *proof_ret)
{
	struct lb_proof proof = { .g_addr = g_addr };
	int n_looks = 0;

	for (int i = 0; i < LOOKS; i++) {
		_cleanup_free_ struct lb_proof_run *run =
			new_run(read, read_arg, g_addr, source);

		if (!run)
			return -ENOMEM;
		if (look(run)) {
			add_look(&proof, run, n_looks++);
			take_found(source, run);
			if (!has_failed(&proof) && is_complete(&proof))
				break;
		}
		usleep(LOOK_WAIT_US);
	}
	if (!n_looks)
		return -ENOENT;
	*proof_ret = proof;
	return conclude(source, proof_ret);
}

void lb_proof_explain(const struct lb_proof *proof, char *text, size_t size)
{
	for (unsigned int i = 0; i < LB_CHECK_MAX; i++) {
		if (proof->states[i] != LB_PROOF_FAILED)
			continue;
		snprintf(text, size, "%s: %s, at 0x%llx", checks[i].text,
			 proof->why[i] ? proof->why[i] : "?",
			 (unsigned long long)proof->where[i]);
		return;
	}
	if (size)
		text[0] = 0;
}
