/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LuaJIT VMs of a process, found without its threads: each has a dispatch
 * table beside its global_State, some 200 addresses of the VM's code in a row.
 */
#ifndef LB_VMS_H
#define LB_VMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc.h"
#include "../bpf_c/lj_offsets.h"

#define LB_VMS_FOUND_MAX 256

struct lb_vms {
	uint64_t g_addrs[LB_VMS_FOUND_MAX]; /* of global_State, ascending */
	size_t n;
	uint64_t n_bytes; /* of memory that was looked at */
	bool cut;	  /* a bound was hit: there may be more */
};

/**
 * lb_vms_find() - VMs that run the code at [@vm_addr, @vm_addr + @vm_size)
 *
 * Looks at memory that the process can write, that belongs to no file, and that
 * is resident; at most at 256 MiB of it. The memory of a VM that was closed may
 * still look like one: ask helpers/proof.h.
 * Return: 0, -EINVAL (offsets without g2disp), -EACCES, -ESRCH, -ENOMEM.
 */
int lb_vms_find(const struct lb_proc *proc, uint64_t vm_addr, uint64_t vm_size,
		const struct lj_offsets *offsets, struct lb_vms *vms_ret);

#endif
