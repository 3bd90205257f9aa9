/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of calls: probes into the VMs of a run's processes, functions as they
 * are first seen, and what the program has counted for each.
 */
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "callprobes.h"
#include "lb.h"
#include "session.h"
#include "../bpf_c/lb_wire.h"

#define FUNCTIONS_MAX (1U << 20) /* seen in a run */
#define NO_INDEX      UINT32_MAX
#define SHADOW	      24 /* bytes of code behind a probe, and at its target */
#define MAX(a, b)     ((a) > (b) ? (a) : (b))

struct function {
	struct lb_call_key key;
	struct lb_subject *subject; /* NULL: not known any more */
	uint64_t g_addr;
	uint32_t vm;
	uint32_t proto_id; /* 0: none */
	uint32_t state;	   /* enum lb_call_state */
	bool is_called;
	char *text; /* NULL: not yet named */
	uint64_t total, before;
};

struct edge {
	uint32_t callee, caller; /* indices of functions */
	uint64_t total, before;
};

/* A hash of indices into an array; NO_INDEX is free. */
struct index {
	uint32_t *slots;
	size_t n_slots; /* a power of two */
};

/* Points of one file, the same in all processes. */
struct file_probes {
	const struct lb_object *object;
	struct lb_probes probes;
	struct file_probes *next;
};

/* A mapping that has its probes. */
struct attached {
	const struct lb_subject *subject;
	uint64_t start;
	struct attached *next;
};

struct lb_calls {
	struct lb_session *session;
	struct lb_call_fds fds;
	unsigned int what;
	int n_cpus;
	uint64_t *values; /* of one key, for each CPU */
	struct file_probes *files;
	struct attached *attached;
	int *probe_fds;
	size_t n_probe_fds;
	char **api_names;
	size_t n_api_names;
	struct function *functions;
	size_t n_functions, cap_functions;
	struct index by_key;
	struct edge *edges;
	size_t n_edges, cap_edges;
	struct index by_pair;
	struct lb_call_totals totals;
};

/* ---- index ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio */
	return hash ^ (hash >> 29);
}

static uint64_t hash_key(const struct lb_call_key *key)
{
	return mix(mix(key->addr, key->ident),
		   key->tgid | (uint64_t)key->kind << 32);
}

static uint64_t hash_pair(uint32_t callee, uint32_t caller)
{
	return mix(callee, caller);
}

/* Room for one more in an array of @n; its index is made anew as needed. */
static int grow(void **array, size_t *cap, size_t n, size_t size,
		struct index *index)
{
	if (n < *cap)
		return 0;
	size_t new_cap = *cap ? 2 * *cap : 256;

	if (new_cap > FUNCTIONS_MAX)
		return -E2BIG;
	void *bigger = reallocarray(*array, new_cap, size);

	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	uint32_t *slots = malloc(2 * new_cap * sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(index->slots);
	memset(slots, 0xff, 2 * new_cap * sizeof(*slots));
	index->slots = slots;
	index->n_slots = 2 * new_cap;
	*cap = new_cap;
	return 1;
}

static void index_put(struct index *index, uint64_t hash, uint32_t i)
{
	size_t at = hash & (index->n_slots - 1);

	while (index->slots[at] != NO_INDEX)
		at = (at + 1) & (index->n_slots - 1);
	index->slots[at] = i;
}

static uint32_t find_function(const struct lb_calls *calls,
			      const struct lb_call_key *key)
{
	const struct index *index = &calls->by_key;

	if (!index->n_slots)
		return NO_INDEX;
	for (size_t at = hash_key(key);; at++) {
		uint32_t i = index->slots[at & (index->n_slots - 1)];

		if (i == NO_INDEX ||
		    !memcmp(&calls->functions[i].key, key, sizeof(*key)))
			return i;
	}
}

/* The function with this key, made if there is none; NO_INDEX: no memory. */
static uint32_t get_function(struct lb_calls *calls,
			     const struct lb_call_key *key)
{
	uint32_t i = find_function(calls, key);

	if (i != NO_INDEX)
		return i;
	int grown = grow((void **)&calls->functions, &calls->cap_functions,
			 calls->n_functions, sizeof(*calls->functions),
			 &calls->by_key);

	if (grown < 0)
		return NO_INDEX;
	if (grown)
		for (size_t j = 0; j < calls->n_functions; j++)
			index_put(&calls->by_key,
				  hash_key(&calls->functions[j].key), j);
	i = calls->n_functions++;
	calls->functions[i] = (struct function){
		.key = *key,
		.subject = lb_session_subject(calls->session, key->tgid),
		.state = LB_CALL_SEEN,
	};
	index_put(&calls->by_key, hash_key(key), i);
	return i;
}

static struct edge *get_edge(struct lb_calls *calls, uint32_t callee,
			     uint32_t caller)
{
	const struct index *index = &calls->by_pair;
	uint64_t hash = hash_pair(callee, caller);

	for (size_t at = hash; index->n_slots; at++) {
		uint32_t i = index->slots[at & (index->n_slots - 1)];

		if (i == NO_INDEX)
			break;
		if (calls->edges[i].callee == callee &&
		    calls->edges[i].caller == caller)
			return &calls->edges[i];
	}
	int grown =
		grow((void **)&calls->edges, &calls->cap_edges, calls->n_edges,
		     sizeof(*calls->edges), &calls->by_pair);

	if (grown < 0)
		return NULL;
	if (grown)
		for (size_t j = 0; j < calls->n_edges; j++)
			index_put(&calls->by_pair,
				  hash_pair(calls->edges[j].callee,
					    calls->edges[j].caller),
				  j);
	calls->edges[calls->n_edges] =
		(struct edge){ .callee = callee, .caller = caller };
	index_put(&calls->by_pair, hash, calls->n_edges);
	return &calls->edges[calls->n_edges++];
}

/* ---- begin and end ---- */

/* A function in a record: new, or forgotten by the kernel and new again. */
static void on_record(void *arg, const void *data, size_t size)
{
	struct lb_calls *calls = arg;
	struct lb_call_rec rec;

	if (size < sizeof(rec))
		return;
	memcpy(&rec, data, sizeof(rec));
	if (rec.type != LB_REC_CALL)
		return;
	uint32_t i = get_function(calls, &rec.key);

	if (i == NO_INDEX)
		return;
	struct function *function = &calls->functions[i];

	if (!function->g_addr) {
		function->g_addr = rec.g_addr;
		function->vm = rec.vm;
	}
	if (rec.has_proto && !function->proto_id)
		lb_session_add_proto(calls->session, &rec.proto,
				     &function->proto_id);
	if (function->state != LB_CALL_SEEN)
		lb_calls_decide(calls, i, function->state == LB_CALL_WANTED);
}

int lb_calls_new(struct lb_session *session, const struct lb_call_fds *fds,
		 unsigned int what, struct lb_calls **calls_ret)
{
	struct lb_calls *calls = calloc(1, sizeof(*calls));
	const int *from = (const int *)fds;

	if (!calls)
		return -ENOMEM;
	int *to = (int *)&calls->fds;

	memset(to, -1, sizeof(calls->fds));
	calls->session = session;
	calls->what = what;
	calls->n_cpus = libbpf_num_possible_cpus();
	calls->values = calloc(MAX(calls->n_cpus, 1), sizeof(uint64_t));
	int err = calls->n_cpus <= 0 ? calls->n_cpus
		  : !calls->values   ? -ENOMEM
				     : 0;

	for (size_t i = 0; i < sizeof(*fds) / sizeof(int) && !err; i++) {
		to[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 0);
		if (to[i] < 0)
			err = -errno;
	}
	if (err) {
		lb_calls_free(calls);
		return lb_session_fail(session, err, "cannot use the maps: %s",
				       strerror(-err));
	}
	lb_session_on_record(session, on_record, calls);
	*calls_ret = calls;
	return 0;
}

void lb_calls_free(struct lb_calls *calls)
{
	if (!calls)
		return;
	lb_session_on_record(calls->session, NULL, NULL);
	for (size_t i = 0; i < calls->n_probe_fds; i++)
		close(calls->probe_fds[i]);
	while (calls->files) {
		struct file_probes *file = calls->files;

		calls->files = file->next;
		lb_probes_fini(&file->probes);
		free(file);
	}
	while (calls->attached) {
		struct attached *attached = calls->attached;

		calls->attached = attached->next;
		free(attached);
	}
	for (size_t i = 0; i < calls->n_functions; i++)
		free(calls->functions[i].text);
	for (size_t i = 0; i < calls->n_api_names; i++)
		free(calls->api_names[i]);
	int *fd = (int *)&calls->fds;

	for (size_t i = 0; i < sizeof(calls->fds) / sizeof(int); i++)
		lb_close_fd(&fd[i]);
	free(calls->api_names);
	free(calls->functions);
	free(calls->edges);
	free(calls->by_key.slots);
	free(calls->by_pair.slots);
	free(calls->probe_fds);
	free(calls->values);
	free(calls);
}

/* ---- probes ---- */

static bool is_asked_for(const struct lb_calls *calls, uint32_t kind)
{
	switch (kind) {
	case LB_PROBE_LUA:
	case LB_PROBE_COMPILED:
	case LB_PROBE_LOOP:
		return calls->what & LB_CALLS_OF_LUA;
	case LB_PROBE_C:
	case LB_PROBE_FAST:
	case LB_PROBE_RETRY:
		return calls->what & LB_CALLS_OF_BUILTINS;
	default:
		return calls->what & LB_CALLS_OF_API;
	}
}

static int find_probes(struct lb_calls *calls, const struct lb_object *object,
		       struct file_probes **file_ret)
{
	struct file_probes *file = calls->files;
	const unsigned int in_vm = LB_CALLS_OF_LUA | LB_CALLS_OF_BUILTINS;
	int err = 0;

	while (file && file->object != object)
		file = file->next;
	if (file) {
		*file_ret = file;
		return 0;
	}
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->object = object;
	if (calls->what & in_vm)
		err = lb_callprobes_vm(object->elf, &object->luajit,
				       &object->source.offsets, &file->probes);
	if (!err && calls->what & LB_CALLS_OF_API)
		err = lb_callprobes_api(object->elf, &file->probes);
	if (err) {
		lb_probes_fini(&file->probes);
		free(file);
		return lb_session_fail(
			calls->session, err,
			err == -ENODATA
				? "%s: exports no function of the Lua C API"
				: "%s: the code of its function headers is not "
				  "understood",
			object->name);
	}
	file->next = calls->files;
	calls->files = file;
	*file_ret = file;
	return 0;
}

/* Number of a name of the API, the same for all files. */
static int api_number(struct lb_calls *calls, const char *name,
		      uint32_t *number_ret)
{
	for (size_t i = 0; i < calls->n_api_names; i++) {
		if (!strcmp(calls->api_names[i], name)) {
			*number_ret = i;
			return 0;
		}
	}
	char **bigger = reallocarray(calls->api_names, calls->n_api_names + 1,
				     sizeof(*bigger));

	if (!bigger)
		return -ENOMEM;
	calls->api_names = bigger;
	bigger[calls->n_api_names] = strdup(name);
	if (!bigger[calls->n_api_names])
		return -ENOMEM;
	*number_ret = calls->n_api_names++;
	return 0;
}

/* How the jump at a point is decided: the low bits of its opcode. */
static uint32_t cond_of(const struct lb_object *object,
			const struct lb_probe *probe)
{
	const uint8_t *code = lb_elf_vaddr_data(object->elf, probe->vaddr, 2);

	if (code && code[0] == 0x0f)
		return code[1] & 0xf;
	if (code && code[0] >= 0x70 && code[0] <= 0x7f)
		return code[0] & 0xf;
	return LB_COND_ALWAYS;
}

/* Where the jump at a point leads to; behind it if it is none. */
static uint64_t target_of(const struct lb_object *object, uint64_t vaddr)
{
	const uint8_t *code = lb_elf_vaddr_data(object->elf, vaddr, 6);
	int32_t distance;

	if (!code)
		return vaddr;
	if (code[0] == 0xeb || (code[0] & 0xf0) == 0x70)
		return vaddr + 2 + (int8_t)code[1];
	if (code[0] == 0x0f && (code[1] & 0xf0) == 0x80) {
		memcpy(&distance, code + 2, sizeof(distance));
		return vaddr + 6 + (int64_t)distance;
	}
	if (code[0] == 0xe9) {
		memcpy(&distance, code + 1, sizeof(distance));
		return vaddr + 5 + (int64_t)distance;
	}
	return vaddr;
}

/*
 * Samples of CPU time that fall shortly behind a probe are its cost: see
 * lb_is_in_probe(). Without room for these it shows as time in Lua.
 */
static void mark_shadow(const struct lb_calls *calls, uint32_t tgid,
			uint64_t addr)
{
	const struct lb_point point = { .kind = LB_PROBE_NONE };

	for (uint64_t i = 0; i < SHADOW; i++) {
		struct lb_point_key key = { .addr = addr + i, .tgid = tgid };

		if (bpf_map_update_elem(calls->fds.points, &key, &point,
					BPF_NOEXIST) &&
		    errno != EEXIST)
			return;
	}
}

static bool has_point(const struct lb_calls *calls,
		      const struct lb_point_key *key)
{
	struct lb_point point;

	return !bpf_map_lookup_elem(calls->fds.points, key, &point) &&
	       point.kind != LB_PROBE_NONE;
}

/* Put one point into the map, and its breakpoint into the process. */
static int attach_probe(struct lb_calls *calls,
			const struct lb_subject *subject,
			const struct lb_subject_map *map, uint32_t vm,
			const struct lb_probe *probe, size_t *n_ret)
{
	struct lb_point_key key = { .addr = probe->vaddr + map->bias,
				    .tgid = subject->pid };
	struct lb_point point = { .kind = probe->kind,
				  .cond = cond_of(map->object, probe),
				  .vm = vm };
	char path[96];
	int fd, err = 0;

	if (key.addr < map->start || key.addr >= map->end)
		return 0;
	if (probe->kind == LB_PROBE_API)
		err = api_number(calls, probe->name, &point.number);
	if (err)
		return err;
	if (has_point(calls, &key)) /* a second name of the same function */
		return 0;
	if (bpf_map_update_elem(calls->fds.points, &key, &point, BPF_ANY))
		return -errno;
	int *bigger = reallocarray(calls->probe_fds, calls->n_probe_fds + 1,
				   sizeof(*bigger));

	if (!bigger)
		return -ENOMEM;
	calls->probe_fds = bigger;
	/* through the mapping: the file may be deleted, or in a container */
	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx",
		 subject->pid, (unsigned long long)map->start,
		 (unsigned long long)map->end);
	err = lb_probe_attach(path, probe->off, subject->pid,
			      calls->fds.program, &fd);
	if (err) {
		bpf_map_delete_elem(calls->fds.points, &key);
		return err;
	}
	calls->probe_fds[calls->n_probe_fds++] = fd;
	++*n_ret;
	if (probe->kind != LB_PROBE_API) {
		mark_shadow(calls, subject->pid, key.addr + 1);
		mark_shadow(calls, subject->pid,
			    target_of(map->object, probe->vaddr) + map->bias);
	}
	return 0;
}

static bool is_attached(const struct lb_calls *calls,
			const struct lb_subject *subject, uint64_t start)
{
	const struct attached *attached = calls->attached;

	while (attached &&
	       (attached->subject != subject || attached->start != start))
		attached = attached->next;
	return attached;
}

static int attach_map(struct lb_calls *calls, const struct lb_subject *subject,
		      const struct lb_subject_map *map, uint32_t vm,
		      size_t *n_ret)
{
	struct file_probes *file = NULL;

	if (is_attached(calls, subject, map->start))
		return 0;
	struct attached *attached = calloc(1, sizeof(*attached));

	if (!attached)
		return -ENOMEM;
	attached->subject = subject;
	attached->start = map->start;
	attached->next = calls->attached;
	calls->attached = attached;
	int err = find_probes(calls, map->object, &file);

	if (err)
		return err;
	for (size_t i = 0; i < file->probes.n && !err; i++)
		if (is_asked_for(calls, file->probes.list[i].kind))
			err = attach_probe(calls, subject, map, vm,
					   &file->probes.list[i], n_ret);
	/* a process that ends is no reason to give up */
	if (err == -ESRCH || err == -ENOENT)
		return 0;
	if (err)
		lb_session_fail(calls->session, err,
				"PID %d: the kernel refused a probe in %s: %s",
				subject->pid, map->object->name,
				strerror(-err));
	return err;
}

int lb_calls_attach(struct lb_calls *calls, size_t *n_ret)
{
	size_t n = 0;
	int err = 0;

	for (struct lb_subject *subject = lb_session_subjects(calls->session);
	     subject && !err; subject = subject->next) {
		for (size_t i = 0; i < subject->n_maps && !err; i++) {
			const struct lb_subject_map *map = &subject->maps[i];
			uint32_t vm = 0;

			if (subject->gone || !map->object ||
			    !map->object->has_vm)
				continue;
			while (vm < subject->entry.n_vms &&
			       subject->vms[vm] != map->object)
				vm++;
			if (vm < subject->entry.n_vms)
				err = attach_map(calls, subject, map, vm, &n);
		}
	}
	*n_ret = n;
	return err;
}

int lb_calls_switch(struct lb_calls *calls, bool on)
{
	unsigned int flags = lb_session_flags(calls->session);
	int err = lb_session_configure(calls->session,
				       on ? flags & ~LB_CONFIG_OFF
					  : flags | LB_CONFIG_OFF);

	/* a hit that has passed the test is done within microseconds */
	usleep(on ? 0 : 2000);
	return err ? lb_session_fail(calls->session, err, "%s", strerror(-err))
		   : 0;
}

/* ---- names ---- */

/* A C function has the name of its symbol, else of its place. */
static char *native_text(const struct function *function)
{
	const struct lb_subject_map *map =
		lb_subject_map_at(function->subject, function->key.addr);
	char *text = NULL;

	if (!map || !map->object)
		return strdup("[unknown]");
	uint64_t vaddr = function->key.addr - map->bias;
	struct lb_sym *sym =
		lb_object_sym(map->object, function->subject->proc);
	const char *name = sym ? lb_sym_find(sym, vaddr, 0, NULL) : NULL;

	if (name)
		return strdup(name);
	if (asprintf(&text, "[%s+0x%llx]", map->object->name,
		     (unsigned long long)vaddr) < 0)
		return NULL;
	return text;
}

static char *text_of(const struct lb_calls *calls,
		     const struct function *function)
{
	struct lb_subject *subject = function->subject;
	uint64_t addr = function->key.addr;
	const char *text = NULL;

	if (!subject)
		return strdup("?@[unknown]");
	switch (function->key.kind) {
	case LB_CALL_LUA:
		if (function->proto_id)
			text = lb_names_proto_text(subject->names,
						   function->proto_id,
						   LB_LINE_UNKNOWN);
		break;
	case LB_CALL_FAST:
		text = lb_names_fast_text(subject->names, function->g_addr,
					  (uint32_t)addr);
		break;
	case LB_CALL_API:
		if (addr < calls->n_api_names)
			text = calls->api_names[addr];
		break;
	case LB_CALL_C:
		return native_text(function);
	}
	return strdup(text ? text : "?@[unknown]");
}

int lb_calls_name(struct lb_calls *calls)
{
	for (size_t i = 0; i < calls->n_functions; i++) {
		struct function *function = &calls->functions[i];

		if (!function->text && function->subject &&
		    function->key.kind != LB_CALL_API)
			lb_session_scan(calls->session, function->subject,
					function->g_addr, function->vm);
	}
	for (size_t i = 0; i < calls->n_functions; i++) {
		struct function *function = &calls->functions[i];

		if (!function->text)
			function->text = text_of(calls, function);
		if (!function->text)
			return -ENOMEM;
	}
	return 0;
}

int lb_calls_decide(struct lb_calls *calls, size_t i, bool wanted)
{
	if (i >= calls->n_functions)
		return -ENOENT;
	struct function *function = &calls->functions[i];

	function->state = wanted ? LB_CALL_WANTED : LB_CALL_UNWANTED;
	if (bpf_map_update_elem(calls->fds.states, &function->key,
				&function->state, BPF_ANY))
		return lb_session_fail(calls->session, -errno,
				       "cannot filter functions: %s",
				       strerror(errno));
	if (!wanted) /* make room; absent if it was never called */
		bpf_map_delete_elem(calls->fds.calls, &function->key);
	return 0;
}

/* ---- counts ---- */

static uint64_t sum(const struct lb_calls *calls)
{
	uint64_t total = 0;

	for (int cpu = 0; cpu < calls->n_cpus; cpu++)
		total += calls->values[cpu];
	return total;
}

/* Each key of a map whose values are counts for each CPU. */
static int
each_count(struct lb_calls *calls, int fd, void *key, void *next, size_t size,
	   void (*fn)(struct lb_calls *calls, const void *key, uint64_t total))
{
	const void *at = NULL;

	while (!bpf_map_get_next_key(fd, at, next)) {
		if (!bpf_map_lookup_elem(fd, next, calls->values))
			fn(calls, next, sum(calls));
		memcpy(key, next, size);
		at = key;
	}
	return errno == ENOENT ? 0 : -errno;
}

static void on_call(struct lb_calls *calls, const void *key, uint64_t total)
{
	uint32_t i = get_function(calls, key);

	if (i == NO_INDEX)
		return;
	calls->functions[i].total = total;
	calls->functions[i].is_called = true;
}

static void on_edge(struct lb_calls *calls, const void *data, uint64_t total)
{
	const struct lb_edge_key *key = data;
	uint32_t callee = get_function(calls, &key->callee), caller = NO_INDEX;

	if (key->caller.kind != LB_CALL_NONE)
		caller = get_function(calls, &key->caller);
	struct edge *edge =
		callee == NO_INDEX ? NULL : get_edge(calls, callee, caller);

	if (edge)
		edge->total = total;
}

static int read_totals(struct lb_calls *calls)
{
	uint64_t counters[LB_CALLS_MAX];
	struct lb_call_totals *t = &calls->totals;

	for (uint32_t i = 0; i < LB_CALLS_MAX; i++) {
		if (bpf_map_lookup_elem(calls->fds.counters, &i, calls->values))
			return -errno;
		counters[i] = sum(calls);
	}
	*t = (struct lb_call_totals){
		.counted = counters[LB_CALLS_COUNTED],
		.unwanted = counters[LB_CALLS_UNWANTED],
		.full = counters[LB_CALLS_FULL],
		.unread = counters[LB_CALLS_UNREAD],
		.again = counters[LB_CALLS_AGAIN],
		.foreign = counters[LB_CALLS_FOREIGN],
		.compiled = counters[LB_CALLS_COMPILED],
		.loops = counters[LB_CALLS_LOOPS],
		.no_edge = counters[LB_CALLS_NO_EDGE],
		.ticks = counters[LB_CALLS_TICKS],
		.in_probe = counters[LB_CALLS_IN_PROBE],
		.in_lua = counters[LB_CALLS_IN_LUA],
		.in_trace = counters[LB_CALLS_IN_TRACE],
	};
	t->hits = t->counted + t->unwanted + t->full + t->unread + t->again +
		  t->foreign;
	return 0;
}

int lb_calls_read(struct lb_calls *calls)
{
	struct lb_call_key key, next;
	struct lb_edge_key edge_key, edge_next;

	for (size_t i = 0; i < calls->n_functions; i++)
		calls->functions[i].before = calls->functions[i].total;
	for (size_t i = 0; i < calls->n_edges; i++)
		calls->edges[i].before = calls->edges[i].total;
	int err = each_count(calls, calls->fds.calls, &key, &next, sizeof(key),
			     on_call);

	if (!err)
		err = each_count(calls, calls->fds.edges, &edge_key, &edge_next,
				 sizeof(edge_key), on_edge);
	if (!err)
		err = read_totals(calls);
	return err ? lb_session_fail(calls->session, err,
				     "cannot read the counts: %s",
				     strerror(-err))
		   : 0;
}

size_t lb_calls_functions(const struct lb_calls *calls)
{
	return calls->n_functions;
}

int lb_calls_function(const struct lb_calls *calls, size_t i,
		      struct lb_call_info *info_ret)
{
	if (i >= calls->n_functions)
		return -ENOENT;
	const struct function *function = &calls->functions[i];

	*info_ret = (struct lb_call_info){
		.text = function->text ? function->text : "",
		.total = function->total,
		.count = function->total - function->before,
		.pid = function->key.tgid,
		.is_decided = function->state != LB_CALL_SEEN,
		.is_wanted = function->state != LB_CALL_UNWANTED,
		.is_called = function->is_called,
	};
	return 0;
}

size_t lb_calls_edges(const struct lb_calls *calls)
{
	return calls->n_edges;
}

int lb_calls_edge(const struct lb_calls *calls, size_t i,
		  struct lb_edge_info *info_ret)
{
	if (i >= calls->n_edges)
		return -ENOENT;
	const struct edge *edge = &calls->edges[i];

	*info_ret = (struct lb_edge_info){
		.total = edge->total,
		.count = edge->total - edge->before,
		.caller = edge->caller == NO_INDEX ? LB_CALLER_NONE
						   : edge->caller,
		.callee = edge->callee,
	};
	return 0;
}

void lb_calls_totals(const struct lb_calls *calls,
		     struct lb_call_totals *totals_ret)
{
	*totals_ret = calls->totals;
}
