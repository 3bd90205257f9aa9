/* SPDX-License-Identifier: Apache-2.0 */
/* One process of a run. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "prove.h"
#include "subject.h"

/* Machine code areas of one VM; OpenResty's fork allows 40 MiB in 64 KiB. */
#define AREAS_MAX 4096

static int read_target(void *arg, uint64_t addr, void *buf, size_t size)
{
	return lb_proc_read(arg, addr, buf, size);
}

static bool can_be_walked(const struct lb_object *object)
{
	return !object->vm_err && !object->contradiction[0] && object->placed;
}

/* Index of the VM in entry.lj, 1 and up; 0 if it cannot be walked. */
static unsigned int vm_index(struct lb_subject *subject,
			     struct lb_object *object)
{
	struct lb_proc_entry *entry = &subject->entry;

	if (!object->has_vm)
		return 0;
	if (!can_be_walked(object)) {
		subject->vm_unknown = object;
		return 0;
	}
	for (unsigned int i = 0; i < entry->n_vms; i++)
		if (subject->vms[i] == object)
			return i + 1;
	if (entry->n_vms == LB_VMS_MAX)
		return 0;
	subject->vms[entry->n_vms] = object;
	entry->lj[entry->n_vms] = object->source.offsets;
	return ++entry->n_vms;
}

static void add_map(struct lb_subject *subject, struct lb_objects *objects,
		    const struct lb_proc_map *map)
{
	struct lb_subject_map *to = &subject->maps[subject->n_maps++];

	to->start = map->start;
	to->end = map->end;
	to->anon = map->kind == LB_MAP_ANON;
	if (map->kind != LB_MAP_FILE && map->kind != LB_MAP_VDSO)
		return;
	if (lb_objects_get(objects, subject->proc, map, &to->object))
		to->object = NULL;
	if (!to->object || !to->object->elf)
		return;
	if (map->kind == LB_MAP_VDSO) /* starts with its first PT_LOAD */
		lb_elf_bias(to->object->elf, map->start, 0, &to->bias);
	else if (lb_elf_bias(to->object->elf, map->start, map->off, &to->bias))
		to->object = NULL;
}

/* What BPF reads: a file without a table is there too, without rows. */
static void add_entry(struct lb_subject *subject,
		      const struct lb_subject_map *map)
{
	struct lb_proc_entry *entry = &subject->entry;

	if (map->anon)
		return;
	if (entry->n_mappings == LB_MAPPINGS_MAX) {
		subject->n_dropped++;
		return;
	}
	struct lb_mapping *to = &entry->mappings[entry->n_mappings++];

	to->start = map->start;
	to->end = map->end;
	if (!map->object)
		return;
	to->vm = vm_index(subject, map->object);
	if (!map->object->placed)
		return;
	const struct lb_unwind *unwind = map->object->unwind;
	uint64_t lo = map->bias + unwind->vaddr_lo;
	uint64_t hi = map->bias + unwind->vaddr_hi;

	/* rows cover [lo, hi) only */
	if (to->start < lo)
		to->start = lo;
	if (to->end > hi)
		to->end = hi;
	if (to->start >= to->end) {
		to->start = map->start;
		to->end = map->end;
		return;
	}
	to->bias = lo;
	to->block = map->object->block;
	to->has_rows = 1;
}

static void put_hints(struct lb_subject *subject)
{
	struct lb_proc_entry *entry = &subject->entry;
	size_t n = 0;

	for (size_t i = 0; i < subject->n_hints; i++) {
		for (unsigned int vm = 0; vm < entry->n_vms; vm++) {
			if (subject->vms[vm] != subject->hints[i].object)
				continue;
			entry->hints[n] = subject->hints[i].g_addr;
			entry->hints_vm[n++] = (__u8)vm;
		}
	}
}

bool lb_subject_hint(struct lb_subject *subject, unsigned int vm,
		     uint64_t g_addr)
{
	size_t i = 0;

	if (subject->entry.lj[vm].gc64)
		return false;
	while (i < subject->n_hints && subject->hints[i].g_addr != g_addr)
		i++;
	if (i < subject->n_hints || i == LB_G_HINTS)
		return false;
	subject->hints[i].object = subject->vms[vm];
	subject->hints[i].g_addr = g_addr;
	subject->n_hints++;
	put_hints(subject);
	return true;
}

static int build(struct lb_subject *subject, struct lb_objects *objects)
{
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(subject->proc, &maps);
	uint32_t generation = subject->entry.generation;

	free(subject->maps);
	subject->n_maps = 0;
	subject->n_dropped = 0;
	subject->vm_unknown = NULL;
	memset(subject->vms, 0, sizeof(subject->vms));
	memset(&subject->entry, 0, sizeof(subject->entry));
	subject->entry.generation = generation + 1;
	subject->maps = calloc(n ? n : 1, sizeof(*subject->maps));
	if (!subject->maps)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (maps[i].exec && maps[i].kind != LB_MAP_VSYSCALL)
			add_map(subject, objects, &maps[i]);
	for (size_t i = 0; i < subject->n_maps; i++)
		add_entry(subject, &subject->maps[i]);
	put_hints(subject);
	return 0;
}

/* 32-bit programs have no mapping above 4 GiB but the main file tells. */
static int check_class(const struct lb_subject *subject)
{
	_cleanup_fd_ int fd = -1;
	unsigned char ident[EI_NIDENT];
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(subject->proc, &maps);

	for (size_t i = 0; i < n; i++) {
		if (maps[i].kind != LB_MAP_FILE || !maps[i].exec)
			continue;
		if (lb_proc_read(subject->proc, maps[i].start - maps[i].off,
				 ident, sizeof(ident)))
			continue;
		if (memcmp(ident, ELFMAG, SELFMAG))
			continue;
		return ident[EI_CLASS] == ELFCLASS32 ? -EOPNOTSUPP : 0;
	}
	return 0;
}

/* Return: 1 (the entry has changed), 0, -ENOMEM. */
static int prove(struct lb_subject *subject, struct lb_objects *objects)
{
	int changed = lb_prove_all(subject);

	return changed == -EBADMSG ? lb_subject_refute(subject, objects)
				   : changed;
}

int lb_subject_refute(struct lb_subject *subject, struct lb_objects *objects)
{
	int err = build(subject, objects);

	subject->refuted = true;
	return err ? err : 1;
}

int lb_subject_new(struct lb_objects *objects, int pid,
		   struct lb_subject **subject_ret)
{
	struct lb_subject *subject = calloc(1, sizeof(*subject));

	if (!subject)
		return -ENOMEM;
	subject->pid = pid;
	int err = lb_proc_open(pid, &subject->proc);

	if (!err)
		err = check_class(subject);
	if (!err)
		err = build(subject, objects);
	if (!err)
		err = prove(subject, objects) < 0 ? -ENOMEM : 0;
	subject->refuted = false; /* nothing was sampled yet */
	if (!err)
		err = lb_names_new(read_target, subject->proc, &subject->names);
	if (err) {
		lb_subject_free(subject);
		return err;
	}
	*subject_ret = subject;
	return 0;
}

void lb_subject_free(struct lb_subject *subject)
{
	if (!subject)
		return;
	lb_names_free(subject->names);
	lb_proc_free(subject->proc);
	free(subject->areas);
	free(subject->protos);
	free(subject->maps);
	free(subject);
}

int lb_subject_refresh(struct lb_subject *subject, struct lb_objects *objects,
		       bool *changed_ret)
{
	bool changed;
	int err = lb_proc_refresh(subject->proc, &changed);

	if (err)
		return err;
	subject->stale = false;
	if (changed) {
		err = build(subject, objects);
		if (err)
			return err;
	}
	/* fields that nothing showed so far, and files that came */
	err = prove(subject, objects);
	if (err < 0)
		return err;
	changed |= err > 0;
	*changed_ret = changed;
	return 0;
}

const struct lb_subject_map *lb_subject_map_at(const struct lb_subject *subject,
					       uint64_t addr)
{
	size_t lo = 0, hi = subject->n_maps;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (subject->maps[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < subject->n_maps && subject->maps[lo].start <= addr)
		return &subject->maps[lo];
	return NULL;
}

/* Index of the first area that ends behind @pc. */
static size_t area_index(const struct lb_subject *subject, uint64_t pc)
{
	size_t lo = 0, hi = subject->n_areas;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (subject->areas[mid].end <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool in_areas(const struct lb_subject *subject, uint64_t pc)
{
	size_t i = area_index(subject, pc);

	return i < subject->n_areas && subject->areas[i].start <= pc;
}

/* Areas stay known after a flush has freed them: samples come later. */
static int add_area(struct lb_subject *subject, uint64_t start, uint64_t size)
{
	if (in_areas(subject, start))
		return 0;
	size_t i = area_index(subject, start);
	void *bigger = realloc(subject->areas, (subject->n_areas + 1) *
						       sizeof(*subject->areas));

	if (!bigger)
		return -ENOMEM;
	subject->areas = bigger;
	memmove(subject->areas + i + 1, subject->areas + i,
		(subject->n_areas - i) * sizeof(*subject->areas));
	subject->areas[i].start = start;
	subject->areas[i].end = start + size;
	subject->n_areas++;
	return 0;
}

bool lb_subject_in_mcode(struct lb_subject *subject, uint64_t g_addr,
			 unsigned int vm, uint64_t pc)
{
	const struct lj_offsets *lj = &subject->entry.lj[vm % LB_VMS_MAX];
	uint64_t head[2], j = g_addr + lj->g_to_j;

	if (in_areas(subject, pc))
		return true;
	/* jit_State holds the newest area and its size; each area begins with
	 * the address and the size of the one before (MCLink) */
	if (lb_proc_read(subject->proc, j + lj->j_mcarea, &head[0], 8) ||
	    lb_proc_read(subject->proc, j + lj->j_szmcarea, &head[1], 8))
		return false;
	for (int i = 0; i < AREAS_MAX && head[0]; i++) {
		uint64_t start = head[0];

		if (head[1] > 1UL << 31 || add_area(subject, start, head[1]) ||
		    lb_proc_read(subject->proc, start, head, sizeof(head)))
			break;
	}
	return in_areas(subject, pc);
}

/* Slot of @addr in the open table of prototypes: its own or an empty one. */
static size_t proto_slot(const struct lb_subject *subject, uint64_t addr)
{
	size_t mask = subject->cap_protos - 1;
	size_t i = (addr * 0x9e3779b97f4a7c15ULL) >> 32 & mask;

	while (subject->protos[i].addr && subject->protos[i].addr != addr)
		i = (i + 1) & mask;
	return i;
}

static int protos_grow(struct lb_subject *subject)
{
	struct lb_subject bigger = *subject;

	bigger.cap_protos = subject->cap_protos ? subject->cap_protos * 2 : 256;
	bigger.protos = calloc(bigger.cap_protos, sizeof(*bigger.protos));
	if (!bigger.protos)
		return -ENOMEM;
	for (size_t i = 0; i < subject->cap_protos; i++)
		if (subject->protos[i].addr)
			bigger.protos[proto_slot(&bigger,
						 subject->protos[i].addr)] =
				subject->protos[i];
	free(subject->protos);
	subject->protos = bigger.protos;
	subject->cap_protos = bigger.cap_protos;
	return 0;
}

int lb_subject_set_proto(struct lb_subject *subject, uint64_t addr, uint32_t id)
{
	if (subject->n_protos * 2 >= subject->cap_protos) {
		int err = protos_grow(subject);

		if (err)
			return err;
	}
	size_t i = proto_slot(subject, addr);

	if (!subject->protos[i].addr)
		subject->n_protos++;
	subject->protos[i].addr = addr;
	subject->protos[i].id = id;
	return 0;
}

uint32_t lb_subject_proto(const struct lb_subject *subject, uint64_t addr)
{
	if (!subject->cap_protos)
		return 0;
	return subject->protos[proto_slot(subject, addr)].id;
}
