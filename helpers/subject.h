/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process of a run: its mappings bound to objects, the entry that BPF
 * reads, its VMs, its names.
 */
#ifndef LB_SUBJECT_H
#define LB_SUBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "names.h"
#include "object.h"
#include "proc.h"
#include "../bpf_c/lb_wire.h"

#define LB_PENDING_MAX 64

struct lb_subject_map {
	uint64_t start;
	uint64_t end;
	uint64_t bias;
	struct lb_object *object; /* NULL: the file cannot be used */
	bool anon;		  /* no file: mcode, other JITs */
};

/* The proof of the offsets of one file, see helpers/prove.h. */
struct lb_subject_proof {
	const struct lb_object *object; /* NULL: not used */
	bool held;			/* on a VM of this process */
	uint32_t n_tries;
	uint64_t tried_ns;
};

struct lb_subject {
	int pid;
	struct lb_proc *proc;
	struct lb_subject_map *maps; /* executable ones, sorted */
	size_t n_maps;
	uint32_t n_dropped;		   /* mappings over LB_MAPPINGS_MAX */
	struct lb_object *vms[LB_VMS_MAX]; /* in the order of entry.lj */
	struct lb_subject_proof proofs[LB_VMS_MAX];
	/* VMs with 32-bit references, for entry.hints */
	struct {
		const struct lb_object *object;
		uint64_t g_addr;
	} hints[LB_G_HINTS];
	size_t n_hints;
	/* a VM that was taken turned out to have other offsets: of what was
	 * sampled, Lua frames are not true */
	bool refuted;
	/* a VM that cannot be walked, if there is one */
	struct lb_object *vm_unknown;
	struct lb_proc_entry entry;
	struct lb_names *names;
	bool gone;
	bool stale;		 /* mappings should be read again */
	uint64_t young_until_ns; /* it is still being loaded */
	uint64_t refreshed_ns;
	/* machine code areas of its VMs, see lb_subject_in_mcode() */
	struct {
		uint64_t start;
		uint64_t end;
	} * areas;
	size_t n_areas;
	/* prototype address -> id of the one that is there now */
	struct {
		uint64_t addr;
		uint32_t id;
	} * protos;
	size_t n_protos, cap_protos;
	/* last walk of a VM's globals for names */
	uint64_t scanned_g, scanned_ns;
	uint32_t n_scans;
	/* VMs whose walk is still to be made */
	struct {
		uint64_t g_addr;
		uint32_t vm;
	} pending[LB_PENDING_MAX];
	size_t n_pending;
	struct lb_subject *next;
};

/**
 * lb_subject_new() - look at a process
 * Return: 0, -ESRCH, -EACCES, -EOPNOTSUPP (32-bit), -ENOMEM. A process without
 * a VM is no failure: see entry.n_vms and vm_unknown.
 */
int lb_subject_new(struct lb_objects *objects, int pid,
		   struct lb_subject **subject_ret);
void lb_subject_free(struct lb_subject *subject);
/**
 * lb_subject_refresh() - mappings again
 * *changed_ret: the entry has changed. Offsets of a file that came are proven;
 * see refuted for those that are not.
 */
int lb_subject_refresh(struct lb_subject *subject, struct lb_objects *objects,
		       bool *changed_ret);
/**
 * lb_subject_refute() - lb_prove_at() found a contradiction
 * The entry is made anew, without the VMs of that file. Return: 1, -ENOMEM.
 */
int lb_subject_refute(struct lb_subject *subject, struct lb_objects *objects);
/** The executable mapping that contains @addr, or NULL. */
const struct lb_subject_map *lb_subject_map_at(const struct lb_subject *subject,
					       uint64_t addr);
/**
 * lb_subject_in_mcode() - is @pc in a machine code area of the VM @g_addr?
 * Areas are read from the VM when @pc is in none that is known.
 */
bool lb_subject_in_mcode(struct lb_subject *subject, uint64_t g_addr,
			 unsigned int vm, uint64_t pc);
/** The prototype at @addr is @id from now on. Return: 0, -ENOMEM. */
int lb_subject_set_proto(struct lb_subject *subject, uint64_t addr,
			 uint32_t id);
/** Its id, 0 if no record came for it. */
uint32_t lb_subject_proto(const struct lb_subject *subject, uint64_t addr);

/**
 * lb_subject_hint() - tell BPF of a VM that registers do not show in traces
 * @vm: index in entry.lj
 * Return: is the entry another one now?
 */
bool lb_subject_hint(struct lb_subject *subject, unsigned int vm,
		     uint64_t g_addr);

#endif
