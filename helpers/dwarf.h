/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of structs and values of enums, from the debug info (DWARF) of a file.
 * Uses libdw, which checks the bytes; used by the command lj-offsets only.
 */
#ifndef LB_DWARF_H
#define LB_DWARF_H

#include <stdbool.h>
#include <stdint.h>

struct lb_dwarf;

/**
 * lb_dwarf_open() - collect the types and enum values of a file
 * @path: ELF file (executable, library, object, separate debug file) or static
 * archive
 * @debug_path: separate debug file of @path, or NULL: the one in the file, else
 * that found by build ID or .gnu_debuglink
 * @marker: only units that define this member count ("lua_State.glref"): the
 * file may hold other code, with structs of equal names
 * Return: 0, -ENOEXEC (no ELF file), -ENODATA (no debug info), -ENOENT (no unit
 * has @marker), -E2BIG, -ENOMEM, or why it cannot be opened.
 */
int lb_dwarf_open(const char *path, const char *debug_path, const char *marker,
		  struct lb_dwarf **dwarf_ret);
void lb_dwarf_free(struct lb_dwarf *dwarf);

/**
 * lb_dwarf_member() - offset and size of a member
 * @path: "type" (its size, offset 0) or "type.member.member"; a member of an
 * anonymous struct or union counts as one of its parent's
 * @off_ret, @size_ret: bytes; a size that is not known (flexible array) is 0
 * Return: 0, -ENOENT, -EEXIST (two units disagree), -EBADMSG, -EOPNOTSUPP
 * (bit-field, location that is no constant).
 */
int lb_dwarf_member(const struct lb_dwarf *dwarf, const char *path,
		    uint64_t *off_ret, uint64_t *size_ret);

/**
 * lb_dwarf_enum() - value of an enumerator
 * Return: 0, -ENOENT, -EEXIST, -EBADMSG.
 */
int lb_dwarf_enum(const struct lb_dwarf *dwarf, const char *name,
		  int64_t *value_ret);

/* The VM's assembler in a file whose code is not loaded. */
struct lb_dwarf_vm {
	uint32_t cframe_size; /* CFA - SP */
	const uint8_t *code; /* NULL: not in the file; else as long as @dwarf */
	uint64_t size;	     /* bytes */
};

/**
 * lb_dwarf_vm() - the VM by .debug_frame, for debug files, objects, archives
 * May be called once.
 * Return: 0, -ENOENT.
 */
int lb_dwarf_vm(struct lb_dwarf *dwarf, struct lb_dwarf_vm *vm_ret);

#endif
