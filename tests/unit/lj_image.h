/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target memory with LuaJIT objects in it, written in either pointer mode.
 * Everything lies in one block at IMG_BASE; reads outside of it fail, and so do
 * all reads from a chosen one on.
 */
#ifndef LJ_IMAGE_H
#define LJ_IMAGE_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define LJ_OFFSETS_TABLE
#include "lb_write.h"
#include "names.h"
#include "target.h"

#define IMG_BASE 0x40000000U

struct img {
	struct wr wr;
	const struct lj_offsets *off;
	size_t n_reads;
	size_t fail_at;	   /* this read fails, 0: none does */
	bool fail_onwards; /* and all after it */
};

/* LuaJIT 2.1 (2022) without GC64: 32-bit references. */
__attribute__((unused)) static const struct lj_offsets img_non_gc64 = {
	.gc64 = 0,
	.g_mainthref = 140,
	.g_registry = 216,
	.g_gcroot = 336,
	.g_n_gcroot = 38,
	.l_gct = 5,
	.l_glref = 8,
	.l_maxstack = 32,
	.l_stack = 36,
	.l_env = 44,
	.fn_gct = 5,
	.fn_ffid = 6,
	.fn_nupvalues = 7,
	.fn_env = 8,
	.fn_pc = 16,
	.fn_uvptr = 20,
	.fn_f = 24,
	.fn_upvalue = 32,
	.pt_size = 64,
	.pt_gct = 5,
	.pt_numparams = 6,
	.pt_sizebc = 8,
	.pt_k = 16,
	.pt_sizekgc = 24,
	.pt_sizept = 32,
	.pt_sizeuv = 36,
	.pt_flags = 37,
	.pt_chunkname = 40,
	.pt_firstline = 44,
	.pt_numline = 48,
	.pt_lineinfo = 52,
	.pt_uvinfo = 56,
	.pt_varinfo = 60,
	.str_len = 16,
	.str_size = 20,
	.tab_array = 8,
	.tab_metatable = 16,
	.tab_node = 20,
	.tab_asize = 24,
	.tab_hmask = 28,
	.node_size = 24,
	.node_val = 0,
	.node_key = 8,
	.node_next = 16,
	.uv_tv = 8,
	.uv_v = 16,
	.ud_metatable = 16,
	.bc_call = 65,
	.bc_isnext = 72,
	.bc_funcf = 89,
	.bc_iseqv = 4,
	.bc_istc = 12,
	.bc_ist = 14,
	.bc_mov = 18,
	.bc_unm = 20,
	.bc_len = 21,
	.bc_addvn = 22,
	.bc_pow = 37,
	.bc_cat = 38,
	.bc_kstr = 39,
	.bc_knil = 44,
	.bc_uget = 45,
	.bc_usetv = 46,
	.bc_uclo = 50,
	.bc_fnew = 51,
	.bc_tnew = 52,
	.bc_tdup = 53,
	.bc_gget = 54,
	.bc_gset = 55,
	.bc_tgetv = 56,
	.bc_tgets = 57,
	.bc_tsetv = 60,
	.bc_tsets = 61,
	.bc_tsetm = 63,
	.bc_iterc = 69,
	.bc_itern = 70,
	.bc_retm = 73,
	.bc_fori = 77,
	.bc_loop = 85,
	.bc_jmp = 88,
};

static inline void img_init(struct img *img, const struct lj_offsets *off)
{
	memset(img, 0, sizeof(*img));
	img->off = off;
}

static inline void img_fini(struct img *img)
{
	free(img->wr.data);
	memset(img, 0, sizeof(*img));
}

static inline int img_read(void *arg, uint64_t addr, void *buf, size_t size)
{
	struct img *img = arg;
	uint64_t at = addr - IMG_BASE;

	img->n_reads++;
	if (img->fail_at &&
	    (img->n_reads == img->fail_at ||
	     (img->fail_onwards && img->n_reads > img->fail_at)))
		return -EFAULT;
	if (at > img->wr.size || size > img->wr.size - at)
		return -EFAULT;
	if (size)
		memcpy(buf, img->wr.data + at, size);
	return 0;
}

/* Room for an object; its address. */
static inline uint64_t img_alloc(struct img *img, size_t size)
{
	static const uint8_t zero[64];
	uint64_t addr;

	while (img->wr.size % 16)
		wr_u8(&img->wr, 0);
	addr = IMG_BASE + img->wr.size;
	for (size_t left = size; left;) {
		size_t some = left < sizeof(zero) ? left : sizeof(zero);

		wr_bytes(&img->wr, zero, some);
		left -= some;
	}
	return addr;
}

static inline void img_put(struct img *img, uint64_t addr, const void *data,
			   size_t size)
{
	wr_at(&img->wr, addr - IMG_BASE, data, size);
}

static inline void img_u8(struct img *img, uint64_t addr, unsigned int value)
{
	uint8_t byte = (uint8_t)value;

	img_put(img, addr, &byte, sizeof(byte));
}

static inline void img_u32(struct img *img, uint64_t addr, uint32_t value)
{
	img_put(img, addr, &value, sizeof(value));
}

static inline size_t img_ref_size(const struct img *img)
{
	return img->off->gc64 ? 8 : 4;
}

static inline void img_ref(struct img *img, uint64_t addr, uint64_t ref)
{
	img_put(img, addr, &ref, img_ref_size(img));
}

/* TValue of a collectable type. */
static inline uint64_t img_value(const struct img *img, unsigned int type,
				 uint64_t addr)
{
	if (img->off->gc64)
		return ((uint64_t) ~(uint64_t)type << 47) | addr;
	return ((uint64_t) ~(uint32_t)type << 32) | addr;
}

static inline void img_tv(struct img *img, uint64_t at, unsigned int type,
			  uint64_t addr)
{
	uint64_t value = img_value(img, type, addr);

	img_put(img, at, &value, sizeof(value));
}

static inline uint64_t img_str_n(struct img *img, const char *text, size_t size)
{
	uint64_t addr = img_alloc(img, img->off->str_size + size + 1);

	img_u8(img, addr + img->off->pt_gct, LB_LUA_STR);
	img_u32(img, addr + img->off->str_len, (uint32_t)size);
	img_put(img, addr + img->off->str_size, text, size);
	return addr;
}

static inline uint64_t img_str(struct img *img, const char *text)
{
	return img_str_n(img, text, strlen(text));
}

struct img_var {
	const char *name; /* NULL ends the list */
	uint32_t start;
	uint32_t end;
};

struct img_proto {
	uint64_t chunk;
	uint32_t first_line;
	uint32_t num_line;
	unsigned int num_params;
	const uint32_t *bc; /* without the header instruction */
	uint32_t size_bc;
	const uint64_t *kgc; /* addresses */
	uint32_t size_kgc;
	const struct img_var *vars; /* NULL: stripped */
	const char *const *upvalues;
	unsigned int n_upvalues;
	bool vararg;
};

static inline uint32_t img_abc(unsigned int op, unsigned int a, unsigned int b,
			       unsigned int c)
{
	return op | a << 8 | c << 16 | (uint32_t)b << 24;
}

static inline uint32_t img_ad(unsigned int op, unsigned int a, unsigned int d)
{
	return op | a << 8 | (uint32_t)d << 16;
}

static inline uint64_t img_proto(struct img *img, const struct img_proto *spec)
{
	const struct lj_offsets *off = img->off;
	size_t ref = img_ref_size(img);
	uint32_t size_bc = spec->size_bc + 1, last = 0, size;
	uint64_t addr = img_alloc(img, off->pt_size + 4 * size_bc +
					       ref * spec->size_kgc);
	uint64_t k = IMG_BASE + img->wr.size;
	uint64_t uvinfo = 0, varinfo = 0;

	img_u8(img, addr + off->pt_gct, LB_LUA_PROTO);
	img_u8(img, addr + off->pt_numparams, spec->num_params);
	img_u32(img, addr + off->pt_sizebc, size_bc);
	img_u32(img, addr + off->pt_sizekgc, spec->size_kgc);
	img_ref(img, addr + off->pt_k, k);
	img_u8(img, addr + off->pt_sizeuv, spec->n_upvalues);
	img_ref(img, addr + off->pt_chunkname, spec->chunk);
	img_u32(img, addr + off->pt_firstline, spec->first_line);
	img_u32(img, addr + off->pt_numline, spec->num_line);
	img_u32(img, addr + off->pt_size,
		off->bc_funcf + (spec->vararg ? 3 : 0));
	for (uint32_t i = 0; i < spec->size_bc; i++)
		img_u32(img, addr + off->pt_size + 4 * (i + 1), spec->bc[i]);
	for (uint32_t i = 0; i < spec->size_kgc; i++)
		img_ref(img, k - ref * (i + 1), spec->kgc[i]);
	if (spec->upvalues) {
		uvinfo = IMG_BASE + img->wr.size;
		for (unsigned int i = 0; i < spec->n_upvalues; i++)
			wr_bytes(&img->wr, spec->upvalues[i],
				 strlen(spec->upvalues[i]) + 1);
	}
	if (spec->vars) {
		varinfo = IMG_BASE + img->wr.size;
		for (const struct img_var *v = spec->vars; v->name; v++) {
			wr_bytes(&img->wr, v->name, strlen(v->name) + 1);
			wr_uleb(&img->wr, v->start - last);
			wr_uleb(&img->wr, v->end - v->start);
			last = v->start;
		}
		wr_u8(&img->wr, 0);
	}
	size = (uint32_t)(IMG_BASE + img->wr.size - addr);
	img_u32(img, addr + off->pt_sizept, size);
	img_ref(img, addr + off->pt_uvinfo, uvinfo);
	img_ref(img, addr + off->pt_varinfo, varinfo);
	return addr;
}

/* An upvalue that is closed over a value. */
static inline uint64_t img_upvalue(struct img *img, unsigned int type,
				   uint64_t addr)
{
	uint64_t uv = img_alloc(img, 48);

	img_u8(img, uv + img->off->pt_gct, LB_LUA_UPVAL);
	img_tv(img, uv + img->off->uv_tv, type, addr);
	img_ref(img, uv + img->off->uv_v, uv + img->off->uv_tv);
	return uv;
}

static inline uint64_t img_func(struct img *img, uint64_t proto, uint64_t env,
				const uint64_t *upvalues, unsigned int n)
{
	const struct lj_offsets *off = img->off;
	size_t ref = img_ref_size(img);
	uint64_t addr = img_alloc(img, off->fn_uvptr + ref * n + 8);

	img_u8(img, addr + off->fn_gct, LB_LUA_FUNC);
	img_u8(img, addr + off->fn_nupvalues, n);
	img_ref(img, addr + off->fn_env, env);
	img_ref(img, addr + off->fn_pc, proto + off->pt_size);
	for (unsigned int i = 0; i < n; i++)
		img_ref(img, addr + off->fn_uvptr + ref * i, upvalues[i]);
	return addr;
}

static inline uint64_t img_fast(struct img *img, unsigned int ffid)
{
	uint64_t addr = img_alloc(img, img->off->fn_upvalue);

	img_u8(img, addr + img->off->fn_gct, LB_LUA_FUNC);
	img_u8(img, addr + img->off->fn_ffid, ffid);
	return addr;
}

/* An empty table with room for 2^@log2 entries. */
static inline uint64_t img_table(struct img *img, unsigned int log2)
{
	const struct lj_offsets *off = img->off;
	uint64_t addr = img_alloc(img, 64);
	uint64_t node = img_alloc(img, (size_t)off->node_size << log2);
	uint64_t nil = UINT64_MAX;

	img_u8(img, addr + off->pt_gct, LB_LUA_TAB);
	img_ref(img, addr + off->tab_node, node);
	img_u32(img, addr + off->tab_hmask, (1U << log2) - 1);
	for (unsigned int i = 0; i < 1U << log2; i++) {
		img_put(img, node + off->node_size * i + off->node_key, &nil,
			8);
		img_put(img, node + off->node_size * i + off->node_val, &nil,
			8);
	}
	return addr;
}

static inline uint64_t img_node(const struct img *img, uint64_t table)
{
	uint64_t node = 0;

	memcpy(&node, img->wr.data + (table + img->off->tab_node - IMG_BASE),
	       img_ref_size(img));
	return node;
}

/* Entry @i of @table. */
static inline void img_set(struct img *img, uint64_t table, unsigned int i,
			   const char *key, unsigned int type, uint64_t addr)
{
	uint64_t str = img_str(img, key);
	uint64_t node = img_node(img, table) + img->off->node_size * i;

	img_tv(img, node + img->off->node_key, LB_LUA_STR, str);
	img_tv(img, node + img->off->node_val, type, addr);
}

/* global_State with a main thread; its address. */
static inline uint64_t img_vm(struct img *img, uint64_t globals,
			      uint64_t registry)
{
	const struct lj_offsets *off = img->off;
	uint64_t g = img_alloc(img, 1024), l = img_alloc(img, 128);
	uint64_t stack = img_alloc(img, 8 * 16);

	img_u8(img, l + off->l_gct, LB_LUA_THREAD);
	img_ref(img, l + off->l_env, globals);
	img_ref(img, l + off->l_stack, stack);
	img_ref(img, l + off->l_maxstack, stack + 8 * 16);
	img_ref(img, g + off->g_mainthref, l);
	img_tv(img, g + off->g_registry, LB_LUA_TAB, registry);
	return g;
}

static inline struct lb_proto_rec img_rec(const struct img *img, uint64_t addr)
{
	const struct lj_offsets *off = img->off;
	struct lb_proto_rec rec = { .type = LB_REC_PROTO, .proto_addr = addr };
	const uint8_t *proto = img->wr.data + (addr - IMG_BASE), *str;

	memcpy(&rec.chunk_addr, proto + off->pt_chunkname, img_ref_size(img));
	memcpy(&rec.first_line, proto + off->pt_firstline, 4);
	memcpy(&rec.num_line, proto + off->pt_numline, 4);
	memcpy(&rec.size_bc, proto + off->pt_sizebc, 4);
	str = img->wr.data + (rec.chunk_addr - IMG_BASE);
	memcpy(&rec.chunk_len, str + off->str_len, 4);
	rec.chunk_got =
		rec.chunk_len < LB_CHUNK_MAX ? rec.chunk_len : LB_CHUNK_MAX;
	memcpy(rec.chunk, str + off->str_size, rec.chunk_got);
	return rec;
}

/* ---- one VM with all that names are found by ---- */

enum {
	WORLD_MAIN,	/* main chunk */
	WORLD_LOCAL,	/* local function loc */
	WORLD_FIELD,	/* loc_t.field(self) */
	WORLD_NESTED,	/* { inner = { cb = function } } of local loc_t */
	WORLD_GLOBAL,	/* function glob() */
	WORLD_UPVALUE,	/* up = function, an upvalue */
	WORLD_ANON,	/* function() end, passed on */
	WORLD_MODULE,	/* only in package.loaded["app.util"] */
	WORLD_CLASS,	/* only in global Account, with self */
	WORLD_HELD,	/* only an upvalue of WORLD_MODULE's */
	WORLD_BUILTIN,	/* table.remove, in bytecode */
	WORLD_STRIPPED, /* no debug information, field of a table */
	WORLD_N
};

struct world {
	uint64_t protos[WORLD_N];
	uint64_t g_addr;
	uint32_t call_pos; /* in main: calls WORLD_ANON as local `cbk` */
	uint32_t add_pos;  /* in main: an addition */
};

static inline uint64_t world_leaf(struct img *img, uint64_t chunk,
				  uint32_t line, bool self)
{
	static const struct img_var vars[] = { { "self", 1, 2 },
					       { .name = NULL } };
	const uint32_t bc[] = { img_ad(img->off->bc_retm + 2, 0, 1) };
	struct img_proto spec = { .chunk = chunk,
				  .first_line = line,
				  .num_line = 1,
				  .num_params = self,
				  .bc = bc,
				  .size_bc = 1,
				  .vars = self ? vars : NULL };

	return img_proto(img, &spec);
}

static inline void world_main(struct img *img, struct world *world,
			      uint64_t chunk)
{
	const struct lj_offsets *o = img->off;
	static const char *const upvalues[] = { "up" };
	/* slots: 0 loc, 1 loc_t, 2 cbk, 3 ... temporaries */
	static const struct img_var vars[] = { { "loc", 2, 24 },
					       { "loc_t", 9, 24 },
					       { "cbk", 17, 24 },
					       { .name = NULL } };
	const uint64_t kgc[] = {
		world->protos[WORLD_LOCAL],    /* 0 */
		world->protos[WORLD_FIELD],    /* 1 */
		world->protos[WORLD_NESTED],   /* 2 */
		world->protos[WORLD_GLOBAL],   /* 3 */
		world->protos[WORLD_UPVALUE],  /* 4 */
		world->protos[WORLD_ANON],     /* 5 */
		img_str(img, "field"),	       /* 6 */
		img_str(img, "cb"),	       /* 7 */
		img_str(img, "inner"),	       /* 8 */
		img_str(img, "glob"),	       /* 9 */
		img_str(img, "call_me"),       /* 10 */
		world->protos[WORLD_STRIPPED], /* 11 */
		img_str(img, "sub"),	       /* 12 */
		img_str(img, "str"),	       /* 13 */
	};
	const uint32_t bc[] = {
		img_ad(o->bc_fnew, 0, 0),	  /* 1 */
		img_ad(o->bc_tnew, 1, 0),	  /* 2 */
		img_ad(o->bc_tnew, 3, 0),	  /* 3 */
		img_ad(o->bc_fnew, 4, 2),	  /* 4 */
		img_ad(o->bc_ist, 4, 4),	  /* 5 */
		img_ad(o->bc_jmp, 4, 0x8000),	  /* 6 */
		img_abc(o->bc_tsets, 4, 3, 7),	  /* 7 */
		img_abc(o->bc_tsets, 3, 1, 8),	  /* 8 */
		img_ad(o->bc_fnew, 3, 1),	  /* 9 */
		img_abc(o->bc_tsets, 3, 1, 6),	  /* 10 */
		img_ad(o->bc_fnew, 3, 3),	  /* 11 */
		img_ad(o->bc_gset, 3, 9),	  /* 12 */
		img_ad(o->bc_fnew, 3, 4),	  /* 13 */
		img_ad(o->bc_usetv, 0, 3),	  /* 14 */
		img_ad(o->bc_gget, 2, 10),	  /* 15 */
		img_ad(o->bc_mov, 2, 2),	  /* 16 */
		img_ad(o->bc_fnew, 5, 5),	  /* 17 */
		img_abc(o->bc_call + 1, 2, 1, 2), /* 18 */
		img_abc(o->bc_addvn, 3, 0, 0),	  /* 19 */
		img_ad(o->bc_gget, 3, 12),	  /* 20 */
		img_ad(o->bc_fnew, 4, 11),	  /* 21 */
		img_abc(o->bc_tsets, 4, 3, 13),	  /* 22 */
		img_ad(o->bc_retm + 2, 0, 1),	  /* 23 */
	};
	struct img_proto spec = { .chunk = chunk,
				  .num_line = 40,
				  .bc = bc,
				  .size_bc = sizeof(bc) / sizeof(bc[0]),
				  .kgc = kgc,
				  .size_kgc = sizeof(kgc) / sizeof(kgc[0]),
				  .vars = vars,
				  .upvalues = upvalues,
				  .n_upvalues = 1,
				  .vararg = true };

	world->protos[WORLD_MAIN] = img_proto(img, &spec);
	world->call_pos = 18;
	world->add_pos = 19;
}

static inline void world_tables(struct img *img, struct world *world)
{
	uint64_t globals = img_table(img, 2), registry = img_table(img, 1);
	uint64_t loaded = img_table(img, 2), util = img_table(img, 1);
	uint64_t account = img_table(img, 1), table = img_table(img, 1);
	uint64_t string = img_table(img, 2), files = img_table(img, 0);
	uint64_t uv = img_upvalue(
		img, LB_LUA_FUNC,
		img_func(img, world->protos[WORLD_HELD], globals, NULL, 0));

	img_set(img, util, 0, "trim", LB_LUA_FUNC,
		img_func(img, world->protos[WORLD_MODULE], globals, &uv, 1));
	img_set(img, util, 1, "self", LB_LUA_TAB, util);
	img_set(img, account, 0, "deposit", LB_LUA_FUNC,
		img_func(img, world->protos[WORLD_CLASS], globals, NULL, 0));
	img_set(img, account, 1, "__index", LB_LUA_TAB, account);
	img_set(img, table, 0, "remove", LB_LUA_FUNC,
		img_func(img, world->protos[WORLD_BUILTIN], globals, NULL, 0));
	img_set(img, string, 0, "gsub", LB_LUA_FUNC, img_fast(img, 90));
	img_set(img, string, 1, "gmatch", LB_LUA_FUNC, img_fast(img, 89));
	img_set(img, files, 0, "read", LB_LUA_FUNC, img_fast(img, 103));
	img_set(img, globals, 0, "Account", LB_LUA_TAB, account);
	img_set(img, globals, 1, "_G", LB_LUA_TAB, globals);
	img_set(img, globals, 2, "alias", LB_LUA_FUNC, img_fast(img, 90));
	img_set(img, globals, 3, "string", LB_LUA_TAB, string);
	img_set(img, loaded, 0, "app.util", LB_LUA_TAB, util);
	img_set(img, loaded, 1, "table", LB_LUA_TAB, table);
	img_set(img, loaded, 2, "_G", LB_LUA_TAB, globals);
	img_set(img, registry, 0, "_LOADED", LB_LUA_TAB, loaded);
	img_set(img, registry, 1, "FILE*", LB_LUA_TAB, files);
	img_ref(img, account + img->off->tab_metatable, account);
	world->g_addr = img_vm(img, globals, registry);
}

static inline struct world world_make(struct img *img)
{
	static const char *const held[] = { "held" };
	struct world world;
	uint64_t chunk = img_str(img, "@app/main.lua");
	const uint32_t ret[] = { img_ad(img->off->bc_retm + 2, 0, 1) };
	struct img_proto module = { .chunk = img_str(img, "@app/util.lua"),
				    .first_line = 3,
				    .bc = ret,
				    .size_bc = 1,
				    .upvalues = held,
				    .n_upvalues = 1 };

	world.protos[WORLD_LOCAL] = world_leaf(img, chunk, 1, false);
	world.protos[WORLD_FIELD] = world_leaf(img, chunk, 2, true);
	world.protos[WORLD_NESTED] = world_leaf(img, chunk, 3, false);
	world.protos[WORLD_GLOBAL] = world_leaf(img, chunk, 4, false);
	world.protos[WORLD_UPVALUE] = world_leaf(img, chunk, 5, false);
	world.protos[WORLD_ANON] = world_leaf(img, chunk, 6, false);
	world.protos[WORLD_STRIPPED] = world_leaf(img, chunk, 0, false);
	world.protos[WORLD_MODULE] = img_proto(img, &module);
	world.protos[WORLD_CLASS] = world_leaf(img, module.chunk, 9, true);
	world.protos[WORLD_HELD] = world_leaf(img, module.chunk, 12, false);
	world.protos[WORLD_BUILTIN] =
		world_leaf(img, img_str(img, "remove"), UINT32_MAX, false);
	world_main(img, &world, chunk);
	world_tables(img, &world);
	return world;
}

#endif
