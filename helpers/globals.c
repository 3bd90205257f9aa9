/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a VM, walked for functions.
 *
 * A queue of tables, closures and threads, each with the name it was reached
 * by; an object is visited once, under the first name. The entries of a table
 * are taken in order of their keys: the order of the hash part changes from run
 * to run, and names must not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "globals.h"

#define QUEUE_MAX  (1U << 16) /* objects of one walk */
#define DEPTH_MAX  24	      /* objects on the way to one */
#define NODES_MAX  (1U << 14) /* of one table's hash part */
#define ARRAY_MAX  4096	      /* of one table's array part */
#define STACK_MAX  512	      /* slots of one thread */
#define ROOTS_MAX  128
#define OBJECT_MAX 256 /* bytes of an object's header */
#define CHUNK	   4096

struct item {
	uint64_t addr;
	char *path; /* NULL: empty */
	uint16_t last;
	bool cut;
	uint8_t type; /* enum lb_lua_type */
	uint8_t source;
	uint8_t depth;
	bool colon;    /* functions in it are methods */
	bool any_keys; /* follow values under keys that are no strings */
};

struct entry { /* of a table */
	uint64_t value;
	struct lb_path path;
};

struct walk {
	struct lb_target *target;
	const struct lj_offsets *off;
	const struct lb_globals_sink *sink;
	struct item *items;
	size_t n_items;
	size_t room;
	uint64_t *seen; /* hash set of addresses */
	size_t n_seen;
	size_t seen_size; /* a power of two */
	bool cut;
};

/* ---- the queue ---- */

static uint64_t *seen_slot(uint64_t *seen, size_t size, uint64_t addr)
{
	size_t i = (addr * 0x9e3779b97f4a7c15ULL) >> 32;

	while (seen[i & (size - 1)] && seen[i & (size - 1)] != addr)
		i++;
	return &seen[i & (size - 1)];
}

static int seen_grow(struct walk *walk)
{
	size_t size = walk->seen_size ? 2 * walk->seen_size : 1024;
	uint64_t *seen = calloc(size, sizeof(*seen));

	if (!seen)
		return -ENOMEM;
	for (size_t i = 0; i < walk->seen_size; i++) {
		if (walk->seen[i])
			*seen_slot(seen, size, walk->seen[i]) = walk->seen[i];
	}
	free(walk->seen);
	walk->seen = seen;
	walk->seen_size = size;
	return 0;
}

/* Return: 1 when @addr is new, 0 when it is not, -ENOMEM. */
static int see(struct walk *walk, uint64_t addr)
{
	uint64_t *slot;

	if (2 * walk->n_seen >= walk->seen_size && seen_grow(walk))
		return -ENOMEM;
	slot = seen_slot(walk->seen, walk->seen_size, addr);
	if (*slot || !addr)
		return 0;
	*slot = addr;
	walk->n_seen++;
	return 1;
}

static int push(struct walk *walk, struct item item, const struct lb_path *path)
{
	int is_new;

	if (!item.addr)
		return 0;
	if (item.depth > DEPTH_MAX || walk->n_items >= QUEUE_MAX) {
		walk->cut = true;
		return 0;
	}
	is_new = see(walk, item.addr);
	if (is_new <= 0)
		return is_new;
	if (walk->n_items == walk->room) {
		size_t room = walk->room ? 2 * walk->room : 256;
		struct item *items =
			realloc(walk->items, room * sizeof(*items));

		if (!items)
			return -ENOMEM;
		walk->items = items;
		walk->room = room;
	}
	if (path && path->len) {
		item.path = strdup(path->text);
		item.last = path->last;
		item.cut = path->cut;
		if (!item.path)
			return -ENOMEM;
	}
	walk->items[walk->n_items++] = item;
	return 0;
}

static void item_path(const struct item *item, struct lb_path *path)
{
	lb_path_clear(path);
	if (!item->path)
		return;
	path->len = (uint16_t)strlen(item->path);
	path->last = item->last;
	path->cut = item->cut;
	memcpy(path->text, item->path, path->len + 1U);
}

/* ---- objects ---- */

/* Header of an object up to and with the reference at @last_field. */
static int read_object(struct walk *walk, uint64_t addr, unsigned int type,
		       uint32_t last_field, uint8_t *buf)
{
	size_t size = last_field + lb_target_ref_size(walk->target);
	int err;

	if (last_field > OBJECT_MAX - 8 || walk->off->fn_gct >= size)
		return -EINVAL;
	err = lb_target_read(walk->target, addr, buf, size);
	if (err)
		return err;
	return buf[walk->off->fn_gct] == type ? 0 : -EBADMSG;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint64_t object_ref(const struct walk *walk, const uint8_t *data,
			   uint32_t off)
{
	return lb_target_ref(walk->target, data + off);
}

/* Only running out of memory or of budget ends the walk. */
static int soften(struct walk *walk, int err)
{
	if (err == -E2BIG && !walk->target->budget) {
		walk->cut = true;
		return -E2BIG;
	}
	return err == -ENOMEM ? err : 0;
}

struct func {
	uint64_t proto_addr;
	uint64_t env;
	unsigned int ffid;
	unsigned int n_upvalues;
};

static int read_func(struct walk *walk, uint64_t addr, struct func *func_ret)
{
	const struct lj_offsets *off = walk->off;
	uint8_t buf[OBJECT_MAX];
	int err = read_object(walk, addr, LB_LUA_FUNC,
			      max_u32(max_u32(off->fn_pc, off->fn_env),
				      max_u32(off->fn_ffid, off->fn_nupvalues)),
			      buf);

	if (err)
		return err;
	func_ret->ffid = buf[off->fn_ffid];
	func_ret->n_upvalues = buf[off->fn_nupvalues];
	func_ret->env = object_ref(walk, buf, off->fn_env);
	func_ret->proto_addr = object_ref(walk, buf, off->fn_pc) - off->pt_size;
	return 0;
}

static int report_func(struct walk *walk, uint64_t addr,
		       const struct lb_place *place)
{
	struct lb_proto proto;
	struct func func;
	int err = read_func(walk, addr, &func);

	if (err)
		return soften(walk, err);
	if (func.ffid >= 2)
		return walk->sink->fast(walk->sink->arg, func.ffid, place);
	if (func.ffid == 1) /* a C function of others */
		return 0;
	err = lb_proto_read(walk->target, func.proto_addr, &proto);
	if (err)
		return soften(walk, err);
	err = walk->sink->lua(walk->sink->arg, walk->target, &proto, place);
	lb_proto_fini(&proto);
	return err;
}

/*
 * A value was found: report it when it is a function, and queue it.
 * @any_keys: for a table, see struct item
 */
static int add_value(struct walk *walk, uint64_t value,
		     const struct lb_place *place, bool any_keys)
{
	unsigned int type = lb_target_type(walk->target, value);
	struct item item = { .addr = lb_target_object(walk->target, value),
			     .type = (uint8_t)type,
			     .source = (uint8_t)place->source,
			     .depth = (uint8_t)(place->depth + 1),
			     .any_keys = any_keys };

	if (type == LB_LUA_FUNC) {
		int err = report_func(walk, item.addr, place);

		return err ? err : push(walk, item, place->path);
	}
	if (type == LB_LUA_TAB || type == LB_LUA_UDATA || type == LB_LUA_THREAD)
		return push(walk, item, place->path);
	return 0;
}

/* ---- tables ---- */

struct table {
	uint64_t array;
	uint64_t node;
	uint64_t metatable;
	uint32_t asize;
	uint32_t n_nodes;
};

static int read_table(struct walk *walk, uint64_t addr, struct table *table_ret)
{
	const struct lj_offsets *off = walk->off;
	uint8_t buf[OBJECT_MAX];
	uint32_t hmask;
	int err = read_object(
		walk, addr, LB_LUA_TAB,
		max_u32(max_u32(off->tab_array, off->tab_node),
			max_u32(max_u32(off->tab_asize, off->tab_hmask),
				off->tab_metatable)),
		buf);

	if (err)
		return err;
	table_ret->array = object_ref(walk, buf, off->tab_array);
	table_ret->node = object_ref(walk, buf, off->tab_node);
	table_ret->metatable = object_ref(walk, buf, off->tab_metatable);
	memcpy(&table_ret->asize, buf + off->tab_asize, sizeof(uint32_t));
	memcpy(&hmask, buf + off->tab_hmask, sizeof(hmask));
	if (hmask & (hmask + 1)) /* not one less than a power of two */
		return -EBADMSG;
	if (hmask >= NODES_MAX || table_ret->asize > ARRAY_MAX)
		walk->cut = true;
	table_ret->n_nodes = hmask < NODES_MAX ? hmask + 1 : NODES_MAX;
	if (table_ret->asize > ARRAY_MAX)
		table_ret->asize = ARRAY_MAX;
	return 0;
}

static bool is_interesting(const struct walk *walk, uint64_t value, bool any)
{
	unsigned int type = lb_target_type(walk->target, value);

	return type == LB_LUA_FUNC ||
	       (any && (type == LB_LUA_TAB || type == LB_LUA_UDATA ||
			type == LB_LUA_THREAD));
}

static int add_nameless(struct walk *walk, uint64_t value, unsigned int depth)
{
	struct lb_path path;
	struct lb_place place = { .path = &path,
				  .source = LB_SOURCE_TABLE,
				  .depth = depth };

	lb_path_clear(&path);
	return add_value(walk, value, &place, false);
}

/* TValues without names: array parts, stacks, upvalues of C functions. */
static int add_array(struct walk *walk, uint64_t addr, uint32_t n, bool any,
		     unsigned int depth)
{
	uint64_t values[CHUNK / 8];

	for (uint32_t i = 0; i < n;) {
		uint32_t some = n - i < CHUNK / 8 ? n - i : CHUNK / 8;
		int err = lb_target_read(walk->target, addr + 8ULL * i, values,
					 8 * some);

		if (err)
			return soften(walk, err);
		for (uint32_t k = 0; k < some; k++) {
			if (!is_interesting(walk, values[k], any))
				continue;
			err = add_nameless(walk, values[k], depth);
			if (err)
				return err;
		}
		i += some;
	}
	return 0;
}

struct entries {
	struct entry *entry;
	size_t n;
	size_t room;
};

static int entries_add(struct entries *entries, uint64_t value,
		       const struct lb_path *path)
{
	if (entries->n == entries->room) {
		size_t room = entries->room ? 2 * entries->room : 16;
		struct entry *entry =
			realloc(entries->entry, room * sizeof(*entry));

		if (!entry)
			return -ENOMEM;
		entries->entry = entry;
		entries->room = room;
	}
	entries->entry[entries->n].value = value;
	entries->entry[entries->n].path = *path;
	entries->n++;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return strcmp(x->path.text, y->path.text);
}

static int add_node(struct walk *walk, const struct item *item,
		    const uint8_t *node, struct entries *entries)
{
	uint64_t key, value;
	struct lb_path path;
	int err;

	memcpy(&key, node + walk->off->node_key, sizeof(key));
	memcpy(&value, node + walk->off->node_val, sizeof(value));
	if (lb_target_type(walk->target, key) != LB_LUA_STR) {
		if (is_interesting(walk, value, item->any_keys))
			return add_nameless(walk, value, item->depth);
		return 0;
	}
	if (!is_interesting(walk, value, true))
		return 0;
	item_path(item, &path);
	err = lb_path_add_str(walk->target, &path, '.',
			      lb_target_object(walk->target, key));
	if (err)
		return soften(walk, err);
	return entries_add(entries, value, &path);
}

/* Entries with a string as key and a value of interest, by key. */
static int read_entries(struct walk *walk, const struct item *item,
			const struct table *table, struct entries *entries)
{
	uint32_t size = walk->off->node_size;
	uint8_t nodes[CHUNK];
	uint32_t at_once;

	if (size < 16 || size > 64 || walk->off->node_key > size - 8 ||
	    walk->off->node_val > size - 8)
		return -EINVAL;
	at_once = CHUNK / size;
	for (uint32_t i = 0; i < table->n_nodes;) {
		uint32_t some = table->n_nodes - i;
		int err;

		if (some > at_once)
			some = at_once;
		err = lb_target_read(walk->target,
				     table->node + (uint64_t)size * i, nodes,
				     (size_t)size * some);
		if (err)
			return soften(walk, err);
		for (uint32_t k = 0; k < some; k++) {
			err = add_node(walk, item, nodes + size * k, entries);
			if (err)
				return err;
		}
		i += some;
	}
	if (entries->n)
		qsort(entries->entry, entries->n, sizeof(*entries->entry),
		      by_path);
	return 0;
}

/* A metatable, and the table its __index gives, have the name of the owner. */
static int add_metatable(struct walk *walk, const struct item *item,
			 uint64_t addr)
{
	struct item meta = { .addr = addr,
			     .type = LB_LUA_TAB,
			     .source = item->source,
			     .depth = (uint8_t)(item->depth + 1),
			     .colon = item->colon };
	struct lb_path path;

	item_path(item, &path);
	return push(walk, meta, &path);
}

static int add_entries(struct walk *walk, const struct item *item,
		       const struct entries *entries)
{
	for (size_t i = 0; i < entries->n; i++) {
		const struct entry *entry = &entries->entry[i];
		const char *key = entry->path.text + entry->path.last;
		struct lb_place place = { .path = &entry->path,
					  .source = item->source,
					  .depth = item->depth,
					  .colon = item->colon };
		int err;

		if (!strcmp(key, "__index") &&
		    lb_target_type(walk->target, entry->value) == LB_LUA_TAB)
			err = add_metatable(
				walk, item,
				lb_target_object(walk->target, entry->value));
		else
			err = add_value(walk, entry->value, &place, false);
		if (err)
			return err;
	}
	return 0;
}

static int visit_table(struct walk *walk, const struct item *item)
{
	struct entries entries = { .entry = NULL };
	struct table table;
	int err = read_table(walk, item->addr, &table);

	if (err)
		return soften(walk, err);
	err = read_entries(walk, item, &table, &entries);
	if (!err)
		err = add_entries(walk, item, &entries);
	free(entries.entry);
	if (!err && table.metatable)
		err = add_metatable(walk, item, table.metatable);
	if (!err)
		err = add_array(walk, table.array, table.asize, item->any_keys,
				item->depth);
	return err;
}

/* Last component of a module's name: `trim` of "app.trim". */
static void add_module_name(struct lb_path *path)
{
	char name[LB_PATH_MAX];
	const char *begin = path->text;

	for (const char *c = path->text; *c; c++) {
		if ((*c == '.' || *c == '/') && c[1] && c[1] != '.')
			begin = c + 1;
	}
	strcpy(name, begin);
	lb_path_clear(path);
	lb_path_add(path, '.', name, strlen(name));
}

static int visit_loaded(struct walk *walk, uint64_t addr)
{
	struct item item = { .addr = addr, .source = LB_SOURCE_MODULE };
	struct entries entries = { .entry = NULL };
	struct table table;
	int err = read_table(walk, addr, &table);

	if (err)
		return soften(walk, err);
	err = see(walk, addr); /* not once more as `package.loaded` */
	if (err < 0)
		return err;
	err = read_entries(walk, &item, &table, &entries);
	for (size_t i = 0; i < entries.n && !err; i++) {
		struct entry *entry = &entries.entry[i];
		struct lb_place place = { .path = &entry->path,
					  .source = LB_SOURCE_MODULE };

		add_module_name(&entry->path);
		err = add_value(walk, entry->value, &place, false);
	}
	free(entries.entry);
	return err;
}

/* ---- closures, userdata, threads ---- */

static int visit_upvalue(struct walk *walk, uint64_t addr, const char *name,
			 unsigned int depth)
{
	struct lb_path path;
	struct lb_place place = { .path = &path, .depth = depth };
	uint8_t buf[OBJECT_MAX];
	uint64_t value;
	int err = read_object(walk, addr, LB_LUA_UPVAL, walk->off->uv_v, buf);

	if (!err)
		err = lb_target_read(walk->target,
				     object_ref(walk, buf, walk->off->uv_v),
				     &value, sizeof(value));
	if (err)
		return soften(walk, err);
	lb_path_clear(&path);
	if (name)
		lb_path_add(&path, '.', name, strlen(name));
	place.source = lb_target_type(walk->target, value) == LB_LUA_FUNC
			       ? LB_SOURCE_UPVALUE
			       : LB_SOURCE_TABLE;
	return add_value(walk, value, &place, false);
}

static int visit_lua_upvalues(struct walk *walk, uint64_t addr,
			      const struct func *func, unsigned int depth)
{
	size_t ref = lb_target_ref_size(walk->target);
	struct lb_proto proto;
	uint8_t refs[256 * 8];
	int err;

	err = lb_target_read(walk->target, addr + walk->off->fn_uvptr, refs,
			     func->n_upvalues * ref);
	if (!err)
		err = lb_proto_read(walk->target, func->proto_addr, &proto);
	if (err)
		return soften(walk, err);
	for (unsigned int i = 0; i < func->n_upvalues && !err; i++)
		err = visit_upvalue(walk,
				    lb_target_ref(walk->target, refs + i * ref),
				    lb_proto_upvalue_name(&proto, i), depth);
	lb_proto_fini(&proto);
	return err;
}

static int visit_func(struct walk *walk, const struct item *item)
{
	struct item env = { .type = LB_LUA_TAB,
			    .source = LB_SOURCE_TABLE,
			    .depth = (uint8_t)(item->depth + 1) };
	struct func func;
	int err = read_func(walk, item->addr, &func);

	if (err)
		return soften(walk, err);
	env.addr = func.env;
	err = push(walk, env, NULL);
	if (err || !func.n_upvalues)
		return err;
	if (func.ffid)
		return add_array(walk, item->addr + walk->off->fn_upvalue,
				 func.n_upvalues, true, item->depth);
	return visit_lua_upvalues(walk, item->addr, &func, item->depth);
}

static int visit_udata(struct walk *walk, const struct item *item)
{
	uint8_t buf[OBJECT_MAX];
	int err = read_object(walk, item->addr, LB_LUA_UDATA,
			      walk->off->ud_metatable, buf);

	if (err)
		return soften(walk, err);
	return add_metatable(walk, item,
			     object_ref(walk, buf, walk->off->ud_metatable));
}

static int visit_thread(struct walk *walk, const struct item *item)
{
	const struct lj_offsets *off = walk->off;
	struct item env = { .type = LB_LUA_TAB,
			    .source = LB_SOURCE_TABLE,
			    .depth = (uint8_t)(item->depth + 1) };
	uint8_t buf[OBJECT_MAX];
	uint64_t stack, end, n = 0;
	int err = read_object(
		walk, item->addr, LB_LUA_THREAD,
		max_u32(max_u32(off->l_stack, off->l_maxstack), off->l_env),
		buf);

	if (err)
		return soften(walk, err);
	env.addr = object_ref(walk, buf, off->l_env);
	err = push(walk, env, NULL);
	if (err)
		return err;
	stack = object_ref(walk, buf, off->l_stack);
	end = object_ref(walk, buf, off->l_maxstack);
	if (end > stack)
		n = (end - stack) / 8;
	if (n > STACK_MAX) {
		walk->cut = true;
		n = STACK_MAX;
	}
	return add_array(walk, stack, (uint32_t)n, false, item->depth);
}

static int visit(struct walk *walk, const struct item *item)
{
	switch (item->type) {
	case LB_LUA_TAB:
		return visit_table(walk, item);
	case LB_LUA_FUNC:
		return visit_func(walk, item);
	case LB_LUA_UDATA:
		return visit_udata(walk, item);
	case LB_LUA_THREAD:
		return visit_thread(walk, item);
	default:
		return 0;
	}
}

/* ---- roots ---- */

static int main_env(struct walk *walk, uint64_t l_addr, uint64_t *env_ret)
{
	uint8_t buf[OBJECT_MAX];
	int err =
		read_object(walk, l_addr, LB_LUA_THREAD, walk->off->l_env, buf);

	if (!err)
		*env_ret = object_ref(walk, buf, walk->off->l_env);
	return err;
}

/* package.loaded, and the metatable of files, by name out of the registry. */
static int add_registry(struct walk *walk, uint64_t registry)
{
	struct item item = { .addr = registry };
	struct entries entries = { .entry = NULL };
	struct table table;
	int err = read_table(walk, registry, &table);

	if (err)
		return err;
	err = read_entries(walk, &item, &table, &entries);
	for (size_t i = 0; i < entries.n && !err; i++) {
		const struct entry *entry = &entries.entry[i];
		struct item file = { .addr = lb_target_object(walk->target,
							      entry->value),
				     .type = LB_LUA_TAB,
				     .source = LB_SOURCE_MODULE,
				     .colon = true };
		struct lb_path path;

		if (lb_target_type(walk->target, entry->value) != LB_LUA_TAB)
			continue;
		if (!strcmp(entry->path.text, "_LOADED")) {
			err = visit_loaded(walk, file.addr);
		} else if (!strcmp(entry->path.text, "FILE*")) {
			lb_path_clear(&path);
			lb_path_add(&path, '.', "file", 4);
			err = push(walk, file, &path);
		}
	}
	free(entries.entry);
	return err;
}

static int add_gcroots(struct walk *walk, uint64_t g_addr)
{
	size_t ref = lb_target_ref_size(walk->target);
	uint8_t refs[ROOTS_MAX * 8], buf[OBJECT_MAX];
	uint32_t n = walk->off->g_n_gcroot;
	int err;

	if (n > ROOTS_MAX)
		n = ROOTS_MAX;
	if (!n)
		return 0;
	err = lb_target_read(walk->target, g_addr + walk->off->g_gcroot, refs,
			     n * ref);
	for (uint32_t i = 0; i < n && !err; i++) {
		struct item item = { .addr = lb_target_ref(walk->target,
							   refs + i * ref),
				     .type = LB_LUA_TAB,
				     .source = LB_SOURCE_TABLE,
				     .depth = 1 };

		if (!item.addr)
			continue;
		if (read_object(walk, item.addr, LB_LUA_TAB,
				walk->off->tab_metatable, buf))
			continue; /* a string, mostly */
		err = push(walk, item, NULL);
	}
	return soften(walk, err);
}

/* The best names first: what is queued earlier is named earlier. */
static int add_roots(struct walk *walk, uint64_t g_addr)
{
	size_t ref = lb_target_ref_size(walk->target);
	struct item item = { .type = LB_LUA_TAB, .source = LB_SOURCE_GLOBAL };
	uint64_t registry_tv, l_addr;
	uint8_t buf[8];
	int err;

	err = lb_target_read(walk->target, g_addr + walk->off->g_mainthref, buf,
			     ref);
	if (err)
		return err;
	l_addr = lb_target_ref(walk->target, buf);
	err = main_env(walk, l_addr, &item.addr);
	if (!err)
		err = push(walk, item, NULL);
	if (!err)
		err = lb_target_read(walk->target,
				     g_addr + walk->off->g_registry,
				     &registry_tv, sizeof(registry_tv));
	if (err)
		return err;
	item.addr = lb_target_object(walk->target, registry_tv);
	item.source = LB_SOURCE_TABLE;
	item.depth = 1;
	item.any_keys = true;
	err = add_registry(walk, item.addr);
	if (!err)
		err = push(walk, item, NULL);
	if (!err)
		err = add_gcroots(walk, g_addr);
	item.addr = l_addr;
	item.type = LB_LUA_THREAD;
	return err ? err : push(walk, item, NULL);
}

int lb_globals_walk(struct lb_target *target, uint64_t g_addr,
		    const struct lb_globals_sink *sink)
{
	struct walk walk = { .target = target,
			     .off = target->off,
			     .sink = sink };
	int err;

	err = add_roots(&walk, g_addr);
	for (size_t i = 0; i < walk.n_items && !err; i++) {
		struct item item = walk.items[i]; /* the array may move */

		err = visit(&walk, &item);
	}
	for (size_t i = 0; i < walk.n_items; i++)
		free(walk.items[i].path);
	free(walk.items);
	free(walk.seen);
	if (!err && walk.cut)
		err = -E2BIG;
	return err;
}
