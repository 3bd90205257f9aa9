/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lj_offsets of one file, chosen by what its machine code shows.
 */
#include <errno.h>

#define LJ_OFFSETS_TABLE
#include "offsets.h"

static bool marks_equal(const struct lb_luajit *luajit,
			const struct lj_offsets *offsets)
{
	return luajit->gc64 == offsets->gc64 &&
	       luajit->g2disp == offsets->g2disp &&
	       luajit->g_cur_l == offsets->g_cur_l &&
	       luajit->g_vmstate == offsets->g_vmstate &&
	       luajit->cframe_size == offsets->cframe_size;
}

int lb_offsets_find(const struct lb_luajit *luajit,
		    struct lj_offsets *offsets_ret, const char **name_ret)
{
	const size_t n = sizeof(lj_offsets_table) / sizeof(lj_offsets_table[0]);

	for (size_t i = 0; i < n; i++) {
		const struct lj_offsets_entry *entry = &lj_offsets_table[i];

		if (!marks_equal(luajit, &entry->offsets))
			continue;
		*offsets_ret = entry->offsets;
		*name_ret = entry->name;
		return 0;
	}
	return -ENOENT;
}
