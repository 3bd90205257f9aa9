/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LuaJIT VMs of a process, searched for in its memory: also those of
 * threads that run no Lua now, whose stacks show nothing of a VM.
 */
#ifndef LB_GSEARCH_H
#define LB_GSEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "proc.h"
#include "../bpf_c/lj_offsets.h"

#define LB_GSEARCH_MAX 64 /* VMs of one process */

struct lb_gsearch {
	uint64_t g_addrs[LB_GSEARCH_MAX]; /* of their global_States, sorted */
	size_t n;
	uint64_t searched_bytes;
	bool whole; /* false: a bound was hit, there may be more */
};

/**
 * lb_gsearch_run() - search private writable memory that is not of files
 * @off: l_size, l_gct, l_glref, g_mainthref, g2disp and static_dispatch must be
 * known
 * @vm_addr: of the VM's code, @vm_size bytes of it
 *
 * Of several LuaJITs in a process, only VMs that run this one's code count: the
 * dispatch table says which.
 *
 * Only pages that are in memory are read, so that nothing is swapped in or made
 * for our sake; 1 GiB at most.
 * Return: 0 (also when none was found), -EINVAL (an offset is not known), what
 * opening /proc/PID/pagemap gave, -ENOMEM.
 */
int lb_gsearch_run(const struct lb_proc *proc, const struct lj_offsets *off,
		   uint64_t vm_addr, uint64_t vm_size,
		   struct lb_gsearch *search_ret);

/**
 * lb_gsearch_chunk() - candidates in one piece of memory
 * @addr: of @data in the target, a multiple of 8
 * @g_addrs_ret: room for @max. A candidate is the address of a global_State
 * that lies right behind something that refers to it as a lua_State does; the
 * caller has to verify it.
 * Return: how many.
 */
size_t lb_gsearch_chunk(const struct lj_offsets *off, uint64_t addr,
			const uint8_t *data, size_t size, uint64_t *g_addrs_ret,
			size_t max);

#endif
