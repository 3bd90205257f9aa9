/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes whose garbage collector is measured: their VMs, as BPF wants to
 * know them, and the probes in them. The body of lb_gc_*() of lb.h.
 */
#ifndef LB_GC_H
#define LB_GC_H

#include "gcprobes.h"
#include "offsets.h"
#include "../bpf_c/lb_wire.h"

/* What is known of the collector of one file. */
struct lb_gc_file {
	uint64_t dev, ino, mtime_ns;
	bool has_vm;
	bool exact_phases;
	const char *missing; /* NULL: it can be measured */
	struct lb_luajit luajit;
	struct lj_offsets offsets;
	struct lb_probes probes;
};

/**
 * lb_gc_file_read() - VM, offsets and points of one file
 * Only -ENOMEM is a failure; else see @file->has_vm and @file->missing.
 */
int lb_gc_file_read(const struct lb_elf *elf, struct lb_gc_file *file);

#endif
