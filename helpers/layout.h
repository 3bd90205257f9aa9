/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of LuaJIT's structs that all known builds of a pointer mode share:
 * candidates for what neither table nor machine code shows. A build of tomorrow
 * may differ, so a candidate counts only when a live process has proven it
 * (helpers/proof.h).
 */
#ifndef LB_LAYOUT_H
#define LB_LAYOUT_H

#include "offsets.h"

/** lb_layout_add() - fields from LB_FROM_NONE become LB_FROM_LAYOUT */
void lb_layout_add(struct lb_offsets_source *source);

/**
 * lb_layout_snapshots() - one of the layouts of snapshots, 0 and up
 * Sets fields sn_*, tr_nsnap, tr_nsnapmap and tr_linktype of @offsets.
 * Return: false behind the last.
 */
bool lb_layout_snapshots(size_t index, struct lj_offsets *offsets);

#endif
