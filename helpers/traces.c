/* SPDX-License-Identifier: Apache-2.0 */
/* The traces of a run that samples fell into. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "traces.h"

#define WAITING_MAX 4096
#define READ_BUDGET 20000 /* reads for one trace */

static const struct lb_traces_bounds usual_bounds = {
	.traces = 1U << 17,
	.bytes = 64U << 20,
	.rate = 2000,
	.burst = 1000,
};

struct entry {
	struct lb_subject *subject;
	uint64_t g_addr;
	uint32_t id;
	uint32_t vm;
	struct lb_tracemap *map; /* NULL: gone */
	bool checked, alive;	 /* at the end of the run */
};

struct waiting {
	struct lb_trace_key key;
	uint64_t proto_addr;
};

/* Functions of one process. */
struct funcs_of {
	struct lb_subject *subject;
	struct lb_funcs *funcs;
};

struct place;

struct lb_traces {
	struct lb_traces_bounds bounds;
	struct entry *entries;
	size_t n, room;
	uint32_t *slots; /* 1 + index in entries; 0 is empty */
	size_t n_slots;
	struct funcs_of *funcs;
	size_t n_funcs;
	struct waiting waiting[WAITING_MAX];
	size_t n_waiting;
	size_t bytes;
	uint64_t tokens_ns; /* when the bucket of copies was last filled */
	uint32_t tokens;
	struct place *order; /* of lb_traces_text() */
	size_t n_order;
	char text[512];
};

int lb_traces_new(const struct lb_traces_bounds *bounds,
		  struct lb_traces **traces_ret)
{
	struct lb_traces *traces = calloc(1, sizeof(*traces));

	if (!traces)
		return -ENOMEM;
	traces->bounds = bounds ? *bounds : usual_bounds;
	traces->tokens = traces->bounds.burst;
	*traces_ret = traces;
	return 0;
}

void lb_traces_free(struct lb_traces *traces)
{
	if (!traces)
		return;
	for (size_t i = 0; i < traces->n; i++)
		lb_tracemap_free(traces->entries[i].map);
	for (size_t i = 0; i < traces->n_funcs; i++)
		lb_funcs_free(traces->funcs[i].funcs);
	free(traces->funcs);
	free(traces->entries);
	free(traces->slots);
	free(traces->order);
	free(traces);
}

/* ---- entries ---- */

static size_t slot_of(const struct lb_traces *traces,
		      const struct lb_subject *subject, uint64_t g_addr,
		      uint32_t id)
{
	uint64_t hash = LB_ID_MIX(LB_ID_MIX((uintptr_t)subject, g_addr), id);
	size_t i = hash >> 32 & (traces->n_slots - 1);

	while (traces->slots[i]) {
		const struct entry *e = &traces->entries[traces->slots[i] - 1];

		if (e->subject == subject && e->g_addr == g_addr && e->id == id)
			break;
		i = (i + 1) & (traces->n_slots - 1);
	}
	return i;
}

static struct entry *find_entry(const struct lb_traces *traces,
				const struct lb_trace_key *key)
{
	if (!traces->n_slots)
		return NULL;
	uint32_t slot = traces->slots[slot_of(traces, key->subject, key->g_addr,
					      key->id)];

	return slot ? &traces->entries[slot - 1] : NULL;
}

static int make_room(struct lb_traces *traces)
{
	if (traces->n == traces->room) {
		size_t room = traces->room ? 2 * traces->room : 256;
		void *bigger = realloc(traces->entries,
				       room * sizeof(*traces->entries));

		if (!bigger)
			return -ENOMEM;
		traces->entries = bigger;
		traces->room = room;
	}
	if (2 * traces->n < traces->n_slots)
		return 0;
	size_t n_slots = traces->n_slots ? 2 * traces->n_slots : 1024;
	uint32_t *slots = calloc(n_slots, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(traces->slots);
	traces->slots = slots;
	traces->n_slots = n_slots;
	for (size_t i = 0; i < traces->n; i++) {
		const struct entry *e = &traces->entries[i];

		slots[slot_of(traces, e->subject, e->g_addr, e->id)] = i + 1;
	}
	return 0;
}

/* Takes over @map, which may be NULL. */
static void add_entry(struct lb_traces *traces, const struct lb_trace_key *key,
		      uint32_t id, struct lb_tracemap *map)
{
	if (traces->n == traces->bounds.traces || make_room(traces)) {
		lb_tracemap_free(map);
		return;
	}
	if (map)
		traces->bytes += lb_tracemap_size(map);
	size_t slot = slot_of(traces, key->subject, key->g_addr, id);

	traces->entries[traces->n++] = (struct entry){ .subject = key->subject,
						       .g_addr = key->g_addr,
						       .id = id,
						       .vm = key->vm,
						       .map = map };
	traces->slots[slot] = traces->n;
}

/* ---- copying ---- */

static struct lb_funcs *funcs_of(struct lb_traces *traces,
				 struct lb_subject *subject)
{
	for (size_t i = 0; i < traces->n_funcs; i++)
		if (traces->funcs[i].subject == subject)
			return traces->funcs[i].funcs;
	void *bigger = realloc(traces->funcs,
			       (traces->n_funcs + 1) * sizeof(*traces->funcs));

	if (!bigger)
		return NULL;
	traces->funcs = bigger;
	struct funcs_of *of = &traces->funcs[traces->n_funcs];

	of->subject = subject;
	if (lb_funcs_new(subject->names, &of->funcs))
		return NULL;
	traces->n_funcs++;
	return of->funcs;
}

static int read_target(void *arg, uint64_t addr, void *buf, size_t size)
{
	return lb_proc_read(arg, addr, buf, size);
}

static bool target_of(const struct lb_trace_key *key, struct lb_target *target)
{
	if (key->vm >= key->subject->entry.n_vms || key->subject->gone)
		return false;
	*target = (struct lb_target){ .read = read_target,
				      .read_arg = key->subject->proc,
				      .off = &key->subject->entry.lj[key->vm],
				      .budget = READ_BUDGET };
	return true;
}

/* Who calls whom is evidence for names. */
static void tell_names(struct lb_names *names, const struct lb_tracemap *map)
{
	for (uint32_t i = 0; i < map->n_nodes; i++) {
		const struct lb_inline *node = &map->nodes[i];

		if (node->parent < map->n_nodes && node->proto_id &&
		    map->nodes[node->parent].proto_id)
			lb_names_add_call(names,
					  map->nodes[node->parent].proto_id,
					  node->call_pos, node->proto_id);
	}
}

static bool is_full(const struct lb_traces *traces)
{
	return traces->n == traces->bounds.traces ||
	       traces->bytes >= traces->bounds.bytes;
}

/* The map of a trace, if it was the same from the first read to the last. */
static struct lb_tracemap *copy_trace(struct lb_traces *traces,
				      const struct lb_trace_key *key,
				      uint64_t proto_addr)
{
	struct lb_funcs *funcs = funcs_of(traces, key->subject);
	struct lb_tracemap *map = NULL;
	struct lb_target target;
	struct lb_trace trace;
	uint32_t no = key->no;

	if (!funcs || is_full(traces) || !target_of(key, &target))
		return NULL;
	if (!key->id && lb_trace_find(&target, key->g_addr, key->pc, &no))
		return NULL;
	target.budget = READ_BUDGET;
	if (lb_trace_read(&target, key->g_addr, no, key->id, &trace))
		return NULL;
	lb_funcs_round(funcs, &target, key->g_addr, key->vm);
	lb_funcs_proto(funcs, proto_addr);
	if (key->pc - trace.mcode < trace.szmcode &&
	    !lb_tracemap_new(&target, funcs, &trace, &map)) {
		target.budget = READ_BUDGET;
		if (lb_trace_check(&target, key->g_addr, &trace)) {
			lb_tracemap_free(map);
			map = NULL;
		}
	}
	lb_trace_fini(&trace);
	if (map)
		tell_names(key->subject->names, map);
	return map;
}

static void copy_now(struct lb_traces *traces, const struct lb_trace_key *key,
		     uint64_t proto_addr)
{
	struct lb_tracemap *map = copy_trace(traces, key, proto_addr);

	if (key->id) {
		add_entry(traces, key, key->id, map);
	} else if (map) {
		struct lb_trace_key known = *key;

		known.id = map->id;
		if (find_entry(traces, &known))
			lb_tracemap_free(map);
		else
			add_entry(traces, key, map->id, map);
	}
}

static bool take_token(struct lb_traces *traces)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	uint64_t now = ts.tv_sec * 1000000000ULL + ts.tv_nsec;
	uint64_t more =
		(now - traces->tokens_ns) / (1000000000 / traces->bounds.rate);

	if (more) {
		traces->tokens_ns = now;
		traces->tokens = more + traces->tokens < traces->bounds.burst
					 ? more + traces->tokens
					 : traces->bounds.burst;
	}
	if (!traces->tokens)
		return false;
	traces->tokens--;
	return true;
}

void lb_traces_want(struct lb_traces *traces, const struct lb_trace_key *key,
		    uint64_t proto_addr)
{
	if (key->id && find_entry(traces, key))
		return;
	if (!traces->n_waiting && take_token(traces))
		copy_now(traces, key, proto_addr);
	else if (traces->n_waiting < WAITING_MAX)
		traces->waiting[traces->n_waiting++] =
			(struct waiting){ *key, proto_addr };
}

void lb_traces_poll(struct lb_traces *traces)
{
	size_t n = 0;

	for (; n < traces->n_waiting && take_token(traces); n++) {
		const struct waiting *w = &traces->waiting[n];

		if (!w->key.id || !find_entry(traces, &w->key))
			copy_now(traces, &w->key, w->proto_addr);
	}
	traces->n_waiting -= n;
	memmove(traces->waiting, traces->waiting + n,
		traces->n_waiting * sizeof(traces->waiting[0]));
}

/* ---- looking up ---- */

/* Is the trace still there? Asked once, at the end of the run. */
static bool is_alive(struct entry *e)
{
	struct lb_trace_key key = { .subject = e->subject, .vm = e->vm };
	struct lb_trace trace = { .no = e->map->no, .id = e->map->id };
	struct lb_target target;

	if (!e->checked) {
		e->checked = true;
		e->alive = target_of(&key, &target) &&
			   !lb_trace_check(&target, e->g_addr, &trace);
	}
	return e->alive;
}

struct lb_tracemap *lb_traces_find(struct lb_traces *traces,
				   const struct lb_trace_key *key)
{
	struct entry *found = NULL;

	if (key->id) {
		found = find_entry(traces, key);
		return found ? found->map : NULL;
	}
	for (size_t i = 0; i < traces->n; i++) {
		struct entry *e = &traces->entries[i];

		if (e->subject != key->subject || e->g_addr != key->g_addr ||
		    !e->map || key->pc - e->map->mcode >= e->map->szmcode)
			continue;
		if (found)
			return NULL; /* which of them? */
		found = e;
	}
	return found && is_alive(found) ? found->map : NULL;
}

/* ---- text ---- */

static const char *link_word(uint8_t linktype)
{
	static const char *const words[] = { "none",	 "root",   "loop",
					     "tail-rec", "up-rec", "down-rec",
					     "interp",	 "return", "stitch" };

	return linktype < sizeof(words) / sizeof(words[0]) ? words[linktype]
							   : "unknown";
}

struct place {
	uint64_t samples;
	size_t i;
};

static int by_samples(const void *a, const void *b)
{
	const struct place *pa = a, *pb = b;

	if (pa->samples != pb->samples)
		return pa->samples < pb->samples ? 1 : -1;
	return pa->i < pb->i ? -1 : 1;
}

static int sort_entries(struct lb_traces *traces)
{
	struct place *order = calloc(traces->n + 1, sizeof(*order));
	size_t n = 0;

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < traces->n; i++) {
		const struct lb_tracemap *map = traces->entries[i].map;

		if (map && map->samples)
			order[n++] = (struct place){ map->samples, i };
	}
	qsort(order, n, sizeof(*order), by_samples);
	free(traces->order);
	traces->order = order;
	traces->n_order = n;
	return 0;
}

const char *lb_traces_text(struct lb_traces *traces, size_t i)
{
	if (!i && sort_entries(traces))
		return NULL;
	if (i >= traces->n_order)
		return NULL;
	const struct entry *e = &traces->entries[traces->order[i].i];
	const struct lb_tracemap *map = e->map;
	const char *start = NULL;
	char root[32] = "root";

	if (map->root)
		snprintf(root, sizeof(root), "side of %u", map->root);
	if (map->start_id)
		start = lb_names_proto_text(e->subject->names, map->start_id,
					    map->start_line);
	snprintf(traces->text, sizeof(traces->text),
		 "PID %d: trace %u, %s, link %u %s, %s, %u bytes, %llu samples",
		 e->subject->pid, map->no, root, map->link,
		 link_word(map->linktype), start ? start : "?", map->szmcode,
		 (unsigned long long)map->samples);
	return traces->text;
}
