/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of Lua functions in a target memory that is made here: right answers in
 * both pointer modes, reads that fail at every point, damaged memory.
 */
#define _GNU_SOURCE
#include "lb_test.h"
#include "lj_image.h"
#include "names.h"

#define GC64 (&lj_offsets_table[0].offsets)

struct fixture {
	struct img img;
	struct world world;
	struct lb_names *names;
	uint32_t ids[WORLD_N];
};

/* The world is made once in each pointer mode, and copied. */
static struct img made[2];
static struct world worlds[2];

static void setup(struct fixture *f, const struct lj_offsets *off)
{
	struct img *img = &made[off->gc64];

	if (!img->off) {
		img_init(img, off);
		worlds[off->gc64] = world_make(img);
	}
	memset(f, 0, sizeof(*f));
	img_init(&f->img, off);
	wr_bytes(&f->img.wr, img->wr.data, img->wr.size);
	f->world = worlds[off->gc64];
	CHECK_INT(lb_names_new(img_read, &f->img, &f->names), 0);
}

static void teardown(struct fixture *f)
{
	lb_names_free(f->names);
	img_fini(&f->img);
}

static void add(struct fixture *f, int which)
{
	struct lb_proto_rec rec = img_rec(&f->img, f->world.protos[which]);

	CHECK_INT(
		lb_names_add_proto(f->names, &rec, f->img.off, &f->ids[which]),
		0);
}

static void add_all(struct fixture *f)
{
	for (int i = 0; i < WORLD_N; i++)
		add(f, i);
}

static const char *text(struct fixture *f, int which)
{
	return lb_names_proto_text(f->names, f->ids[which], LB_LINE_UNKNOWN);
}

static void check_definitions(const struct lj_offsets *off)
{
	struct fixture f;

	setup(&f, off);
	add_all(&f);
	CHECK_STR(text(&f, WORLD_MAIN), "main@app/main.lua:0");
	CHECK_STR(text(&f, WORLD_LOCAL), "loc@app/main.lua:1");
	CHECK_STR(text(&f, WORLD_FIELD), "loc_t:field@app/main.lua:2");
	CHECK_STR(text(&f, WORLD_NESTED), "loc_t.inner.cb@app/main.lua:3");
	CHECK_STR(text(&f, WORLD_GLOBAL), "glob@app/main.lua:4");
	CHECK_STR(text(&f, WORLD_UPVALUE), "up@app/main.lua:5");
	CHECK_STR(text(&f, WORLD_ANON), "?@app/main.lua:6");
	CHECK_STR(text(&f, WORLD_STRIPPED), "sub.str@app/main.lua:0");
	CHECK_STR(text(&f, WORLD_MODULE), "?@app/util.lua:3");
	CHECK_STR(text(&f, WORLD_BUILTIN), "remove@[builtin]");
	CHECK_STR(lb_names_proto_text(f.names, f.ids[WORLD_LOCAL], 17),
		  "loc@app/main.lua:17");
	teardown(&f);
}

static void test_definitions(void)
{
	check_definitions(GC64);
}

static void test_definitions_non_gc64(void)
{
	check_definitions(&img_non_gc64);
}

static void check_places(const struct lj_offsets *off)
{
	struct fixture f;

	setup(&f, off);
	CHECK_INT(lb_names_scan_tables(f.names, f.world.g_addr, off), 0);
	add_all(&f);
	CHECK_STR(text(&f, WORLD_MODULE), "util.trim@app/util.lua:3");
	CHECK_STR(text(&f, WORLD_CLASS), "Account:deposit@app/util.lua:9");
	CHECK_STR(text(&f, WORLD_HELD), "held@app/util.lua:12");
	CHECK_STR(text(&f, WORLD_BUILTIN), "table.remove@[builtin]");
	CHECK_STR(lb_names_fast_text(f.names, f.world.g_addr, 90),
		  "string.gsub@[builtin]");
	CHECK_STR(lb_names_fast_text(f.names, f.world.g_addr, 88),
		  "string.gmatch_aux@[builtin]");
	CHECK_STR(lb_names_fast_text(f.names, f.world.g_addr, 103),
		  "file:read@[builtin]");
	CHECK_STR(lb_names_fast_text(f.names, f.world.g_addr, 7),
		  "builtin#7@[builtin]");
	CHECK_STR(lb_names_fast_text(f.names, f.world.g_addr, 70000),
		  "builtin#70000@[builtin]");
	CHECK_STR(lb_names_fast_text(f.names, 0x1234, 90),
		  "builtin#90@[builtin]");
	teardown(&f);
}

static void test_places(void)
{
	check_places(GC64);
}

static void test_places_non_gc64(void)
{
	check_places(&img_non_gc64);
}

static void test_calls(void)
{
	struct fixture f;
	uint32_t main_id;

	setup(&f, GC64);
	add_all(&f);
	main_id = f.ids[WORLD_MAIN];
	/* nothing to learn from these */
	lb_names_add_call(f.names, main_id, LB_POS_UNKNOWN, f.ids[WORLD_HELD]);
	lb_names_add_call(f.names, main_id, 24, f.ids[WORLD_HELD]);
	lb_names_add_call(f.names, 0, 1, f.ids[WORLD_HELD]);
	lb_names_add_call(f.names, main_id, 1, 999);
	lb_names_add_call(f.names, main_id, 1, f.ids[WORLD_HELD]); /* FNEW */
	CHECK_STR(text(&f, WORLD_HELD), "?@app/util.lua:12");
	lb_names_add_call(f.names, main_id, f.world.call_pos,
			  f.ids[WORLD_ANON]);
	CHECK_STR(text(&f, WORLD_ANON), "cbk@app/main.lua:6");
	lb_names_add_call(f.names, main_id, f.world.add_pos,
			  f.ids[WORLD_CLASS]);
	CHECK_STR(text(&f, WORLD_CLASS), "__add@app/util.lua:9");
	/* a definition is worth more */
	lb_names_add_call(f.names, main_id, f.world.add_pos,
			  f.ids[WORLD_LOCAL]);
	CHECK_STR(text(&f, WORLD_LOCAL), "loc@app/main.lua:1");
	teardown(&f);
}

static void test_name_is_settled_when_asked_for(void)
{
	struct fixture f;

	setup(&f, GC64);
	add(&f, WORLD_MODULE);
	add(&f, WORLD_CLASS);
	CHECK_STR(text(&f, WORLD_MODULE), "?@app/util.lua:3");
	CHECK_INT(lb_names_scan_tables(f.names, f.world.g_addr, GC64), 0);
	CHECK_STR(text(&f, WORLD_MODULE), "?@app/util.lua:3");
	CHECK_STR(text(&f, WORLD_CLASS), "Account:deposit@app/util.lua:9");
	CHECK_STR(lb_names_fast_text(f.names, f.world.g_addr, 7),
		  "builtin#7@[builtin]");
	teardown(&f);
}

static void test_scan_again_only_when_something_is_unnamed(void)
{
	struct fixture f;
	size_t reads;

	setup(&f, GC64);
	add(&f, WORLD_CLASS);
	CHECK_INT(lb_names_scan_tables(f.names, f.world.g_addr, GC64), 0);
	reads = f.img.n_reads;
	CHECK_INT(lb_names_scan_tables(f.names, f.world.g_addr, GC64), 0);
	CHECK_INT(f.img.n_reads, reads);
	add(&f, WORLD_ANON);
	reads = f.img.n_reads;
	CHECK_INT(lb_names_scan_tables(f.names, f.world.g_addr, GC64), 0);
	CHECK(f.img.n_reads > reads);
	teardown(&f);
}

static void test_child_keeps_its_name_when_the_parent_is_gone(void)
{
	struct fixture f;
	struct lb_proto_rec child;

	setup(&f, GC64);
	add(&f, WORLD_MAIN);
	child = img_rec(&f.img, f.world.protos[WORLD_NESTED]);
	f.img.wr.size = 16; /* all memory is gone */
	CHECK_INT(lb_names_add_proto(f.names, &child, GC64, &f.ids[0]), 0);
	CHECK_STR(text(&f, 0), "loc_t.inner.cb@app/main.lua:3");
	/* another function at that address */
	child.size_bc++;
	CHECK_INT(lb_names_add_proto(f.names, &child, GC64, &f.ids[1]), 0);
	CHECK_STR(text(&f, 1), "?@app/main.lua:3");
	teardown(&f);
}

static void test_id_is_stable(void)
{
	struct fixture f;
	struct lb_proto_rec rec;
	uint32_t id = 0, other = 0;

	setup(&f, GC64);
	rec = img_rec(&f.img, f.world.protos[WORLD_LOCAL]);
	CHECK_INT(lb_names_add_proto(f.names, &rec, GC64, &id), 0);
	CHECK_INT(id, 1);
	CHECK_INT(lb_names_add_proto(f.names, &rec, GC64, &other), 0);
	CHECK_INT(other, 1);
	rec.first_line++;
	CHECK_INT(lb_names_add_proto(f.names, &rec, GC64, &other), 0);
	CHECK_INT(other, 2);
	CHECK_STR(lb_names_proto_text(f.names, 0, 1), "?@?:0");
	CHECK_STR(lb_names_proto_text(f.names, 3, 1), "?@?:0");
	teardown(&f);
}

struct chunk_case {
	const char *chunk;
	uint32_t len; /* of the name in the target; 0: as long as it is here */
	const char *text;
};

static void test_chunk_text(void)
{
	static const struct chunk_case cases[] = {
		{ "@dir/file.lua", 0, "?@dir/file.lua:7" },
		{ "=stdin", 0, "?@stdin:7" },
		{ "=(load)", 0, "?@(load):7" },
		{ "@", 0, "?@:7" },
		{ "", 0, "?@:7" },
		{ "", 5, "?@?:7" },
		{ "return 1", 0, "?@[string \"return 1\"]:7" },
		{ "return 1\nmore", 0, "?@[string \"return 1...\"]:7" },
		{ "\nreturn", 0, "?@[string \"...\"]:7" },
		{ "12345678901234567890123456789012345678901234567890"
		  "1234567890",
		  0,
		  "?@[string \"12345678901234567890123456789012345678901234"
		  "567890"
		  "1234567890\"]:7" },
		{ "12345678901234567890123456789012345678901234567890"
		  "12345678901",
		  0,
		  "?@[string \"12345678901234567890123456789012345678901234"
		  "567890"
		  "1234567890...\"]:7" },
		{ "12345678901234567890123456789012345678901234567890"
		  "12345678\xe2\x82\xac",
		  0,
		  "?@[string \"12345678901234567890123456789012345678901234"
		  "567890"
		  "12345678...\"]:7" },
		{ "@a;b\nc", 0, "?@a\\x3bb\\x0ac:7" },
		{ "@cut", 300, "?@cut...:7" },
		{ "@cut\xe2\x82", 300, "?@cut...:7" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct lb_proto_rec rec = { .proto_addr = 0x1000 + i,
					    .first_line = 7,
					    .size_bc = 3 };
		struct fixture f;

		setup(&f, GC64);
		rec.chunk_got = (uint32_t)strlen(cases[i].chunk);
		rec.chunk_len = cases[i].len ? cases[i].len : rec.chunk_got;
		memcpy(rec.chunk, cases[i].chunk, rec.chunk_got);
		CHECK_INT(lb_names_add_proto(f.names, &rec, GC64, &f.ids[0]),
			  0);
		CHECK_STR(text(&f, 0), cases[i].text);
		teardown(&f);
	}
}

static void test_chunk_text_longest(void)
{
	struct lb_proto_rec rec = { .proto_addr = 16,
				    .first_line = 1,
				    .chunk_len = UINT32_MAX,
				    .chunk_got = UINT32_MAX };
	struct fixture f;

	setup(&f, GC64);
	memset(rec.chunk, ';', sizeof(rec.chunk));
	rec.chunk[0] = '@';
	CHECK_INT(lb_names_add_proto(f.names, &rec, GC64, &f.ids[0]), 0);
	CHECK_INT(strlen(text(&f, 0)), 2 + 4 * 255 + 3 + 2);
	teardown(&f);
}

static void test_escape(void)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "", "" },
		{ "plain text", "plain text" },
		{ "a;b", "a\\x3bb" },
		{ "\x1b[0m\x7f\t", "\\x1b[0m\\x7f\\x09" },
		{ "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" },
		{ "\xe2\x82\xac\xf0\x9f\x98\x80",
		  "\xe2\x82\xac\xf0\x9f\x98\x80" },
		{ "\xc0\x80", "\\xc0\\x80" },	       /* overlong */
		{ "\xed\xa0\x80", "\\xed\\xa0\\x80" }, /* surrogate */
		{ "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
		{ "\xe2\x82", "\\xe2\\x82" }, /* ends too early */
		{ "\xc2\x9b", "\\xc2\\x9b" }, /* CSI */
		{ "back\\slash", "back\\slash" },
	};
	char out[128];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = lb_escape(cases[i].in, strlen(cases[i].in), out,
				     sizeof(out));

		CHECK_STR(out, cases[i].out);
		CHECK_INT(n, strlen(out));
	}
	CHECK_INT(lb_escape("a\0b", 3, out, sizeof(out)), 6);
	CHECK_STR(out, "a\\x00b");
}

static void test_escape_cuts_between_characters(void)
{
	char out[16];

	CHECK_INT(lb_escape("abc", 3, out, 0), 0);
	CHECK_INT(lb_escape("abc", 3, out, 1), 0);
	CHECK_STR(out, "");
	CHECK_INT(lb_escape("abc", 3, out, 3), 2);
	CHECK_INT(lb_escape("a;b", 3, out, 5), 1);
	CHECK_STR(out, "a");
	CHECK_INT(lb_escape("a\xc3\xbc", 3, out, 3), 1);
	CHECK_INT(lb_utf8_floor("a\xe2\x82\xac", 4), 4);
	CHECK_INT(lb_utf8_floor("a\xe2\x82\xac", 3), 1);
	CHECK_INT(lb_utf8_floor("a\xe2\x82\xac", 2), 1);
	CHECK_INT(lb_utf8_floor("\x80\x80\x80\x80\x80", 5), 5);
	CHECK_INT(lb_utf8_floor("", 0), 0);
}

/* Everything once; names must come out, whatever memory says. */
static void use_all(struct fixture *f)
{
	const struct lj_offsets *off = f->img.off;
	struct lb_proto_rec recs[WORLD_N];

	for (int i = 0; i < WORLD_N; i++) {
		recs[i] = (struct lb_proto_rec){
			.proto_addr = f->world.protos[i],
			.chunk_addr = IMG_BASE,
			.first_line = 1,
			.size_bc = 2,
		};
		img_read(&f->img, f->world.protos[i] + off->pt_chunkname,
			 &recs[i].chunk_addr, img_ref_size(&f->img));
		img_read(&f->img, f->world.protos[i] + off->pt_firstline,
			 &recs[i].first_line, 4);
		img_read(&f->img, f->world.protos[i] + off->pt_numline,
			 &recs[i].num_line, 4);
		img_read(&f->img, f->world.protos[i] + off->pt_sizebc,
			 &recs[i].size_bc, 4);
		lb_names_add_proto(f->names, &recs[i], off, &f->ids[i]);
	}
	lb_names_scan_tables(f->names, f->world.g_addr, off);
	for (int i = 0; i < WORLD_N; i++)
		lb_names_add_call(f->names, f->ids[WORLD_MAIN],
				  f->world.call_pos, f->ids[i]);
	for (int i = 0; i < WORLD_N; i++) {
		if (f->ids[i])
			CHECK(strchr(text(f, i), '@'));
	}
	for (uint32_t ffid = 0; ffid < 256; ffid++)
		CHECK(strstr(
			lb_names_fast_text(f->names, f->world.g_addr, ffid),
			"@[builtin]"));
}

static void check_failing_reads(const struct lj_offsets *off, bool onwards)
{
	size_t n_reads = SIZE_MAX;

	for (size_t k = 0; k <= n_reads; k++) {
		struct fixture f;

		setup(&f, off);
		f.img.fail_at = k;
		f.img.fail_onwards = onwards;
		use_all(&f);
		if (!k)
			n_reads = f.img.n_reads;
		teardown(&f);
	}
	CHECK(n_reads > 50 && n_reads < 2000);
}

static void test_reads_that_fail(void)
{
	check_failing_reads(GC64, false);
	check_failing_reads(GC64, true);
	check_failing_reads(&img_non_gc64, false);
	check_failing_reads(&img_non_gc64, true);
}

static void test_memory_that_ends(void)
{
	struct fixture f;
	size_t size;

	setup(&f, GC64);
	size = f.img.wr.size;
	teardown(&f);
	for (size_t cut = 0; cut < size; cut += 7) {
		setup(&f, GC64);
		f.img.wr.size = cut;
		use_all(&f);
		teardown(&f);
	}
}

/* Each 4 bytes of memory once at their maximum, and once zero. */
static void check_extremes(const struct lj_offsets *off)
{
	struct fixture f;
	size_t size;

	setup(&f, off);
	size = f.img.wr.size;
	teardown(&f);
	for (size_t at = 0; at + 4 <= size; at += 4) {
		for (int value = -1; value <= 0; value++) {
			setup(&f, off);
			memset(f.img.wr.data + at, value, 4);
			use_all(&f);
			teardown(&f);
		}
	}
}

static void test_extreme_fields(void)
{
	check_extremes(GC64);
	check_extremes(&img_non_gc64);
}

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void test_damaged_memory(void)
{
	uint32_t state = 4711;

	for (int round = 0; round < 3000; round++) {
		struct fixture f;

		setup(&f, round & 1 ? GC64 : &img_non_gc64);
		for (int i = 0; i < 24; i++) {
			uint32_t r = next_random(&state);
			size_t at = next_random(&state) % f.img.wr.size;

			f.img.wr.data[at] = (uint8_t)r;
			/* and some references into the wrong object */
			if (r & 0x100 && at + 12 < f.img.wr.size)
				memcpy(f.img.wr.data + (at & ~7U),
				       f.img.wr.data +
					       (next_random(&state) %
							(f.img.wr.size - 8) &
						~7U),
				       8);
		}
		use_all(&f);
		teardown(&f);
	}
}

/* The constants of a prototype lie behind its bytecode, not before it. */
static void test_constants_before_bytecode(void)
{
	struct fixture f;
	uint64_t addr;

	setup(&f, GC64);
	addr = f.world.protos[WORLD_MAIN];
	for (uint32_t k = 0; k < 300; k += 4) {
		img_ref(&f.img, addr + f.img.off->pt_k, addr + k);
		use_all(&f);
		teardown(&f);
		setup(&f, GC64);
	}
	teardown(&f);
}

/* A prototype that is its own child, and one whose children are endless. */
static void test_prototype_in_itself(void)
{
	struct img img;
	struct lb_names *names = NULL;
	struct lb_proto_rec rec;
	uint32_t id = 0;
	uint64_t chunk, addr, kgc[1] = { 0 };

	img_init(&img, GC64);
	chunk = img_str(&img, "@loop.lua");

	const uint32_t bc[] = { img_ad(img.off->bc_fnew, 0, 0),
				img_ad(img.off->bc_gset, 0, 0),
				img_ad(img.off->bc_retm + 2, 0, 1) };
	struct img_proto spec = { .chunk = chunk,
				  .first_line = 1,
				  .bc = bc,
				  .size_bc = 3,
				  .kgc = kgc,
				  .size_kgc = 1 };

	addr = img_proto(&img, &spec);
	/* k lies behind the bytecode and the one reference */
	img_ref(&img, addr + img.off->pt_size + 4 * 4, addr);
	rec = img_rec(&img, addr);
	CHECK_INT(lb_names_new(img_read, &img, &names), 0);
	CHECK_INT(lb_names_add_proto(names, &rec, GC64, &id), 0);
	CHECK_STR(lb_names_proto_text(names, id, 5), "?@loop.lua:5");
	CHECK(img.n_reads < 20);
	lb_names_free(names);
	img_fini(&img);
}

/* Many functions that define each other, deeper than any bound. */
static void test_prototypes_nested_too_deep(void)
{
	struct img img;
	struct lb_names *names = NULL;
	struct lb_proto_rec rec;
	uint32_t id = 0;
	uint64_t chunk, addr = 0;

	img_init(&img, GC64);
	chunk = img_str(&img, "@deep.lua");

	const uint32_t bc[] = { img_ad(img.off->bc_fnew, 0, 0),
				img_ad(img.off->bc_gset, 0, 0),
				img_ad(img.off->bc_retm + 2, 0, 1) };

	for (uint32_t i = 0; i < 300; i++) {
		struct img_proto spec = { .chunk = chunk,
					  .first_line = i + 1,
					  .bc = bc,
					  .size_bc = 3,
					  .kgc = &addr,
					  .size_kgc = i ? 1 : 0 };

		addr = img_proto(&img, &spec);
	}
	rec = img_rec(&img, addr);
	CHECK_INT(lb_names_new(img_read, &img, &names), 0);
	CHECK_INT(lb_names_add_proto(names, &rec, GC64, &id), 0);
	CHECK_STR(lb_names_proto_text(names, id, 5), "?@deep.lua:5");
	CHECK(img.n_reads < 1000);
	lb_names_free(names);
	img_fini(&img);
}

/* A long list of tables: the walk says that it did not see everything. */
static void test_scan_is_bounded(void)
{
	struct img img;
	struct lb_names *names = NULL;
	uint64_t globals, next, g_addr;

	img_init(&img, GC64);
	globals = img_table(&img, 0);
	next = globals;
	for (int i = 0; i < 1000; i++) {
		uint64_t table = img_table(&img, 0);

		img_set(&img, next, 0, "next", LB_LUA_TAB, table);
		next = table;
	}
	img_set(&img, next, 0, "f", LB_LUA_FUNC, img_fast(&img, 90));
	g_addr = img_vm(&img, globals, img_table(&img, 0));
	CHECK_INT(lb_names_new(img_read, &img, &names), 0);
	CHECK_INT(lb_names_scan_tables(names, g_addr, GC64), -E2BIG);
	CHECK_STR(lb_names_fast_text(names, g_addr, 90),
		  "builtin#90@[builtin]");
	CHECK(img.n_reads < 200);
	lb_names_free(names);
	img_fini(&img);
}

/* Names that are longer than any room for them, table in table. */
static void test_long_paths_are_marked(void)
{
	struct fixture f;
	char key[100];
	uint64_t globals, table;

	setup(&f, GC64);
	memset(key, 'k', sizeof(key) - 1);
	for (size_t len = 60; len < sizeof(key); len++) {
		key[len] = '\0';
		globals = table = img_table(&f.img, 1);
		for (int depth = 0; depth < 5; depth++) {
			uint64_t next = img_table(&f.img, 1);

			img_set(&f.img, table, 0, key, LB_LUA_TAB, next);
			img_set(&f.img, table, 1, key, LB_LUA_FUNC,
				img_fast(&f.img, 10 + (unsigned int)depth));
			table = next;
		}
		f.world.g_addr = img_vm(&f.img, globals, img_table(&f.img, 0));
		CHECK_INT(lb_names_scan_tables(f.names, f.world.g_addr, GC64),
			  0);
		for (uint32_t depth = 0; depth < 5; depth++) {
			const char *name = lb_names_fast_text(
				f.names, f.world.g_addr, 10 + depth);
			bool fits = len <= 96 && (depth + 1) * (len + 1) - 1 <=
							 LB_PATH_MAX - 4;

			CHECK_INT(strspn(name, "k."), strcspn(name, "@"));
			CHECK(!strstr(name, "...") == fits);
		}
		key[len] = 'k';
	}
	teardown(&f);
}

static void test_long_names_are_marked(void)
{
	struct fixture f;
	char key[300];
	uint64_t globals, func;
	struct lb_proto_rec rec;

	setup(&f, GC64);
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	globals = img_table(&f.img, 0);
	func = img_func(&f.img, f.world.protos[WORLD_HELD], globals, NULL, 0);
	img_set(&f.img, globals, 0, key, LB_LUA_FUNC, func);
	f.world.g_addr = img_vm(&f.img, globals, img_table(&f.img, 0));
	CHECK_INT(lb_names_scan_tables(f.names, f.world.g_addr, GC64), 0);
	rec = img_rec(&f.img, f.world.protos[WORLD_HELD]);
	CHECK_INT(lb_names_add_proto(f.names, &rec, GC64, &f.ids[0]), 0);
	CHECK(strstr(text(&f, 0), "kkk...@app/util.lua:12"));
	teardown(&f);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_definitions),
		LB_TEST(test_definitions_non_gc64),
		LB_TEST(test_places),
		LB_TEST(test_places_non_gc64),
		LB_TEST(test_calls),
		LB_TEST(test_name_is_settled_when_asked_for),
		LB_TEST(test_scan_again_only_when_something_is_unnamed),
		LB_TEST(test_child_keeps_its_name_when_the_parent_is_gone),
		LB_TEST(test_id_is_stable),
		LB_TEST(test_chunk_text),
		LB_TEST(test_chunk_text_longest),
		LB_TEST(test_escape),
		LB_TEST(test_escape_cuts_between_characters),
		LB_TEST(test_reads_that_fail),
		LB_TEST(test_memory_that_ends),
		LB_TEST(test_extreme_fields),
		LB_TEST(test_damaged_memory),
		LB_TEST(test_constants_before_bytecode),
		LB_TEST(test_prototype_in_itself),
		LB_TEST(test_prototypes_nested_too_deep),
		LB_TEST(test_scan_is_bounded),
		LB_TEST(test_long_names_are_marked),
		LB_TEST(test_long_paths_are_marked),
	};

	int status = LB_TEST_MAIN(cases);

	img_fini(&made[0]);
	img_fini(&made[1]);
	return status;
}
