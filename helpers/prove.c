/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of offsets for the VMs of one process. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proof.h"
#include "prove.h"
#include "vms.h"

#define GS_MAX	  8	       /* VMs of one build that are looked at */
#define TRIES_MAX 40	       /* looks of one process for open fields */
#define TRY_NS	  250000000ULL /* and at most this often */

static int read_target(void *arg, uint64_t addr, void *buf, size_t size)
{
	return lb_proc_read(arg, addr, buf, size);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* What is known of @object in this process; NULL: no room. */
static struct lb_subject_proof *proof_of(struct lb_subject *subject,
					 const struct lb_object *object)
{
	for (size_t i = 0; i < LB_VMS_MAX; i++) {
		struct lb_subject_proof *proof = &subject->proofs[i];

		if (proof->object == object)
			return proof;
		if (!proof->object) {
			proof->object = object;
			return proof;
		}
	}
	return NULL;
}

static bool has_open(const struct lb_object *object)
{
	return lb_offsets_count(&object->source, LB_FROM_LAYOUT) != 0;
}

static void explain(struct lb_object *object, const struct lb_proof *proof)
{
	char text[160];

	lb_proof_explain(proof, text, sizeof(text));
	snprintf(object->contradiction, sizeof(object->contradiction),
		 "the VM at 0x%llx contradicts its offsets: %s",
		 (unsigned long long)proof->g_addr, text);
}

/* Return: as lb_proof_run(). */
static int look(struct lb_subject *subject, struct lb_object *object,
		uint64_t g_addr, struct lb_proof *proof)
{
	struct lb_offsets_source source = object->source;
	int err = lb_proof_run(read_target, subject->proc, g_addr, &source,
			       proof);

	if (!err)
		object->source = source;
	return err;
}

/*
 * One VM that holds is enough: the others have the same code. One that is being
 * made or closed may fail beside it.
 */
static int look_at(struct lb_subject *subject, unsigned int vm,
		   struct lb_subject_proof *known, const uint64_t *g_addrs,
		   size_t n, bool *hinted)
{
	struct lb_object *object = subject->vms[vm];
	struct lb_proof proof, failed = { .g_addr = 0 };
	bool has_failed = false;

	known->tried_ns = now_ns();
	known->n_tries++;
	for (size_t i = 0; i < n && i < GS_MAX; i++) {
		int err = look(subject, object, g_addrs[i], &proof);

		if (err == -EBADMSG) {
			has_failed = true;
			failed = proof;
		} else if (!err) {
			known->held = true;
			*hinted |= lb_subject_hint(subject, vm, g_addrs[i]);
			if (!has_open(object) && object->source.offsets.gc64)
				break;
		}
	}
	if (known->held || !has_failed)
		return 0;
	explain(object, &failed);
	return -EBADMSG;
}

static uint64_t vm_addr_of(const struct lb_subject *subject,
			   const struct lb_object *object)
{
	for (size_t i = 0; i < subject->n_maps; i++) {
		const struct lb_subject_map *map = &subject->maps[i];
		uint64_t addr = map->bias + object->luajit.vm_vaddr;

		if (map->object == object && addr >= map->start &&
		    addr < map->end)
			return addr;
	}
	return 0;
}

/* Did that change what BPF reads? */
static int put(struct lb_subject *subject, unsigned int vm)
{
	struct lj_offsets *to = &subject->entry.lj[vm];
	const struct lj_offsets *from = &subject->vms[vm]->source.offsets;

	if (!memcmp(to, from, sizeof(*to)))
		return 0;
	*to = *from;
	return 1;
}

static bool is_due(const struct lb_subject_proof *known,
		   const struct lb_object *object)
{
	if (known->held && !has_open(object))
		return false;
	return !known->n_tries || (known->n_tries < TRIES_MAX &&
				   now_ns() - known->tried_ns >= TRY_NS);
}

int lb_prove_all(struct lb_subject *subject)
{
	int changed = 0;

	for (unsigned int i = 0; i < subject->entry.n_vms; i++) {
		struct lb_object *object = subject->vms[i];
		struct lb_subject_proof *known = proof_of(subject, object);
		uint64_t vm_addr = vm_addr_of(subject, object);
		struct lb_vms vms;

		if (!known || !vm_addr || !is_due(known, object) ||
		    lb_vms_find(subject->proc, vm_addr, object->luajit.vm_size,
				&object->source.offsets, &vms))
			continue;
		bool hinted = false;

		if (look_at(subject, i, known, vms.g_addrs, vms.n, &hinted))
			return -EBADMSG;
		changed |= put(subject, i) | hinted;
	}
	return changed;
}

int lb_prove_at(struct lb_subject *subject, unsigned int vm, uint64_t g_addr)
{
	struct lb_object *object;
	struct lb_subject_proof *known;

	if (vm >= subject->entry.n_vms)
		return 0;
	object = subject->vms[vm];
	known = proof_of(subject, object);
	/* the first VM that is met at once, whatever was looked at before */
	if (!known || (known->held && !is_due(known, object)))
		return 0;
	bool hinted = false;

	if (look_at(subject, vm, known, &g_addr, 1, &hinted))
		return -EBADMSG;
	return put(subject, vm) | hinted;
}

bool lb_prove_is_open(const struct lb_subject *subject, unsigned int vm)
{
	return vm < subject->entry.n_vms && has_open(subject->vms[vm]);
}
