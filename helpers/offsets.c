/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lj_offsets of one file, chosen by what its machine code shows.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LJ_OFFSETS_TABLE
#include "fields.h"
#include "layout.h"
#include "offsets.h"

#define N_MEMBERS LB_SCAN_N_FIELDS

/* `make LB_WITHOUT_TABLE=1`: for tests of what works without. */
#ifdef LB_WITHOUT_TABLE
static const size_t n_entries;
#else
static const size_t n_entries =
	sizeof(lj_offsets_table) / sizeof(lj_offsets_table[0]);
#endif

_Static_assert(LJ_OFFSETS_NONE == LB_LUAJIT_NONE, "one value for both");

bool lb_offsets_marks_equal(const struct lb_luajit *luajit,
			    const struct lj_offsets *offsets)
{
	return luajit->gc64 == offsets->gc64 &&
	       luajit->g2disp == offsets->g2disp &&
	       luajit->g_cur_l == offsets->g_cur_l &&
	       luajit->g_vmstate == offsets->g_vmstate &&
	       luajit->cframe_size == offsets->cframe_size &&
	       luajit->static_dispatch == offsets->static_dispatch &&
	       luajit->cf_nres == offsets->cf_nres &&
	       luajit->cf_l == offsets->cf_l &&
	       luajit->cf_pc == offsets->cf_pc &&
	       luajit->cf_prev == offsets->cf_prev;
}

struct lb_luajit lb_offsets_marks(const struct lj_offsets *offsets)
{
	return (struct lb_luajit){
		.cframe_size = offsets->cframe_size,
		.gc64 = offsets->gc64,
		.g2disp = offsets->g2disp,
		.g_cur_l = offsets->g_cur_l,
		.g_vmstate = offsets->g_vmstate,
		.static_dispatch = offsets->static_dispatch,
		.cf_nres = offsets->cf_nres,
		.cf_l = offsets->cf_l,
		.cf_pc = offsets->cf_pc,
		.cf_prev = offsets->cf_prev,
	};
}

/* Forget what @offsets and another entry with its marks disagree on. */
static void keep_common(struct lj_offsets *offsets,
			const struct lj_offsets *other)
{
	__u32 *fields = (__u32 *)offsets;
	const __u32 *others = (const __u32 *)other;

	for (size_t i = 0; i < N_MEMBERS; i++)
		if (fields[i] != others[i])
			fields[i] = LJ_OFFSETS_NONE;
}

int lb_offsets_find(const struct lb_luajit *luajit,
		    struct lj_offsets *offsets_ret, const char **name_ret)
{
	bool found = false;

	for (size_t i = 0; i < n_entries; i++) {
		const struct lj_offsets_entry *entry = &lj_offsets_table[i];

		if (!lb_offsets_marks_equal(luajit, &entry->offsets))
			continue;
		if (found) {
			keep_common(offsets_ret, &entry->offsets);
			continue;
		}
		*offsets_ret = entry->offsets;
		*name_ret = entry->name;
		found = true;
	}
	return found ? 0 : -ENOENT;
}

int lb_offsets_entry(size_t index, const struct lj_offsets **offsets_ret,
		     const char **name_ret)
{
	if (index >= n_entries)
		return -ENOENT;
	*offsets_ret = &lj_offsets_table[index].offsets;
	*name_ret = lj_offsets_table[index].name;
	return 0;
}

/* ---- all sources ---- */

static uint32_t value_of(const struct lj_offsets *offsets, size_t field)
{
	return ((const __u32 *)offsets)[field];
}

/* The first field on which both speak and differ, or N_MEMBERS. */
static size_t first_difference(const struct lj_offsets *entry,
			       const struct lb_scan *scan)
{
	for (size_t i = 0; scan && i < N_MEMBERS; i++)
		if (scan->known[i] &&
		    value_of(&scan->offsets, i) != value_of(entry, i))
			return i;
	return N_MEMBERS;
}

static void take_entry(struct lb_offsets_source *source,
		       const struct lj_offsets_entry *entry)
{
	if (source->entry_name) {
		keep_common(&source->offsets, &entry->offsets);
		return;
	}
	source->offsets = entry->offsets;
	source->entry_name = entry->name;
}

/*
 * All entries with these marks that the code does not contradict. If there are
 * entries, but none such: a problem.
 */
static void join_header(struct lb_offsets_source *source,
			const struct lb_luajit *luajit,
			const struct lb_scan *scan)
{
	for (size_t i = 0; i < n_entries; i++) {
		const struct lj_offsets_entry *entry = &lj_offsets_table[i];
		size_t field;

		if (!lb_offsets_marks_equal(luajit, &entry->offsets))
			continue;
		field = first_difference(&entry->offsets, scan);
		if (field == N_MEMBERS) {
			take_entry(source, entry);
		} else if (!source->problem) {
			source->problem = LB_OFFSETS_DIFFER;
			source->problem_field = field;
			source->header_value = value_of(&entry->offsets, field);
			source->scan_value = value_of(&scan->offsets, field);
		}
	}
	if (source->entry_name)
		source->problem = LB_OFFSETS_OK;
	for (size_t i = 0; i < N_MEMBERS; i++)
		if (source->entry_name)
			source->from[i] = LB_FROM_HEADER;
}

static void join_scan(struct lb_offsets_source *source,
		      const struct lb_scan *scan)
{
	__u32 *values = (__u32 *)&source->offsets;

	for (size_t i = 0; i < N_MEMBERS; i++) {
		if (!scan->known[i])
			continue;
		source->from[i] = source->from[i] ? LB_FROM_BOTH : LB_FROM_SCAN;
		values[i] = value_of(&scan->offsets, i);
	}
}

/* Fields that entries with the same marks disagree on are not known either. */
static void forget_nothing(struct lb_offsets_source *source)
{
	static const size_t optional[] = {
		LB_SCAN_FIELD(g_cur_l),	 LB_SCAN_FIELD(g_jit_l),
		LB_SCAN_FIELD(vm_lfunc), LB_SCAN_FIELD(vm_ffunc),
		LB_SCAN_FIELD(sn_mcofs),
	};

	for (size_t i = 0; i < N_MEMBERS; i++) {
		bool is_optional = false;

		for (size_t j = 0; j < sizeof(optional) / sizeof(*optional);
		     j++)
			is_optional |= optional[j] == i;
		if (value_of(&source->offsets, i) == LJ_OFFSETS_NONE &&
		    !is_optional)
			source->from[i] = LB_FROM_NONE;
	}
}

/* Without these no stack can be walked. */
static void check_needed(struct lb_offsets_source *source)
{
	static const size_t needed[] = {
		LB_SCAN_FIELD(gc64),	   LB_SCAN_FIELD(g2disp),
		LB_SCAN_FIELD(g_vmstate),  LB_SCAN_FIELD(cframe_size),
		LB_SCAN_FIELD(g_jit_base), LB_SCAN_FIELD(l_gct),
		LB_SCAN_FIELD(l_glref),	   LB_SCAN_FIELD(l_base),
		LB_SCAN_FIELD(l_maxstack), LB_SCAN_FIELD(l_stack),
		LB_SCAN_FIELD(l_cframe),   LB_SCAN_FIELD(cf_nres),
		LB_SCAN_FIELD(cf_l),	   LB_SCAN_FIELD(cf_pc),
		LB_SCAN_FIELD(cf_prev),	   LB_SCAN_FIELD(cf_r14),
		LB_SCAN_FIELD(cf_rbx),	   LB_SCAN_FIELD(cf_rbp),
		LB_SCAN_FIELD(cf_ra),	   LB_SCAN_FIELD(fn_gct),
		LB_SCAN_FIELD(fn_ffid),	   LB_SCAN_FIELD(fn_pc),
		LB_SCAN_FIELD(pt_size),
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (source->from[needed[i]] &&
		    source->from[needed[i]] != LB_FROM_LAYOUT)
			continue;
		source->problem = LB_OFFSETS_MISSING;
		source->problem_field = needed[i];
		return;
	}
}

/* Members of structs; GCfunc is left out, for it is two in one. */
#define MEMBER(name) LB_SCAN_FIELD(name), 0
#define REF(name)    LB_SCAN_FIELD(name), 1
#define MEMBERS_MAX  16
#define END          \
	{            \
		0, 0 \
	} /* gc64 is no member */

static const struct member {
	size_t field;
	size_t is_ref; /* 4 or 8 bytes wide, else at least 1 */
} structs[][MEMBERS_MAX] = {
	{ { MEMBER(l_gct) },
	  { MEMBER(l_status) },
	  { REF(l_glref) },
	  { REF(l_base) },
	  { REF(l_top) },
	  { REF(l_maxstack) },
	  { REF(l_stack) },
	  { REF(l_env) },
	  { REF(l_cframe) },
	  END },
	{ { MEMBER(pt_gct) },
	  { MEMBER(pt_numparams) },
	  { MEMBER(pt_sizebc) },
	  { REF(pt_k) },
	  { MEMBER(pt_sizekgc) },
	  { MEMBER(pt_sizept) },
	  { MEMBER(pt_sizeuv) },
	  { MEMBER(pt_flags) },
	  { REF(pt_chunkname) },
	  { MEMBER(pt_firstline) },
	  { MEMBER(pt_numline) },
	  { REF(pt_lineinfo) },
	  { REF(pt_uvinfo) },
	  { REF(pt_varinfo) },
	  END },
	{ { REF(tab_array) },
	  { REF(tab_node) },
	  { REF(tab_metatable) },
	  { MEMBER(tab_asize) },
	  { MEMBER(tab_hmask) },
	  END },
	{ { REF(j_trace) },
	  { MEMBER(j_sizetrace) },
	  { MEMBER(j_freetrace) },
	  { REF(j_mcarea) },
	  { REF(j_szmcarea) },
	  END },
	{ { REF(tr_startpt) },
	  { REF(tr_startpc) },
	  { REF(tr_mcode) },
	  { MEMBER(tr_szmcode) },
	  { MEMBER(tr_root) },
	  { MEMBER(tr_link) },
	  { MEMBER(tr_traceno) },
	  { REF(tr_snap) },
	  { REF(tr_snapmap) },
	  { REF(tr_ir) },
	  { MEMBER(tr_nk) },
	  { MEMBER(tr_nins) },
	  { MEMBER(tr_mcloop) },
	  { MEMBER(tr_startins) },
	  { MEMBER(tr_spadjust) },
	  END },
	{ { MEMBER(sn_mapofs) },
	  { MEMBER(sn_ref) },
	  { MEMBER(sn_mcofs) },
	  { MEMBER(sn_nslots) },
	  { MEMBER(sn_topslot) },
	  { MEMBER(sn_nent) },
	  { MEMBER(sn_count) },
	  END },
};

/* Does @field begin inside of @member? */
static bool is_inside(const struct lj_offsets *offsets, size_t field,
		      const struct member *member)
{
	uint32_t at = value_of(offsets, field);
	uint32_t begin = value_of(offsets, member->field);
	uint32_t width = !member->is_ref ? 1 : offsets->gc64 ? 8 : 4;

	return field != member->field && begin != LJ_OFFSETS_NONE &&
	       at >= begin && at - begin < width;
}

/* Two ways: either may be the one that is wrong. */
static bool are_apart(const struct lj_offsets *offsets,
		      const struct member *members, const struct member *one,
		      size_t *other_ret)
{
	for (const struct member *m = members; m->field; m++) {
		if (!is_inside(offsets, one->field, m) &&
		    !is_inside(offsets, m->field, one))
			continue;
		*other_ret = m->field;
		return false;
	}
	return true;
}

bool lb_offsets_apart(const struct lj_offsets *offsets, size_t field,
		      size_t *other_ret)
{
	if (value_of(offsets, field) == LJ_OFFSETS_NONE)
		return true;
	for (size_t i = 0; i < sizeof(structs) / sizeof(structs[0]); i++)
		for (const struct member *m = structs[i]; m->field; m++)
			if (m->field == field)
				return are_apart(offsets, structs[i], m,
						 other_ret);
	return true;
}

static void check_apart(struct lb_offsets_source *source)
{
	for (size_t i = 0; i < N_MEMBERS && !source->problem; i++) {
		if (lb_offsets_apart(&source->offsets, i, &source->other_field))
			continue;
		source->problem = LB_OFFSETS_OVERLAP;
		source->problem_field = i;
	}
}

int lb_offsets_join(const struct lb_luajit *luajit, const struct lb_scan *scan,
		    struct lb_offsets_source *source_ret)
{
	struct lb_offsets_source source = { .scan_err = scan ? 0 : -ENOENT };

	memset(&source.offsets, 0xff, sizeof(source.offsets));
	join_header(&source, luajit, scan);
	if (scan)
		join_scan(&source, scan);
	forget_nothing(&source);
	if (!source.problem)
		check_needed(&source);
	if (!source.problem)
		lb_layout_add(&source);
	if (!source.problem)
		check_apart(&source);
	*source_ret = source;
	return source.problem ? -ENOENT : 0;
}

int lb_offsets_choose(const struct lb_elf *elf, const struct lb_luajit *luajit,
		      struct lb_offsets_source *source_ret)
{
	struct lb_scan scan;
	int scan_err = lb_scan_offsets(elf, luajit, &scan);
	int err;

	if (scan_err == -ENOMEM)
		return scan_err;
	err = lb_offsets_join(luajit, scan_err ? NULL : &scan, source_ret);
	source_ret->scan_err = scan_err;
	return err;
}

void lb_offsets_explain(const struct lb_offsets_source *source, char *text,
			size_t size)
{
	const char *name = lb_fields[source->problem_field].name;

	if (source->problem == LB_OFFSETS_DIFFER)
		snprintf(text, size,
			 "the table has %s at %d, its machine code at %d", name,
			 (int)source->header_value, (int)source->scan_value);
	else if (source->problem == LB_OFFSETS_MISSING && source->scan_err)
		snprintf(text, size,
			 "no entry of the table has its marks, and its machine "
			 "code is not understood");
	else if (source->problem == LB_OFFSETS_MISSING)
		snprintf(text, size,
			 "no entry of the table has its marks, and its machine "
			 "code does not show %s",
			 name);
	else if (source->problem == LB_OFFSETS_OVERLAP)
		snprintf(text, size, "%s and %s are at the same place", name,
			 lb_fields[source->other_field].name);
	else if (size)
		text[0] = 0;
}

const char *lb_offsets_from_word(unsigned int from)
{
	static const char *const words[LB_FROM_MAX] = {
		[LB_FROM_NONE] = "none",     [LB_FROM_HEADER] = "table",
		[LB_FROM_SCAN] = "code",     [LB_FROM_BOTH] = "table, code",
		[LB_FROM_LAYOUT] = "layout", [LB_FROM_LIVE] = "live",
	};

	return from < LB_FROM_MAX ? words[from] : "?";
}

size_t lb_offsets_count(const struct lb_offsets_source *source,
			unsigned int from)
{
	size_t n = 0;

	for (size_t i = 0; i < N_MEMBERS; i++)
		n += source->from[i] == from;
	return n;
}
