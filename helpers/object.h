/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files of a run: each opened once, shared by build ID, with all that is
 * made from it (unwind table, VM, offsets, symbols); and the place of their
 * rows in the tables that BPF reads.
 */
#ifndef LB_OBJECT_H
#define LB_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "elf.h"
#include "luajit.h"
#include "offsets.h"
#include "proc.h"
#include "sym.h"
#include "unwind.h"

struct lb_object {
	char *name; /* last part of the path */
	struct lb_elf *elf;
	struct lb_unwind *unwind; /* NULL: none, see unwind_err */
	int unwind_err;
	/* the VM in this file, if any */
	bool has_vm;
	/* 0; -EOPNOTSUPP: its entry code is not understood; -ENOENT: its
	 * offsets are not known, see lb_offsets_explain() */
	int vm_err;
	struct lb_luajit luajit;
	struct lb_offsets_source source;
	/* what a live process said against them; "": nothing */
	char contradiction[256];
	/* where its blocks begin in the table of all */
	bool placed;
	uint32_t block;
	struct lb_sym *sym; /* loaded when first asked for */
};

/* All rows of a run; what is new since the last upload is at the end. */
struct lb_tables {
	struct lb_row *rows;
	struct lb_rule *rules;
	uint32_t *blocks;
	uint32_t n_rows, n_rules, n_blocks;
	uint32_t max_rows, max_rules, max_blocks; /* 0: not yet bounded */
};

struct lb_objects;

int lb_objects_new(struct lb_objects **objects_ret);
void lb_objects_free(struct lb_objects *objects);
/**
 * lb_objects_get() - the object behind a mapping
 * Opened, parsed and placed when new. A file that cannot be parsed gives an
 * object without a table (unwind_err says why); it is reported once.
 * Return: 0, -ENOENT/-ESTALE/-EACCES (file cannot be opened), -ENOMEM.
 */
int lb_objects_get(struct lb_objects *objects, const struct lb_proc *proc,
		   const struct lb_proc_map *map,
		   struct lb_object **object_ret);
/**
 * lb_objects_open() - the object of a file by its path, without a process
 * Return: 0, what open gave, -EISDIR (no regular file), what lb_elf_open_fd()
 * gave, -ENOMEM.
 */
int lb_objects_open(struct lb_objects *objects, const char *path,
		    struct lb_object **object_ret);
/** Tables of all objects; valid until the next lb_objects_get(). */
struct lb_tables *lb_objects_tables(struct lb_objects *objects);
/** Number of objects, and each of them. */
size_t lb_objects_count(const struct lb_objects *objects);
struct lb_object *lb_objects_at(const struct lb_objects *objects, size_t i);
/** Symbols of @object, loaded on first use. */
struct lb_sym *lb_object_sym(struct lb_object *object,
			     const struct lb_proc *proc);

#endif
