/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a process or a file, for people who want to know why a tool works
 * or does not. It looks with the eyes of the tools: the same subject and
 * objects, the same words of refusal.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "facts.h"
#include "gstate.h"
#include "kernel.h"
#include "proof.h"
#include "puc.h"
#include "refusal.h"
#include "subject.h"
#include "vmfacts.h"
#include "vms.h"

#define LIVE_BUDGET 4000000 /* reads for the VMs of one process */
#define PATH_SIZE   4096

struct puc_seen { /* lb_puc_find() of an object */
	const struct lb_object *object;
	int err;
	struct lb_puc puc;
};

struct lb_doctor {
	struct lb_objects *objects;
	struct lb_facts facts;
	uint32_t budget; /* of LIVE_BUDGET */
	size_t n_processes, n_vms, n_luas, n_lives, n_troubles; /* items */
	struct puc_seen *seen;
	size_t n_seen;
	char error[512];
};

/* A file of a process, in one place. */
struct place {
	struct lb_object *object;
	const struct lb_proc_map *map;
	uint64_t bias;
};

__attribute__((format(printf, 3, 4))) static int
fail(struct lb_doctor *doctor, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(doctor->error, sizeof(doctor->error), format, args);
	va_end(args);
	return err;
}

int lb_doctor_new(struct lb_doctor **doctor_ret)
{
	struct lb_doctor *doctor = calloc(1, sizeof(*doctor));

	if (!doctor)
		return -ENOMEM;
	if (lb_objects_new(&doctor->objects)) {
		lb_doctor_free(doctor);
		return -ENOMEM;
	}
	*doctor_ret = doctor;
	return 0;
}

void lb_doctor_free(struct lb_doctor *doctor)
{
	if (!doctor)
		return;
	if (doctor->objects)
		lb_objects_free(doctor->objects);
	lb_facts_fini(&doctor->facts);
	free(doctor->seen);
	free(doctor);
}

const char *lb_doctor_error(const struct lb_doctor *doctor)
{
	return doctor->error;
}

int lb_doctor_fact(const struct lb_doctor *doctor, size_t i,
		   struct lb_fact *fact_ret)
{
	if (i >= doctor->facts.n)
		return -ENOENT;
	*fact_ret = doctor->facts.all[i];
	return 0;
}

/* ---- PUC Lua ---- */

/* What lb_puc_find() says of an object, looked for once. */
static const struct puc_seen *look_for_puc(struct lb_doctor *doctor,
					   const struct lb_object *object)
{
	for (size_t i = 0; i < doctor->n_seen; i++)
		if (doctor->seen[i].object == object)
			return &doctor->seen[i];
	struct puc_seen *bigger = realloc(
		doctor->seen, (doctor->n_seen + 1) * sizeof(*doctor->seen));

	if (!bigger)
		return NULL;
	doctor->seen = bigger;
	struct puc_seen *seen = &doctor->seen[doctor->n_seen++];

	seen->object = object;
	seen->err = lb_puc_find(object->elf, &seen->puc);
	return seen;
}

/* Group `lua`, if there is another Lua in the file. */
static bool add_lua(struct lb_doctor *doctor, const struct lb_object *object,
		    const char *path, int process)
{
	struct lb_facts *facts = &doctor->facts;
	const struct puc_seen *seen;

	if (object->has_vm || !object->elf)
		return false;
	seen = look_for_puc(doctor, object);
	if (!seen || seen->err == -ENOENT)
		return false;
	size_t item = doctor->n_luas++;

	if (process >= 0)
		lb_facts_number(facts, "lua", item, "process",
				(uint64_t)process, NULL);
	lb_facts_text(facts, "lua", item, "file", "%s", path);
	if (seen->err) {
		lb_facts_text(facts, "lua", item, "kind",
			      "LuaJIT, VM not recognised");
		return true;
	}
	lb_facts_text(facts, "lua", item, "kind", "PUC Lua");
	lb_facts_text(facts, "lua", item, "version", "%s", seen->puc.version);
	lb_facts_text(facts, "lua", item, "found_by", "%s",
		      !seen->puc.by_text       ? "functions"
		      : seen->puc.by_functions ? "functions, text"
					       : "text");
	return true;
}

/* ---- VMs at work ---- */

static int read_target(void *arg, uint64_t addr, void *buf, size_t size)
{
	return lb_proc_read(arg, addr, buf, size);
}

static void add_known(struct lb_facts *facts, size_t item, const char *key,
		      uint64_t number)
{
	if (number != LB_GSTATE_UNKNOWN)
		lb_facts_number(facts, "live", item, key, number, NULL);
}

static void add_gstate(struct lb_facts *facts, size_t item,
		       const struct lb_gstate *gstate)
{
	static const char *const jit[] = { "not known", "off", "on" };

	add_known(facts, item, "g_addr", gstate->g_addr);
	add_known(facts, item, "main_l_addr", gstate->main_l_addr);
	add_known(facts, item, "threads", gstate->n_threads);
	add_known(facts, item, "objects", gstate->n_objects);
	lb_facts_flag(facts, "live", item, "threads_exact",
		      gstate->n_threads_exact);
	add_known(facts, item, "gc_total_bytes", gstate->gc_total_bytes);
	add_known(facts, item, "gc_threshold_bytes",
		  gstate->gc_threshold_bytes);
	add_known(facts, item, "gc_estimate_bytes", gstate->gc_estimate_bytes);
	if (gstate->gc_phase != LB_GSTATE_UNKNOWN)
		lb_facts_text(facts, "live", item, "gc_phase", "%s",
			      lb_gstate_phase(gstate->gc_phase));
	lb_facts_text(facts, "live", item, "jit", "%s", jit[gstate->jit]);
	add_known(facts, item, "traces", gstate->n_traces);
	add_known(facts, item, "mcode_areas", gstate->n_mcode_areas);
	add_known(facts, item, "mcode_bytes", gstate->mcode_bytes);
}

/* Do the offsets hold in this VM? Looked at once more, for the record. */
static void add_proof(struct lb_facts *facts, size_t item, uint64_t g_addr,
		      const struct lb_subject *subject,
		      const struct lb_object *object)
{
	struct lb_offsets_source source = object->source;
	struct lb_proof proof;
	size_t n[LB_PROOF_FAILED + 1] = { 0 };
	char text[256];
	int err = lb_proof_run(read_target, subject->proc, g_addr, &source,
			       &proof);

	if (err && err != -EBADMSG)
		return;
	for (int i = 0; i < LB_CHECK_MAX; i++)
		if (proof.states[i] <= LB_PROOF_FAILED)
			n[proof.states[i]]++;
	lb_facts_number(facts, "live", item, "checks_held", n[LB_PROOF_HELD],
			NULL);
	lb_facts_number(facts, "live", item, "checks_unseen",
			n[LB_PROOF_UNSEEN], NULL);
	if (!err)
		return;
	lb_proof_explain(&proof, text, sizeof(text));
	lb_facts_text(facts, "live", item, "contradiction", "%s", text);
}

/* Group `live`: the VMs that run the code of one file of a process. */
static void add_lives(struct lb_doctor *doctor,
		      const struct lb_subject *subject,
		      const struct place *place, size_t vm)
{
	const struct lb_object *object = place->object;
	const struct lb_luajit *luajit = &object->luajit;
	struct lb_facts *facts = &doctor->facts;
	struct lb_vms vms;
	int err = lb_vms_find(subject->proc, place->bias + luajit->vm_vaddr,
			      luajit->vm_size, &object->source.offsets, &vms);

	if (err) {
		lb_facts_text(facts, "vm", vm, "search", "%s", strerror(-err));
		return;
	}
	lb_facts_text(facts, "vm", vm, "search", "%s",
		      vms.cut ? "cut short" : "whole");
	lb_facts_number(facts, "vm", vm, "searched_bytes", vms.n_bytes, NULL);
	for (size_t i = 0; i < vms.n; i++) {
		struct lb_target target = { .read = read_target,
					    .read_arg = subject->proc,
					    .off = &object->source.offsets,
					    .budget = doctor->budget };
		struct lb_gstate gstate;

		err = lb_gstate_read(&target, vms.g_addrs[i], &gstate);
		doctor->budget = target.budget;
		if (err && err != -E2BIG)
			continue; /* it ended, now or before */
		lb_facts_number(facts, "live", doctor->n_lives, "vm", vm, NULL);
		add_gstate(facts, doctor->n_lives, &gstate);
		add_proof(facts, doctor->n_lives++, vms.g_addrs[i], subject,
			  object);
	}
}

/* ---- processes ---- */

/* Each file of a process once for each place it is mapped at. */
static size_t places_of(const struct lb_subject *subject, struct place *places)
{
	size_t n = 0;

	for (size_t i = 0; i < subject->n_maps; i++) {
		const struct lb_subject_map *map = &subject->maps[i];
		size_t j = 0;

		if (map->anon || !map->object)
			continue;
		while (j < n && (places[j].object != map->object ||
				 places[j].bias != map->bias))
			j++;
		if (j < n)
			continue;
		places[n].object = map->object;
		places[n].bias = map->bias;
		places[n++].map = lb_proc_map_at(subject->proc, map->start);
	}
	return n;
}

static bool can_be_walked(const struct lb_subject *subject,
			  const struct lb_object *object)
{
	for (unsigned int i = 0; i < subject->entry.n_vms; i++)
		if (subject->vms[i] == object)
			return true;
	return false;
}

static const char *path_of(const struct place *place)
{
	return place->map ? place->map->path : place->object->name;
}

static void add_vm(struct lb_doctor *doctor, const struct lb_subject *subject,
		   const struct place *place, size_t process, bool brief)
{
	const struct lb_object *object = place->object;
	struct lb_facts *facts = &doctor->facts;
	size_t item = doctor->n_vms++;
	bool usable = can_be_walked(subject, object);
	char why[384];

	lb_facts_number(facts, "vm", item, "process", process, NULL);
	lb_facts_text(facts, "vm", item, "file", "%s", path_of(place));
	lb_facts_flag(facts, "vm", item, "deleted",
		      place->map && place->map->deleted);
	lb_facts_flag(facts, "vm", item, "usable", usable);
	if (!usable) {
		lb_refusal_vm(object, why, sizeof(why));
		lb_facts_text(facts, "vm", item, "refusal", "%s", why);
	}
	if (brief) {
		lb_vmfacts_brief(facts, item, object);
		return;
	}
	lb_facts_number(facts, "vm", item, "vm_addr",
			place->bias + object->luajit.vm_vaddr, NULL);
	lb_vmfacts_all(facts, item, object, subject->proc);
	if (!object->vm_err)
		add_lives(doctor, subject, place, item);
}

static void add_trouble(struct lb_doctor *doctor, const struct place *place)
{
	const struct lb_object *object = place->object;
	uint64_t n_bad = object->unwind ? object->unwind->n_bad_records : 0;
	size_t item = doctor->n_troubles;

	if (!object->unwind_err && !n_bad)
		return;
	doctor->n_troubles++;
	lb_facts_number(&doctor->facts, "trouble", item, "process",
			doctor->n_processes, NULL);
	lb_facts_text(&doctor->facts, "trouble", item, "file", "%s",
		      path_of(place));
	if (object->unwind_err)
		lb_facts_text(&doctor->facts, "trouble", item, "reason", "%s",
			      lb_vmfacts_unwind_text(object));
	else
		lb_facts_text(&doctor->facts, "trouble", item, "reason",
			      "%llu malformed records in .eh_frame",
			      (unsigned long long)n_bad);
}

/* The target of a symbolic link below /proc/PID; "" when it cannot be read. */
static void read_link(int pid, const char *name, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	ssize_t len = readlink(path, text, size - 1);

	text[len > 0 ? len : 0] = 0;
}

static bool same_namespace(int pid, const char *name)
{
	char ours[64], its[64];

	read_link(getpid(), name, ours, sizeof(ours));
	read_link(pid, name, its, sizeof(its));
	return !strcmp(ours, its);
}

static size_t count_threads(int pid)
{
	char path[64];
	struct dirent *entry;
	size_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static void add_process(struct lb_doctor *doctor,
			const struct lb_subject *subject, bool brief)
{
	struct lb_facts *facts = &doctor->facts;
	size_t item = doctor->n_processes;
	int pid = subject->pid;
	char text[PATH_SIZE] = "";

	lb_facts_number(facts, "process", item, "pid", (uint64_t)pid, NULL);
	lb_proc_comm(pid, text);
	lb_facts_text(facts, "process", item, "comm", "%s", text);
	lb_facts_flag(facts, "process", item, "usable", subject->entry.n_vms);
	if (!subject->entry.n_vms) {
		if (lb_refusal_text(subject, text, sizeof(text)) == -ENOENT)
			lb_refusal_other(subject, text, sizeof(text));
		lb_facts_text(facts, "process", item, "refusal", "%s", text);
	}
	if (brief)
		return;
	read_link(pid, "exe", text, sizeof(text));
	lb_facts_text(facts, "process", item, "executable", "%s", text);
	lb_facts_number(facts, "process", item, "threads", count_threads(pid),
			NULL);
	lb_facts_number(facts, "process", item, "mappings", subject->n_maps,
			"executable ones");
	lb_facts_flag(facts, "process", item, "own_mounts",
		      !same_namespace(pid, "ns/mnt"));
	lb_facts_flag(facts, "process", item, "own_pids",
		      !same_namespace(pid, "ns/pid"));
	char byte;
	int err = subject->n_maps
			  ? lb_proc_read(subject->proc, subject->maps[0].start,
					 &byte, 1)
			  : -ENOENT;

	lb_facts_text(facts, "process", item, "memory", "%s",
		      err ? strerror(-err) : "readable");
}

static int take_process(struct lb_doctor *doctor, int pid, bool brief)
{
	struct lb_subject *subject;
	int err = lb_subject_new(doctor->objects, pid, &subject);
	size_t n_vms = doctor->n_vms, n_luas = doctor->n_luas;

	doctor->budget = LIVE_BUDGET;
	if (err)
		return err;
	struct place *places = calloc(subject->n_maps + 1, sizeof(*places));

	if (!places) {
		lb_subject_free(subject);
		return -ENOMEM;
	}
	size_t n = places_of(subject, places);

	for (size_t i = 0; i < n; i++) {
		if (places[i].object->has_vm)
			add_vm(doctor, subject, &places[i], doctor->n_processes,
			       brief);
		else
			add_lua(doctor, places[i].object, path_of(&places[i]),
				(int)doctor->n_processes);
		if (!brief)
			add_trouble(doctor, &places[i]);
	}
	free(places);
	if (!brief || doctor->n_vms > n_vms || doctor->n_luas > n_luas) {
		add_process(doctor, subject, brief);
		doctor->n_processes++;
	}
	lb_subject_free(subject);
	return 0;
}

static int fail_pid(struct lb_doctor *doctor, int pid, int err)
{
	if (err == -ESRCH)
		return fail(doctor, err, "PID %d: no such process", pid);
	if (err == -EOPNOTSUPP)
		return fail(
			doctor, err,
			"PID %d: a 32-bit process; only x86-64 is supported",
			pid);
	return fail(doctor, err, "PID %d: cannot read its mappings: %s", pid,
		    strerror(-err));
}

int lb_doctor_pid(struct lb_doctor *doctor, int pid)
{
	char path[64];

	/* a thread has a folder below /proc, but is not listed there */
	snprintf(path, sizeof(path), "/proc/%d/task/%d", pid, pid);
	if (access(path, F_OK) && errno == ENOENT) {
		snprintf(path, sizeof(path), "/proc/%d", pid);
		if (!access(path, F_OK))
			return fail(doctor, -EINVAL,
				    "PID %d: a thread, not a process", pid);
	}
	int err = take_process(doctor, pid, false);

	if (err)
		return fail_pid(doctor, pid, err);
	return doctor->facts.no_memory ? -ENOMEM : 0;
}

int lb_doctor_all(struct lb_doctor *doctor)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	size_t n_unread = 0;

	if (!dir)
		return fail(doctor, -errno, "/proc: %s", strerror(errno));
	while ((entry = readdir(dir))) {
		int pid = atoi(entry->d_name);

		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    pid == getpid())
			continue;
		int err = take_process(doctor, pid, true);

		n_unread += err == -EACCES || err == -EPERM;
	}
	closedir(dir);
	lb_facts_number(&doctor->facts, "unread", 0, "processes", n_unread,
			NULL);
	return doctor->facts.no_memory ? -ENOMEM : 0;
}

/* ---- a file ---- */

int lb_doctor_file(struct lb_doctor *doctor, const char *path)
{
	struct lb_facts *facts = &doctor->facts;
	struct lb_object *object;
	int err = lb_objects_open(doctor->objects, path, &object);
	char why[384];

	if (err == -ENOEXEC)
		return fail(doctor, err, "%s: not an ELF file", path);
	if (err == -EOPNOTSUPP)
		return fail(doctor, err, "%s: not for x86-64", path);
	if (err)
		return fail(doctor, err, "%s: %s", path, strerror(-err));
	if (!object->has_vm) {
		add_lua(doctor, object, path, -1);
		return facts->no_memory ? -ENOMEM : 0;
	}
	size_t item = doctor->n_vms++;
	bool usable = !object->vm_err && object->placed;

	lb_facts_text(facts, "vm", item, "file", "%s", path);
	lb_facts_flag(facts, "vm", item, "usable", usable);
	if (!usable) {
		lb_refusal_vm(object, why, sizeof(why));
		lb_facts_text(facts, "vm", item, "refusal", "%s", why);
	}
	lb_vmfacts_all(facts, item, object, NULL);
	return facts->no_memory ? -ENOMEM : 0;
}

int lb_doctor_kernel(struct lb_doctor *doctor)
{
	lb_kernel_facts(&doctor->facts);
	return doctor->facts.no_memory ? -ENOMEM : 0;
}
