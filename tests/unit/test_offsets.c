/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of struct offsets against what debug info of the same builds says
 * (tests/data/luajit-offsets.tsv), and the choice of an entry.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#define LJ_OFFSETS_TABLE
#include "offsets.h"
#include "lb_test.h"

#define TSV	 "tests/data/luajit-offsets.tsv"
#define VMDEF	 "/usr/share/luajit-2.1.0-beta3/jit/vmdef.lua"
#define LIB	 "usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"
#define UPSTREAM ".output/deb/upstream/"

#define N_ENTRIES (sizeof(lj_offsets_table) / sizeof(lj_offsets_table[0]))
#define N_FIELDS  (sizeof(fields) / sizeof(fields[0]))

/* Column of the file for each entry of the table. */
static const char *const columns[][2] = {
	{ "LuaJIT 2.1 (2022), GC64", "deb-luajit" },
	{ "OpenResty luajit2 2.1 (2023-01 to 2024-03), GC64", "deb-luajit2" },
};

/* Special values of the third member below. */
#define N_REFS (-1) /* the number of 8-byte references in the array */
#define OPCODE (-2) /* not in the file for each opcode: vmdef.lua has it */

/*
 * Row of the file for each member, in order of the struct. What has no row is
 * no member of a C struct: slots of the VM's C frame, which are the same in
 * all GC64 builds but Tarantool's.
 */
#define FIELD(name) #name, offsetof(struct lj_offsets, name)
static const struct field {
	const char *name;
	size_t off;
	const char *row;
	int value;
} fields[] = {
	{ FIELD(gc64), "D.LJ_GC64", 0 },
	{ FIELD(g2disp), "D.GG_G2DISP", 0 },
	{ FIELD(g_cur_l), "global_State.cur_L", 0 },
	{ FIELD(g_vmstate), "global_State.vmstate", 0 },
	{ FIELD(cframe_size), NULL, 80 },
	{ FIELD(g_jit_base), "global_State.jit_base", 0 },
	{ FIELD(g_gc_root), "global_State.gc.root", 0 },
	{ FIELD(g_gc_state), "global_State.gc.state", 0 },
	{ FIELD(g_mainthref), "global_State.mainthref", 0 },
	{ FIELD(g_registry), "global_State.registrytv", 0 },
	{ FIELD(g_to_j), "D.GG_G2J", 0 },
	{ FIELD(g_gcroot), "global_State.gcroot", 0 },
	{ FIELD(g_n_gcroot), "global_State.gcroot", N_REFS },
	{ FIELD(l_gct), "lua_State.gct", 0 },
	{ FIELD(l_status), "lua_State.status", 0 },
	{ FIELD(l_glref), "lua_State.glref", 0 },
	{ FIELD(l_base), "lua_State.base", 0 },
	{ FIELD(l_top), "lua_State.top", 0 },
	{ FIELD(l_maxstack), "lua_State.maxstack", 0 },
	{ FIELD(l_stack), "lua_State.stack", 0 },
	{ FIELD(l_env), "lua_State.env", 0 },
	{ FIELD(l_cframe), "lua_State.cframe", 0 },
	{ FIELD(cf_nres), NULL, 8 },
	{ FIELD(cf_l), NULL, 16 },
	{ FIELD(cf_pc), NULL, 24 },
	{ FIELD(cf_prev), NULL, 32 },
	{ FIELD(cf_r14), NULL, 40 },
	{ FIELD(cf_rbx), NULL, 56 },
	{ FIELD(cf_rbp), NULL, 64 },
	{ FIELD(cf_ra), NULL, 72 },
	{ FIELD(fn_gct), "GCfuncL.gct", 0 },
	{ FIELD(fn_ffid), "GCfuncL.ffid", 0 },
	{ FIELD(fn_env), "GCfuncL.env", 0 },
	{ FIELD(fn_pc), "GCfuncL.pc", 0 },
	{ FIELD(fn_f), "GCfuncC.f", 0 },
	{ FIELD(fn_upvalue), "GCfuncC.upvalue", 0 },
	{ FIELD(fn_uvptr), "GCfuncL.uvptr", 0 },
	{ FIELD(fn_nupvalues), "GCfuncL.nupvalues", 0 },
	{ FIELD(pt_size), "GCproto.SIZEOF", 0 },
	{ FIELD(pt_gct), "GCproto.gct", 0 },
	{ FIELD(pt_numparams), "GCproto.numparams", 0 },
	{ FIELD(pt_sizebc), "GCproto.sizebc", 0 },
	{ FIELD(pt_k), "GCproto.k", 0 },
	{ FIELD(pt_sizekgc), "GCproto.sizekgc", 0 },
	{ FIELD(pt_sizept), "GCproto.sizept", 0 },
	{ FIELD(pt_sizeuv), "GCproto.sizeuv", 0 },
	{ FIELD(pt_flags), "GCproto.flags", 0 },
	{ FIELD(pt_chunkname), "GCproto.chunkname", 0 },
	{ FIELD(pt_firstline), "GCproto.firstline", 0 },
	{ FIELD(pt_numline), "GCproto.numline", 0 },
	{ FIELD(pt_lineinfo), "GCproto.lineinfo", 0 },
	{ FIELD(pt_uvinfo), "GCproto.uvinfo", 0 },
	{ FIELD(pt_varinfo), "GCproto.varinfo", 0 },
	{ FIELD(str_id), "GCstr.sid", 0 },
	{ FIELD(str_len), "GCstr.len", 0 },
	{ FIELD(str_size), "GCstr.SIZEOF", 0 },
	{ FIELD(tab_array), "GCtab.array", 0 },
	{ FIELD(tab_node), "GCtab.node", 0 },
	{ FIELD(tab_metatable), "GCtab.metatable", 0 },
	{ FIELD(tab_asize), "GCtab.asize", 0 },
	{ FIELD(tab_hmask), "GCtab.hmask", 0 },
	{ FIELD(node_size), "Node.SIZEOF", 0 },
	{ FIELD(node_val), "Node.val", 0 },
	{ FIELD(node_key), "Node.key", 0 },
	{ FIELD(node_next), "Node.next", 0 },
	{ FIELD(uv_tv), "GCupval.tv", 0 },
	{ FIELD(uv_v), "GCupval.v", 0 },
	{ FIELD(ud_metatable), "GCudata.metatable", 0 },
	{ FIELD(j_trace), "jit_State.trace", 0 },
	{ FIELD(j_sizetrace), "jit_State.sizetrace", 0 },
	{ FIELD(j_mcarea), "jit_State.mcarea", 0 },
	{ FIELD(j_szmcarea), "jit_State.szmcarea", 0 },
	{ FIELD(tr_startpt), "GCtrace.startpt", 0 },
	{ FIELD(tr_startpc), "GCtrace.startpc", 0 },
	{ FIELD(tr_mcode), "GCtrace.mcode", 0 },
	{ FIELD(tr_szmcode), "GCtrace.szmcode", 0 },
	{ FIELD(tr_root), "GCtrace.root", 0 },
	{ FIELD(tr_link), "GCtrace.link", 0 },
	{ FIELD(tr_traceno), "GCtrace.traceno", 0 },
	{ FIELD(bc_call), "E.BC_CALLM", 0 },
	{ FIELD(bc_isnext), "E.BC_ISNEXT", OPCODE },
	{ FIELD(bc_funcf), "E.BC_FUNCF", OPCODE },
	{ FIELD(bc_iseqv), "E.BC_ISEQV", OPCODE },
	{ FIELD(bc_istc), "E.BC_ISTC", OPCODE },
	{ FIELD(bc_ist), "E.BC_IST", OPCODE },
	{ FIELD(bc_mov), "E.BC_MOV", OPCODE },
	{ FIELD(bc_unm), "E.BC_UNM", OPCODE },
	{ FIELD(bc_len), "E.BC_LEN", OPCODE },
	{ FIELD(bc_addvn), "E.BC_ADDVN", OPCODE },
	{ FIELD(bc_pow), "E.BC_POW", OPCODE },
	{ FIELD(bc_cat), "E.BC_CAT", OPCODE },
	{ FIELD(bc_kstr), "E.BC_KSTR", OPCODE },
	{ FIELD(bc_knil), "E.BC_KNIL", OPCODE },
	{ FIELD(bc_uget), "E.BC_UGET", OPCODE },
	{ FIELD(bc_usetv), "E.BC_USETV", OPCODE },
	{ FIELD(bc_uclo), "E.BC_UCLO", OPCODE },
	{ FIELD(bc_fnew), "E.BC_FNEW", OPCODE },
	{ FIELD(bc_tnew), "E.BC_TNEW", OPCODE },
	{ FIELD(bc_tdup), "E.BC_TDUP", OPCODE },
	{ FIELD(bc_gget), "E.BC_GGET", OPCODE },
	{ FIELD(bc_gset), "E.BC_GSET", OPCODE },
	{ FIELD(bc_tgetv), "E.BC_TGETV", OPCODE },
	{ FIELD(bc_tgets), "E.BC_TGETS", OPCODE },
	{ FIELD(bc_tsetv), "E.BC_TSETV", OPCODE },
	{ FIELD(bc_tsets), "E.BC_TSETS", OPCODE },
	{ FIELD(bc_tsetm), "E.BC_TSETM", OPCODE },
	{ FIELD(bc_iterc), "E.BC_ITERC", OPCODE },
	{ FIELD(bc_itern), "E.BC_ITERN", OPCODE },
	{ FIELD(bc_retm), "E.BC_RETM", OPCODE },
	{ FIELD(bc_fori), "E.BC_FORI", OPCODE },
	{ FIELD(bc_loop), "E.BC_LOOP", OPCODE },
	{ FIELD(bc_jmp), "E.BC_JMP", OPCODE },
};

struct table {
	char *text;
	char *rows[1024]; /* each row is NUL-terminated */
	size_t n_rows;
};

static char *read_text(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text;
	long size;

	if (!file)
		return NULL;
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	text = calloc((size_t)size + 1, 1);
	if (fread(text, 1, (size_t)size, file) != (size_t)size)
		abort();
	fclose(file);
	return text;
}

static int read_table(struct table *table)
{
	char *save = NULL;

	memset(table, 0, sizeof(*table));
	table->text = read_text(TSV);
	if (!table->text)
		return -ENOENT;
	for (char *row = strtok_r(table->text, "\n", &save);
	     row && table->n_rows < 1024; row = strtok_r(NULL, "\n", &save))
		table->rows[table->n_rows++] = row;
	return 0;
}

/* Text of one cell up to its tab, NULL when there is none. */
static const char *cell(const char *row, size_t column)
{
	while (column--) {
		row = strchr(row, '\t');
		if (!row)
			return NULL;
		row++;
	}
	return row;
}

static size_t find_column(const struct table *table, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 1; cell(table->rows[0], i); i++) {
		const char *text = cell(table->rows[0], i);

		if (!strncmp(text, name, len) &&
		    (text[len] == '\t' || !text[len]))
			return i;
	}
	return 0;
}

static const char *find_row(const struct table *table, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 1; i < table->n_rows; i++) {
		if (!strncmp(table->rows[i], name, len) &&
		    table->rows[i][len] == '\t')
			return table->rows[i];
	}
	return NULL;
}

static uint32_t value_of(const struct lj_offsets *offsets,
			 const struct field *field)
{
	uint32_t value;

	memcpy(&value, (const char *)offsets + field->off, sizeof(value));
	return value;
}

static void check_entry(const struct table *table,
			const struct lj_offsets_entry *entry, size_t column)
{
	for (size_t i = 0; i < N_FIELDS; i++) {
		const struct field *field = &fields[i];
		const char *row =
			field->row ? find_row(table, field->row) : NULL;
		long want = field->value;

		if (field->value == OPCODE && !row)
			continue;
		if (field->row) {
			const char *text = row ? cell(row, column) : NULL;

			CHECK(text && *text != '-');
			if (!text)
				continue;
			want = atol(text);
			if (field->value == N_REFS)
				want = atol(strchr(text, ':') + 1) / 8;
		}
		if (value_of(&entry->offsets, field) != want) {
			fprintf(stderr, "%s: %s:\n", entry->name, field->name);
			CHECK_INT(value_of(&entry->offsets, field), want);
		}
	}
}

static void test_table_against_debug_info(void)
{
	struct table table;

	if (read_table(&table)) {
		SKIP("tsv: " TSV " is not here");
		return;
	}
	CHECK_INT(N_ENTRIES, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < N_ENTRIES; i++) {
		size_t column = find_column(&table, columns[i][1]);

		CHECK_STR(lj_offsets_table[i].name, columns[i][0]);
		CHECK(column);
		if (column)
			check_entry(&table, &lj_offsets_table[i], column);
	}
	free(table.text);
}

/* A member without a line above would not be looked at. */
static void test_every_member_is_listed(void)
{
	CHECK_INT(N_FIELDS * sizeof(uint32_t), sizeof(struct lj_offsets));
	for (size_t i = 0; i < N_FIELDS; i++)
		CHECK_INT(fields[i].off, i * sizeof(uint32_t));
}

/* `bcnames` of vmdef.lua: six characters for each opcode, 0 first. */
static void test_opcodes_against_vmdef(void)
{
	char *text = read_text(VMDEF);
	char *names = text ? strstr(text, "bcnames = \"") : NULL;

	if (!names) {
		SKIP("vmdef: " VMDEF " is not here");
		free(text);
		return;
	}
	names = strchr(names, '"') + 1;
	for (size_t i = 0; i < N_FIELDS; i++) {
		char want[8], got[8];

		if (strncmp(fields[i].name, "bc_", 3))
			continue;
		snprintf(want, sizeof(want), "%-6s",
			 fields[i].row + strlen("E.BC_"));
		for (size_t j = 0; j < N_ENTRIES; j++) {
			uint32_t opcode = value_of(&lj_offsets_table[j].offsets,
						   &fields[i]);

			CHECK(opcode < strcspn(names, "\"") / 6);
			memcpy(got, names + 6 * opcode, 6);
			got[6] = '\0';
			CHECK_STR(got, want);
		}
	}
	free(text);
}

static void test_no_two_entries_have_equal_marks(void)
{
	for (size_t i = 0; i < N_ENTRIES; i++) {
		const struct lj_offsets *want = &lj_offsets_table[i].offsets;
		const struct lb_luajit luajit = {
			.cframe_size = want->cframe_size,
			.gc64 = want->gc64,
			.g2disp = want->g2disp,
			.g_cur_l = want->g_cur_l,
			.g_vmstate = want->g_vmstate,
		};
		struct lj_offsets got;
		const char *name = NULL;

		CHECK_INT(lb_offsets_find(&luajit, &got, &name), 0);
		CHECK_STR(name, lj_offsets_table[i].name);
		CHECK(!memcmp(&got, want, sizeof(got)));
	}
}

static void test_each_mark_counts(void)
{
	const struct lj_offsets *known = &lj_offsets_table[0].offsets;
	struct lb_luajit marks[5];
	struct lj_offsets got;
	const char *name;

	for (size_t i = 0; i < 5; i++) {
		marks[i] = (struct lb_luajit){
			.cframe_size = known->cframe_size + (i == 0),
			.gc64 = known->gc64 ^ (i == 1),
			.g2disp = known->g2disp + 8 * (i == 2),
			.g_cur_l = known->g_cur_l + 8 * (i == 3),
			.g_vmstate = known->g_vmstate + 4 * (i == 4),
		};
		CHECK_INT(lb_offsets_find(&marks[i], &got, &name), -ENOENT);
	}
}

static void test_installed_files(void)
{
	static const char *const paths[] = {
		"/" LIB,
		"/usr/bin/luajit",
		UPSTREAM LIB,
		UPSTREAM "usr/bin/luajit",
	};
	int n = 0;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
		struct lb_luajit luajit;
		struct lj_offsets offsets;
		struct lb_elf *elf;
		const char *name;

		if (fd < 0)
			continue;
		CHECK_INT(lb_elf_open_fd(fd, paths[i], &elf), 0);
		close(fd);
		if (!lb_luajit_find(elf, &luajit)) {
			CHECK_INT(lb_offsets_find(&luajit, &offsets, &name), 0);
			n++;
		}
		lb_elf_free(elf);
	}
	if (!n)
		SKIP("luajit: no LuaJIT is installed");
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_table_against_debug_info),
		LB_TEST(test_every_member_is_listed),
		LB_TEST(test_opcodes_against_vmdef),
		LB_TEST(test_no_two_entries_have_equal_marks),
		LB_TEST(test_each_mark_counts),
		LB_TEST(test_installed_files),
	};

	return LB_TEST_MAIN(cases);
}
