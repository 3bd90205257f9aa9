/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is there a LuaJIT VM in this file, and where? Decided by content: the VM's
 * assembler is one large FDE with a single row. Never by file name.
 */
#ifndef LB_LUAJIT_H
#define LB_LUAJIT_H

#include <stdint.h>

#include "elf.h"

/* Code range of the VM and what its machine code tells about the build. */
struct lb_luajit {
	uint64_t vm_vaddr;	 /* lj_vm_asm_begin */
	uint64_t vm_size;	 /* bytes, up to lj_vm_ffi_call */
	uint64_t ffi_call_vaddr; /* lj_vm_ffi_call; 0 when not found */
	uint64_t ffi_call_size;
	uint32_t cframe_size; /* CFA - SP in the VM */
	/* marks, decoded from the entry points */
	uint32_t gc64;
	uint32_t g2disp;
	uint32_t g_cur_l; /* LB_LUAJIT_NONE: LuaJIT 2.0, it has none */
	uint32_t g_vmstate;
	uint32_t static_dispatch; /* bytes behind dispatch */
	/* slots of the C frame, likewise */
	uint32_t cf_nres;
	uint32_t cf_l;
	uint32_t cf_pc;
	uint32_t cf_prev;
};

#define LB_LUAJIT_NONE UINT32_MAX

/**
 * lb_luajit_find() - look for a VM in one file
 * Return: 0, -ENODATA (no .eh_frame), -ENOENT (no VM in it), -EOPNOTSUPP (a VM,
 * but its entry code was not understood; *luajit_ret has the range).
 */
int lb_luajit_find(const struct lb_elf *elf, struct lb_luajit *luajit_ret);

/**
 * lb_luajit_decode() - marks and slots from the VM's code alone
 * @code: from the begin of the VM, @size bytes
 * @luajit: cframe_size is given; marks and slots are set on success only
 * Return: 0, -EOPNOTSUPP (not understood).
 */
int lb_luajit_decode(const uint8_t *code, uint64_t size,
		     struct lb_luajit *luajit);

#endif
