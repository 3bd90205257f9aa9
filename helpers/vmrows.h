/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind rules inside the LuaJIT VM, whose FDE has one row where the code has
 * several states: entries, exits, the way out of the VM, the exit handler of
 * traces, calls of C functions through the FFI.
 */
#ifndef LB_VMROWS_H
#define LB_VMROWS_H

#include "ehframe.h"
#include "luajit.h"

/**
 * lb_vmrows_vm() - rules of the VM's code, ascending, the first at vm_vaddr
 * A state that is not recognised gets LB_RULE_VM.
 * Return: 0, what @rule_fn returned, -ENODATA (the code is not in the file),
 * -ENOMEM.
 */
int lb_vmrows_vm(const struct lb_elf *elf, const struct lb_luajit *luajit,
		 lb_rule_fn rule_fn, void *arg);

/**
 * lb_vmrows_ffi_call() - rules of lj_vm_ffi_call, the first at ffi_call_vaddr
 * Its FDE is right behind the prologue and wrong elsewhere.
 * Return: 0, what @rule_fn returned, -ENODATA (no such function, or not the
 * code that is known).
 */
int lb_vmrows_ffi_call(const struct lb_elf *elf, const struct lb_luajit *luajit,
		       lb_rule_fn rule_fn, void *arg);

#endif
