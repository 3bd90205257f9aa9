/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of Lua functions.
 *
 * For each prototype three kinds of evidence are kept, best first: how it is
 * defined in the bytecode of its parent, where tables and upvalues hold it,
 * what its callers call it. A prototype is known by its address together with
 * its chunk name, first line and size: the address alone may come back with
 * another function in it. Children are read together with their parent, for
 * parents such as the main chunk of a module are soon collected.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"
#include "proto.h"
#include "globals.h"

#define KNOWN_MAX   (1U << 19) /* prototypes with evidence */
#define CHILD_DEPTH 32	       /* functions in functions */
#define ADD_BUDGET  20000      /* reads for one record */
#define SCAN_BUDGET 300000     /* reads for the tables of one VM */
#define SOURCE_MAX  60	       /* bytes of source text shown as chunk name */
#define FFIDS	    256

struct key {
	uint64_t addr;
	uint64_t chunk_addr;
	uint32_t first_line;
	uint32_t size_bc;
	uint32_t chunk_id; /* the address of a string may be used again */
	uint32_t pad;
};

struct call {
	uint32_t pos;
	const char *name;
};

/* What a kernel record adds to a known prototype. */
struct record {
	char *chunk; /* text of the chunk name */
	char *text;  /* `name@chunk`, once it has been asked for */
	const struct lj_offsets *off;
	struct call *calls; /* sorted by pos */
	size_t n_calls;
	uint8_t *ops; /* opcodes, to tell metamethods; NULL: not known */
};

struct known {
	struct key key;
	const char *defined;
	const char *placed;
	const char *called;
	struct record *record; /* NULL: no record yet */
	uint32_t id;
	uint8_t placed_rank;
	uint8_t placed_depth;
	bool defined_field; /* in a table that has no name there */
	bool examined;	    /* its children are known */
	bool not_main;	    /* it is a child, or takes parameters */
};

struct fast {
	const char *name;
	const char *text; /* once it has been asked for */
	uint8_t rank;
	uint8_t depth;
};

struct vm {
	uint64_t g_addr;
	bool scanned;
	struct fast fast[FFIDS];
};

struct lb_names {
	lb_read_fn read;
	void *read_arg;
	struct known *known;
	size_t n_known;
	size_t room;
	uint32_t *slots; /* hash table: index + 1 in known */
	size_t n_slots;	 /* a power of two */
	uint32_t *ids;	 /* ids[id - 1]: index in known */
	size_t n_ids;
	char **strings; /* hash set */
	size_t n_strings;
	size_t n_string_slots;
	struct lj_offsets **offsets;
	size_t n_offsets;
	struct vm **vms;
	size_t n_vms;
	char *text; /* of the last call */
	size_t text_size;
};

/* ---- storage ---- */

/* Make room for one more element. */
static int grow(void *array_addr, size_t n, size_t *room, size_t size)
{
	void *array;
	size_t new_room = *room ? 2 * *room : 64;

	if (n < *room)
		return 0;
	memcpy(&array, array_addr, sizeof(array));
	array = realloc(array, new_room * size);
	if (!array)
		return -ENOMEM;
	memcpy(array_addr, &array, sizeof(array));
	*room = new_room;
	return 0;
}

static uint64_t hash_bytes(const void *data, size_t size)
{
	const uint8_t *bytes = data;
	uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
	return hash ^ (hash >> 29);
}

static int strings_grow(struct lb_names *names)
{
	size_t n = names->n_string_slots ? 2 * names->n_string_slots : 256;
	char **strings;

	if (2 * names->n_strings < names->n_string_slots)
		return 0;
	strings = calloc(n, sizeof(*strings));
	if (!strings)
		return -ENOMEM;
	for (size_t i = 0; i < names->n_string_slots; i++) {
		char *string = names->strings[i];
		size_t k;

		if (!string)
			continue;
		k = hash_bytes(string, strlen(string));
		while (strings[k & (n - 1)])
			k++;
		strings[k & (n - 1)] = string;
	}
	free(names->strings);
	names->strings = strings;
	names->n_string_slots = n;
	return 0;
}

/* One copy of each string, for the life of @names; NULL without memory. */
static const char *intern(struct lb_names *names, const char *text)
{
	size_t i = hash_bytes(text, strlen(text));

	if (strings_grow(names))
		return NULL;
	for (;; i++) {
		char **slot = &names->strings[i & (names->n_string_slots - 1)];

		if (*slot && strcmp(*slot, text))
			continue;
		if (!*slot) {
			*slot = strdup(text);
			names->n_strings += *slot != NULL;
		}
		return *slot;
	}
}

static bool same_key(const struct key *a, const struct key *b)
{
	return a->addr == b->addr && a->chunk_addr == b->chunk_addr &&
	       a->first_line == b->first_line && a->size_bc == b->size_bc &&
	       a->chunk_id == b->chunk_id;
}

static int slots_grow(struct lb_names *names)
{
	size_t n = names->n_slots ? 2 * names->n_slots : 256;
	uint32_t *slots;

	if (2 * names->n_known < names->n_slots)
		return 0;
	slots = calloc(n, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < names->n_known; i++) {
		size_t k = hash_bytes(&names->known[i].key, sizeof(struct key));

		while (slots[k & (n - 1)])
			k++;
		slots[k & (n - 1)] = (uint32_t)i + 1;
	}
	free(names->slots);
	names->slots = slots;
	names->n_slots = n;
	return 0;
}

/*
 * Index of the prototype with @key, added when it is new.
 * Never keep a struct known pointer over this: the array moves.
 */
static int know(struct lb_names *names, const struct key *key, size_t *i_ret)
{
	size_t k = hash_bytes(key, sizeof(*key));
	uint32_t *slot;
	int err = slots_grow(names);

	if (err)
		return err;
	for (;; k++) {
		slot = &names->slots[k & (names->n_slots - 1)];
		if (!*slot)
			break;
		if (same_key(&names->known[*slot - 1].key, key)) {
			*i_ret = *slot - 1;
			return 0;
		}
	}
	if (names->n_known >= KNOWN_MAX)
		return -E2BIG;
	err = grow(&names->known, names->n_known, &names->room,
		   sizeof(*names->known));
	if (err)
		return err;
	memset(&names->known[names->n_known], 0, sizeof(*names->known));
	names->known[names->n_known].key = *key;
	*i_ret = names->n_known++;
	*slot = (uint32_t)names->n_known;
	return 0;
}

static struct key proto_key(const struct lb_proto *proto)
{
	return (struct key){ .addr = proto->addr,
			     .chunk_addr = proto->chunk_addr,
			     .first_line = proto->first_line,
			     .size_bc = proto->size_bc,
			     .chunk_id = proto->chunk_id };
}

int lb_names_new(lb_read_fn read, void *read_arg, struct lb_names **names_ret)
{
	struct lb_names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	names->read = read;
	names->read_arg = read_arg;
	*names_ret = names;
	return 0;
}

static void record_free(struct record *record)
{
	if (!record)
		return;
	free(record->chunk);
	free(record->text);
	free(record->calls);
	free(record->ops);
	free(record);
}

void lb_names_free(struct lb_names *names)
{
	if (!names)
		return;
	for (size_t i = 0; i < names->n_known; i++)
		record_free(names->known[i].record);
	for (size_t i = 0; i < names->n_string_slots; i++)
		free(names->strings[i]);
	for (size_t i = 0; i < names->n_offsets; i++)
		free(names->offsets[i]);
	for (size_t i = 0; i < names->n_vms; i++)
		free(names->vms[i]);
	free(names->known);
	free(names->slots);
	free(names->ids);
	free(names->strings);
	free(names->offsets);
	free(names->vms);
	free(names->text);
	free(names);
}

static int keep_offsets(struct lb_names *names,
			const struct lj_offsets *offsets,
			const struct lj_offsets **kept_ret)
{
	struct lj_offsets **list, *copy;

	for (size_t i = 0; i < names->n_offsets; i++) {
		if (!memcmp(names->offsets[i], offsets, sizeof(*offsets))) {
			*kept_ret = names->offsets[i];
			return 0;
		}
	}
	list = realloc(names->offsets, (names->n_offsets + 1) * sizeof(*list));
	if (!list)
		return -ENOMEM;
	names->offsets = list;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = *offsets;
	list[names->n_offsets++] = copy;
	*kept_ret = copy;
	return 0;
}

static struct vm *get_vm(struct lb_names *names, uint64_t g_addr)
{
	struct vm **vms, *vm;

	for (size_t i = 0; i < names->n_vms; i++) {
		if (names->vms[i]->g_addr == g_addr)
			return names->vms[i];
	}
	vms = realloc(names->vms, (names->n_vms + 1) * sizeof(struct vm *));
	if (!vms)
		return NULL;
	names->vms = vms;
	vm = calloc(1, sizeof(*vm));
	if (!vm)
		return NULL;
	vm->g_addr = g_addr;
	vms[names->n_vms++] = vm;
	return vm;
}

/* ---- evidence: definitions ---- */

/* `a.b` becomes `a:b` for a function whose first parameter is self. */
static const char *intern_path(struct lb_names *names,
			       const struct lb_path *path, bool colon)
{
	char text[LB_PATH_MAX];

	memcpy(text, path->text, path->len + 1U);
	if (colon && path->last && !path->cut)
		text[path->last - 1] = ':';
	return intern(names, text);
}

struct child {
	uint64_t addr;
	struct lb_path path;
	bool field;
};

struct children {
	struct child *child;
	size_t n;
	size_t room;
};

static int collect_child(void *arg, const struct lb_proto_child *child)
{
	struct children *children = arg;
	int err = grow(&children->child, children->n, &children->room,
		       sizeof(*children->child));

	if (err)
		return err;
	children->child[children->n++] = (struct child){
		.addr = child->addr, .path = *child->path, .field = child->field
	};
	return 0;
}

static int examine(struct lb_names *names, struct lb_target *target,
		   const struct lb_proto *proto, int depth);

static int define_child(struct lb_names *names, struct lb_target *target,
			const struct lb_proto *parent,
			const struct child *child, int depth)
{
	struct lb_proto proto;
	struct key key;
	size_t i;
	int err = lb_proto_read(target, child->addr, &proto);

	if (err)
		return err == -ENOMEM ? err : 0;
	if (proto.chunk_addr != parent->chunk_addr ||
	    proto.chunk_id != parent->chunk_id) {
		/* one chunk has one name: its memory has been used again */
		lb_proto_fini(&proto);
		return 0;
	}
	key = proto_key(&proto);
	err = know(names, &key, &i);
	if (!err)
		names->known[i].not_main = true;
	if (!err && child->path.len && !names->known[i].defined) {
		names->known[i].defined = intern_path(
			names, &child->path, lb_proto_has_self(&proto));
		names->known[i].defined_field = child->field;
	}
	if (!err)
		err = examine(names, target, &proto, depth);
	lb_proto_fini(&proto);
	return err == -ENOMEM ? err : 0;
}

/*
 * Learn the definitions of the children of @proto, and of theirs. Only -ENOMEM
 * is an error: what cannot be read stays without a name.
 */
static int examine(struct lb_names *names, struct lb_target *target,
		   const struct lb_proto *proto, int depth)
{
	struct children children = { .child = NULL };
	struct key key = proto_key(proto);
	size_t i;
	int err = know(names, &key, &i);

	if (err || names->known[i].examined || depth > CHILD_DEPTH)
		return err == -ENOMEM ? err : 0;
	if (!lb_proto_is_vararg(target->off, proto))
		names->known[i].not_main = true;
	err = lb_proto_each_child(target, proto, collect_child, &children);
	if (!err)
		err = lb_proto_check(target, proto);
	if (!err)
		names->known[i].examined = true;
	for (size_t k = 0; k < children.n && !err; k++)
		err = define_child(names, target, proto, &children.child[k],
				   depth + 1);
	free(children.child);
	return err == -ENOMEM ? err : 0;
}

/* ---- evidence: records ---- */

struct calls {
	struct lb_names *names;
	struct call *call;
	size_t n;
	size_t room;
};

static int collect_call(void *arg, uint32_t pos, const char *name)
{
	struct calls *calls = arg;
	int err = grow(&calls->call, calls->n, &calls->room,
		       sizeof(*calls->call));

	if (err)
		return err;
	calls->call[calls->n].pos = pos;
	calls->call[calls->n].name = intern(calls->names, name);
	return calls->call[calls->n++].name ? 0 : -ENOMEM;
}

static int keep_calls(struct lb_names *names, struct lb_target *target,
		      const struct lb_proto *proto, struct record *record)
{
	struct calls calls = { .names = names };
	int err = lb_proto_each_call(target, proto, collect_call, &calls);

	if (!err)
		err = lb_proto_check(target, proto);
	if (err) {
		free(calls.call);
		return err;
	}
	record->calls = calls.call;
	record->n_calls = calls.n;
	record->ops = malloc(proto->size_bc);
	if (!record->ops)
		return -ENOMEM;
	for (uint32_t pos = 0; pos < proto->size_bc; pos++)
		record->ops[pos] =
			(uint8_t)lb_proto_op(record->off, proto, pos);
	return 0;
}

/* Text of a chunk name; the caller frees it. NULL without memory. */
static char *chunk_text(const struct lb_proto_rec *rec)
{
	char buf[4 * LB_CHUNK_MAX + 32];
	const char *chunk = rec->chunk;
	size_t got =
		rec->chunk_got < LB_CHUNK_MAX ? rec->chunk_got : LB_CHUNK_MAX;
	bool cut = rec->chunk_len > got;
	bool builtin = rec->first_line == LB_BUILTIN_LINE; /* plain name */
	bool source = got && *chunk != '@' && *chunk != '=' && !builtin;
	size_t n = 0, shown;

	if (!got && cut)
		return strdup("?");
	if (source) {
		const char *end = memchr(chunk, '\n', got);

		n = (size_t)sprintf(buf, "[string \"");
		shown = end ? (size_t)(end - chunk) : got;
		if (shown > SOURCE_MAX)
			shown = SOURCE_MAX;
		cut = cut || shown < got;
	} else {
		shown = got - (got && !builtin ? 1 : 0);
		chunk += got - shown;
	}
	if (cut)
		shown = lb_utf8_floor(chunk, shown);
	n += lb_escape(chunk, shown, buf + n, sizeof(buf) - n - 8);
	sprintf(buf + n, "%s%s", cut ? "..." : "", source ? "\"]" : "");
	return strdup(buf);
}

/* Read what the prototype of a record can tell, if it is still there. */
static int study(struct lb_names *names, const struct lb_proto_rec *rec,
		 struct record *record)
{
	struct lb_target target = { .read = names->read,
				    .read_arg = names->read_arg,
				    .off = record->off,
				    .budget = ADD_BUDGET };
	struct lb_proto proto;
	int err = lb_proto_read(&target, rec->proto_addr, &proto);

	if (err)
		return err;
	if (proto.chunk_addr == rec->chunk_addr &&
	    proto.chunk_id == rec->chunk_id &&
	    proto.first_line == rec->first_line &&
	    proto.num_line == rec->num_line && proto.size_bc == rec->size_bc) {
		err = examine(names, &target, &proto, 0);
		if (!err)
			err = keep_calls(names, &target, &proto, record);
	}
	lb_proto_fini(&proto);
	return err;
}

static int record_new(struct lb_names *names, const struct lb_proto_rec *rec,
		      const struct lj_offsets *offsets,
		      struct record **record_ret)
{
	struct record *record = calloc(1, sizeof(*record));
	int err;

	if (!record)
		return -ENOMEM;
	record->chunk = chunk_text(rec);
	err = record->chunk ? keep_offsets(names, offsets, &record->off)
			    : -ENOMEM;
	if (!err && study(names, rec, record) == -ENOMEM)
		err = -ENOMEM;
	if (err) {
		record_free(record);
		return err;
	}
	*record_ret = record;
	return 0;
}

int lb_names_add_proto(struct lb_names *names, const struct lb_proto_rec *rec,
		       const struct lj_offsets *offsets, uint32_t *id_ret)
{
	struct key key = { .addr = rec->proto_addr,
			   .chunk_addr = rec->chunk_addr,
			   .first_line = rec->first_line,
			   .size_bc = rec->size_bc,
			   .chunk_id = rec->chunk_id };
	struct record *record;
	uint32_t *ids;
	size_t i;
	int err = know(names, &key, &i);

	if (err)
		return err;
	if (names->known[i].record) {
		*id_ret = names->known[i].id;
		return 0;
	}
	ids = realloc(names->ids, (names->n_ids + 1) * sizeof(*ids));
	if (!ids)
		return -ENOMEM;
	names->ids = ids;
	err = record_new(names, rec, offsets, &record);
	if (err)
		return err;
	ids[names->n_ids++] = (uint32_t)i;
	names->known[i].record = record;
	names->known[i].id = (uint32_t)names->n_ids;
	*id_ret = names->known[i].id;
	return 0;
}

static struct known *by_id(struct lb_names *names, uint32_t id)
{
	if (!id || id > names->n_ids)
		return NULL;
	return &names->known[names->ids[id - 1]];
}

/* ---- evidence: calls ---- */

static int by_pos(const void *key, const void *elem)
{
	const uint32_t *pos = key;
	const struct call *call = elem;

	return *pos < call->pos ? -1 : *pos > call->pos;
}

void lb_names_add_call(struct lb_names *names, uint32_t caller_id,
		       uint32_t caller_pos, uint32_t callee_id)
{
	struct known *caller = by_id(names, caller_id);
	struct known *callee = by_id(names, callee_id);
	const struct record *record;
	const struct call *call;
	const char *meta;

	if (!caller || !callee || callee->called || callee->record->text)
		return;
	record = caller->record;
	if (!record->ops || caller_pos >= caller->key.size_bc)
		return;
	call = record->n_calls
		       ? bsearch(&caller_pos, record->calls, record->n_calls,
				 sizeof(*record->calls), by_pos)
		       : NULL;
	if (call) {
		callee->called = call->name;
		return;
	}
	meta = lb_proto_metamethod(record->off, record->ops[caller_pos]);
	if (meta)
		callee->called = intern(names, meta);
}

/* ---- evidence: tables ---- */

struct scan {
	struct lb_names *names;
	struct vm *vm;
};

/* Libraries whose names for their own functions are the known ones. */
static bool is_standard(const char *path)
{
	static const char *const libs[] = {
		"bit.", "coroutine.", "debug.", "ffi.",	    "file:",   "io.",
		"jit.", "math.",      "os.",	"package.", "string.", "table."
	};

	for (size_t i = 0; i < sizeof(libs) / sizeof(libs[0]); i++) {
		if (!strncmp(path, libs[i], strlen(libs[i])))
			return true;
	}
	return false;
}

static unsigned int builtin_rank(const char *name, const struct lb_place *place)
{
	if (is_standard(name))
		return 0;
	return place->source == LB_SOURCE_GLOBAL ? 1 : 2;
}

/* Is a name found at (rank, depth) better than @old? */
static bool is_better(unsigned int rank, unsigned int depth, const char *name,
		      const char *old, unsigned int old_rank,
		      unsigned int old_depth)
{
	if (!old)
		return true;
	if (rank != old_rank)
		return rank < old_rank;
	if (depth != old_depth)
		return depth < old_depth;
	return strcmp(name, old) < 0;
}

static int found_lua(void *arg, struct lb_target *target,
		     const struct lb_proto *proto, const struct lb_place *place)
{
	struct scan *scan = arg;
	struct key key = proto_key(proto);
	struct known *known;
	unsigned int rank = place->source;
	const char *name;
	size_t i;
	int err = know(scan->names, &key, &i);

	if (err)
		return err == -ENOMEM ? err : 0;
	if (place->path->len) {
		name = intern_path(scan->names, place->path,
				   place->colon || lb_proto_has_self(proto));
		if (!name)
			return -ENOMEM;
		if (proto->first_line == LB_BUILTIN_LINE)
			rank = builtin_rank(name, place);
		known = &scan->names->known[i];
		if (is_better(rank, place->depth, name, known->placed,
			      known->placed_rank, known->placed_depth)) {
			known->placed = name;
			known->placed_rank = (uint8_t)rank;
			known->placed_depth = (uint8_t)place->depth;
		}
	}
	return examine(scan->names, target, proto, 0);
}

static int found_fast(void *arg, unsigned int ffid,
		      const struct lb_place *place)
{
	struct scan *scan = arg;
	struct fast *fast = &scan->vm->fast[ffid % FFIDS];
	unsigned int rank;
	const char *name;

	if (!place->path->len) /* nothing to learn */
		return 0;
	name = intern_path(scan->names, place->path, place->colon);
	if (!name)
		return -ENOMEM;
	rank = builtin_rank(name, place);
	if (is_better(rank, place->depth, name, fast->name, fast->rank,
		      fast->depth)) {
		fast->name = name;
		fast->rank = (uint8_t)rank;
		fast->depth = (uint8_t)place->depth;
	}
	return 0;
}

static bool anything_unnamed(const struct lb_names *names, const struct vm *vm)
{
	for (size_t i = 0; i < names->n_ids; i++) {
		const struct known *known = &names->known[names->ids[i]];

		if (!known->record->text && !known->defined && !known->placed)
			return true;
	}
	return !vm->scanned;
}

int lb_names_scan_tables(struct lb_names *names, uint64_t g_addr,
			 const struct lj_offsets *offsets)
{
	struct lb_target target = { .read = names->read,
				    .read_arg = names->read_arg,
				    .off = offsets,
				    .budget = SCAN_BUDGET };
	struct scan scan = { .names = names, .vm = get_vm(names, g_addr) };
	struct lb_globals_sink sink = { .arg = &scan,
					.lua = found_lua,
					.fast = found_fast };

	if (!scan.vm)
		return -ENOMEM;
	if (!anything_unnamed(names, scan.vm))
		return 0;
	scan.vm->scanned = true;
	return lb_globals_walk(&target, g_addr, &sink);
}

/* ---- text ---- */

/* Is @part the last component of @path, or all of it? */
static bool is_last(const char *path, const char *part)
{
	size_t n = strlen(path), m = strlen(part);

	if (m > n || strcmp(path + n - m, part))
		return false;
	return m == n || path[n - m - 1] == '.' || path[n - m - 1] == ':';
}

static const char *settle_name(const struct known *known)
{
	const char *placed = known->placed;

	if (known->key.first_line == LB_BUILTIN_LINE) {
		if (placed && is_last(placed, known->record->chunk))
			return placed;
		return known->record->chunk;
	}
	/* stripped functions have no first line either */
	if (!known->key.first_line && !known->not_main)
		return "main";
	/* `{ f = function ... }` of a module: the table's name is elsewhere */
	if (known->defined_field && placed && is_last(placed, known->defined))
		return placed;
	if (known->defined)
		return known->defined;
	if (placed)
		return placed;
	return known->called ? known->called : "?";
}

static const char *settle_text(const struct known *known)
{
	struct record *record = known->record;
	bool builtin = known->key.first_line == LB_BUILTIN_LINE;

	if (!record->text &&
	    asprintf(&record->text, "%s@%s", settle_name(known),
		     builtin ? "[builtin]" : record->chunk) < 0)
		record->text = NULL;
	return record->text;
}

const char *lb_names_proto_text(struct lb_names *names, uint32_t id,
				uint32_t line)
{
	const struct known *known = by_id(names, id);
	const char *text = known ? settle_text(known) : NULL;
	size_t size;

	if (!text)
		return "?@?:0";
	if (known->key.first_line == LB_BUILTIN_LINE)
		return text;
	if (line == LB_LINE_UNKNOWN)
		line = known->key.first_line;
	size = strlen(text) + 16;
	if (size > names->text_size) {
		char *bigger = realloc(names->text, size);

		if (!bigger)
			return text;
		names->text = bigger;
		names->text_size = size;
	}
	snprintf(names->text, names->text_size, "%s:%u", text, line);
	return names->text;
}

/*
 * Functions that no table holds: what ipairs, string.gmatch and coroutine.wrap
 * return. The library lists each right before the one that returns it, and
 * numbers follow the list.
 */
static const char *aux_name(const struct vm *vm, uint32_t ffid)
{
	const char *next = ffid + 1 < FFIDS ? vm->fast[ffid + 1].name : NULL;

	if (!next)
		return NULL;
	if (!strcmp(next, "ipairs"))
		return "ipairs_aux";
	if (!strcmp(next, "string.gmatch"))
		return "string.gmatch_aux";
	if (!strcmp(next, "coroutine.wrap"))
		return "coroutine.wrap_aux";
	return NULL;
}

const char *lb_names_fast_name(struct lb_names *names, uint64_t g_addr,
			       uint32_t ffid)
{
	struct vm *vm = get_vm(names, g_addr);

	return vm && ffid < FFIDS ? vm->fast[ffid].name : NULL;
}

const char *lb_names_fast_text(struct lb_names *names, uint64_t g_addr,
			       uint32_t ffid)
{
	struct vm *vm = get_vm(names, g_addr);
	char text[LB_PATH_MAX + 16], number[32];
	struct fast *fast;
	const char *name;

	if (!vm)
		return "builtin@[builtin]";
	fast = &vm->fast[ffid % FFIDS];
	if (fast->text && ffid < FFIDS)
		return fast->text;
	snprintf(number, sizeof(number), "builtin#%u", ffid);
	name = ffid < FFIDS ? fast->name : NULL;
	if (!name && ffid < FFIDS)
		name = aux_name(vm, ffid);
	snprintf(text, sizeof(text), "%s@[builtin]", name ? name : number);
	name = intern(names, text);
	if (!name)
		return "builtin@[builtin]";
	if (ffid < FFIDS)
		fast->text = name;
	return name;
}
