/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lj_offsets of one file, chosen by what its machine code shows.
 */
#include <errno.h>

#define LJ_OFFSETS_TABLE
#include "offsets.h"

#define N_ENTRIES (sizeof(lj_offsets_table) / sizeof(lj_offsets_table[0]))
#define N_MEMBERS (sizeof(struct lj_offsets) / sizeof(__u32))

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

	for (size_t i = 0; i < N_ENTRIES; i++) {
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
	if (index >= N_ENTRIES)
		return -ENOENT;
	*offsets_ret = &lj_offsets_table[index].offsets;
	*name_ret = lj_offsets_table[index].name;
	return 0;
}
