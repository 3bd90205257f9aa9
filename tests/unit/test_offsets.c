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
#include "fields.h"
#include "offsets.h"
#include "lb_test.h"

#define TSV	  "tests/data/luajit-offsets.tsv"
#define VMDEF	  "/usr/share/luajit-2.1.0-beta3/jit/vmdef.lua"
#define LIB	  "usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"
#define UPSTREAM  ".output/deb/upstream/"
#define TARANTOOL ".output/deb/tarantool/"

#define N_VMDEF	  2 /* entries whose opcodes are those of VMDEF */
#define N_ENTRIES (sizeof(lj_offsets_table) / sizeof(lj_offsets_table[0]))
#define N_FIELDS  (sizeof(fields) / sizeof(fields[0]))

/* Columns of the file for each entry of the table. */
static const char *const columns[][2] = {
	{ "LuaJIT 2.1 (2022), GC64", "deb-luajit lj21-2022" },
	{ "OpenResty luajit2 2.1 (2023-01 to 2024-03), GC64",
	  "deb-luajit2 or-20230119 or-head" },
	{ "LuaJIT 2.0.5, 32-bit references", "lj205" },
	{ "LuaJIT 2.0 (2026-08), 32-bit references", "lj20-head" },
	{ "LuaJIT 2.1.0-beta3, 32-bit references", "lj21-beta3" },
	{ "LuaJIT 2.1.0-beta3, GC64", "lj21-beta3-gc64" },
	{ "LuaJIT 2.1 (2022), 32-bit references", "lj21-2022-nogc64" },
	{ "OpenResty luajit2 2.1 (2023-01 to 2024-03), 32-bit references",
	  "or-20230119-nogc64 or-head-nogc64" },
	{ "LuaJIT 2.1 (2026-08), GC64", "lj21-head" },
	{ "LuaJIT 2.1 (2026-08), 32-bit references", "lj21-head-nogc64" },
	{ "Tarantool (2024-10), 32-bit references", "tt-head" },
	{ "Tarantool (2024-10), GC64", "tt-head-gc64" },
	{ "Tarantool (2024-10), smart strings, 32-bit references",
	  "tt-head-cmake" },
	{ "Tarantool (2024-10), smart strings, GC64", "tt-head-cmake-gc64" },
	{ "Tarantool 2.6.0, 32-bit references", "deb-tarantool-2.6.0" },
	/* from debug info, after the file was made: no column */
	{ "LuaJIT 2.1 (2024-04 to 2025-11), GC64", "" },
	{ "LuaJIT 2.1 (2024-04 to 2025-11), 32-bit references", "" },
	{ "LuaJIT 2.1 (2025-11 to 2026-07), GC64", "" },
	{ "LuaJIT 2.1 (2025-11 to 2026-07), 32-bit references", "" },
};

/* What else the number in a row can be but the value minus a distance. */
#define WIDTH	1 /* the size behind the colon */
#define REFS	2 /* that size in references */
#define STATIC	3 /* that size without 8 bytes for each opcode below FUNCF */
#define STATE_C 4 /* Tarantool calls it CFUNC */
#define STR_ID	5 /* old builds: the hash */

/* Row of the file for each member, in order of the struct. */
#define FIELD(name) #name, offsetof(struct lj_offsets, name)
static const struct field {
	const char *name;
	size_t off;
	const char *row;
	int value; /* negative: a distance */
} fields[] = {
	{ FIELD(gc64), "D.LJ_GC64", 0 },
	{ FIELD(g2disp), "D.GG_G2DISP", 0 },
	{ FIELD(g_cur_l), "global_State.cur_L", 0 },
	{ FIELD(g_vmstate), "global_State.vmstate", 0 },
	{ FIELD(cframe_size), "D.CFRAME_SIZE", 0 },
	{ FIELD(static_dispatch), "GG_State.dispatch", STATIC },
	{ FIELD(g_jit_base), "global_State.jit_base", 0 },
	{ FIELD(g_gc_root), "global_State.gc.root", 0 },
	{ FIELD(g_gc_state), "global_State.gc.state", 0 },
	{ FIELD(g_mainthref), "global_State.mainthref", 0 },
	{ FIELD(g_registry), "global_State.registrytv", 0 },
	{ FIELD(g_to_j), "D.GG_G2J", 0 },
	{ FIELD(g_gcroot), "global_State.gcroot", 0 },
	{ FIELD(g_n_gcroot), "global_State.gcroot", REFS },
	{ FIELD(g_jit_l), "global_State.jit_L", 0 },
	{ FIELD(g_gc_total), "global_State.gc.total", 0 },
	{ FIELD(g_gc_threshold), "global_State.gc.threshold", 0 },
	{ FIELD(g_gc_debt), "global_State.gc.debt", 0 },
	{ FIELD(g_gc_estimate), "global_State.gc.estimate", 0 },
	{ FIELD(vm_interp), "E.LJ_VMST_INTERP", 0 },
	{ FIELD(vm_c), "E.LJ_VMST_C", STATE_C },
	{ FIELD(vm_lfunc), "E.LJ_VMST_LFUNC", 0 },
	{ FIELD(vm_ffunc), "E.LJ_VMST_FFUNC", 0 },
	{ FIELD(vm_gc), "E.LJ_VMST_GC", 0 },
	{ FIELD(vm_exit), "E.LJ_VMST_EXIT", 0 },
	{ FIELD(vm_record), "E.LJ_VMST_RECORD", 0 },
	{ FIELD(vm_opt), "E.LJ_VMST_OPT", 0 },
	{ FIELD(vm_asm), "E.LJ_VMST_ASM", 0 },
	{ FIELD(l_gct), "lua_State.gct", 0 },
	{ FIELD(l_status), "lua_State.status", 0 },
	{ FIELD(l_glref), "lua_State.glref", 0 },
	{ FIELD(l_base), "lua_State.base", 0 },
	{ FIELD(l_top), "lua_State.top", 0 },
	{ FIELD(l_maxstack), "lua_State.maxstack", 0 },
	{ FIELD(l_stack), "lua_State.stack", 0 },
	{ FIELD(l_env), "lua_State.env", 0 },
	{ FIELD(l_cframe), "lua_State.cframe", 0 },
	{ FIELD(l_size), "lua_State.SIZEOF", 0 },
	{ FIELD(cf_nres), "D.SAVE_NRES", 0 },
	{ FIELD(cf_l), "D.SAVE_L", 0 },
	{ FIELD(cf_pc), "D.SAVE_PC", 0 },
	{ FIELD(cf_prev), "D.SAVE_CFRAME", 0 },
	{ FIELD(cf_r14), "D.CFRAME_SIZE", -40 },
	{ FIELD(cf_rbx), "D.CFRAME_SIZE", -24 },
	{ FIELD(cf_rbp), "D.CFRAME_SIZE", -16 },
	{ FIELD(cf_ra), "D.CFRAME_SIZE", -8 },
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
	{ FIELD(str_id), "GCstr.sid", STR_ID },
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
	{ FIELD(j_freetrace), "jit_State.freetrace", 0 },
	{ FIELD(tr_nsnap), "GCtrace.nsnap", 0 },
	{ FIELD(tr_nsnapmap), "GCtrace.nsnapmap", 0 },
	{ FIELD(tr_snap), "GCtrace.snap", 0 },
	{ FIELD(tr_snapmap), "GCtrace.snapmap", 0 },
	{ FIELD(tr_ir), "GCtrace.ir", 0 },
	{ FIELD(tr_nk), "GCtrace.nk", 0 },
	{ FIELD(tr_nins), "GCtrace.nins", 0 },
	{ FIELD(tr_mcloop), "GCtrace.mcloop", 0 },
	{ FIELD(tr_startins), "GCtrace.startins", 0 },
	{ FIELD(tr_spadjust), "GCtrace.spadjust", 0 },
	{ FIELD(tr_linktype), "GCtrace.linktype", 0 },
	{ FIELD(sn_size), "SnapShot.SIZEOF", 0 },
	{ FIELD(sn_mapofs), "SnapShot.mapofs", 0 },
	{ FIELD(sn_mapofs_size), "SnapShot.mapofs", WIDTH },
	{ FIELD(sn_ref), "SnapShot.ref", 0 },
	{ FIELD(sn_mcofs), "SnapShot.mcofs", 0 },
	{ FIELD(sn_nslots), "SnapShot.nslots", 0 },
	{ FIELD(sn_topslot), "SnapShot.topslot", 0 },
	{ FIELD(sn_nent), "SnapShot.nent", 0 },
	{ FIELD(sn_count), "SnapShot.count", 0 },
	{ FIELD(ir_size), "IRIns.SIZEOF", 0 },
	{ FIELD(bc_call), "E.BC_CALLM", 0 },
	{ FIELD(bc_isnext), "E.BC_ISNEXT", 0 },
	{ FIELD(bc_funcf), "E.BC_FUNCF", 0 },
	{ FIELD(bc_iseqv), "E.BC_ISEQV", 0 },
	{ FIELD(bc_istc), "E.BC_ISTC", 0 },
	{ FIELD(bc_ist), "E.BC_IST", 0 },
	{ FIELD(bc_mov), "E.BC_MOV", 0 },
	{ FIELD(bc_unm), "E.BC_UNM", 0 },
	{ FIELD(bc_len), "E.BC_LEN", 0 },
	{ FIELD(bc_addvn), "E.BC_ADDVN", 0 },
	{ FIELD(bc_pow), "E.BC_POW", 0 },
	{ FIELD(bc_cat), "E.BC_CAT", 0 },
	{ FIELD(bc_kstr), "E.BC_KSTR", 0 },
	{ FIELD(bc_knil), "E.BC_KNIL", 0 },
	{ FIELD(bc_uget), "E.BC_UGET", 0 },
	{ FIELD(bc_usetv), "E.BC_USETV", 0 },
	{ FIELD(bc_uclo), "E.BC_UCLO", 0 },
	{ FIELD(bc_fnew), "E.BC_FNEW", 0 },
	{ FIELD(bc_tnew), "E.BC_TNEW", 0 },
	{ FIELD(bc_tdup), "E.BC_TDUP", 0 },
	{ FIELD(bc_gget), "E.BC_GGET", 0 },
	{ FIELD(bc_gset), "E.BC_GSET", 0 },
	{ FIELD(bc_tgetv), "E.BC_TGETV", 0 },
	{ FIELD(bc_tgets), "E.BC_TGETS", 0 },
	{ FIELD(bc_tsetv), "E.BC_TSETV", 0 },
	{ FIELD(bc_tsets), "E.BC_TSETS", 0 },
	{ FIELD(bc_tsetm), "E.BC_TSETM", 0 },
	{ FIELD(bc_iterc), "E.BC_ITERC", 0 },
	{ FIELD(bc_itern), "E.BC_ITERN", 0 },
	{ FIELD(bc_retm), "E.BC_RETM", 0 },
	{ FIELD(bc_fori), "E.BC_FORI", 0 },
	{ FIELD(bc_loop), "E.BC_LOOP", 0 },
	{ FIELD(bc_jmp), "E.BC_JMP", 0 },
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

/* Number of a row in one column; NONE where there is a dash. */
static long row_value(const struct table *table, const char *name,
		      size_t column, bool size)
{
	const char *row = find_row(table, name);
	const char *text = row ? cell(row, column) : NULL;

	CHECK(text);
	if (!text || *text == '-')
		return LJ_OFFSETS_NONE;
	if (size)
		text = strchr(text, ':') + 1;
	return atol(text);
}

static long wanted(const struct table *table, const struct field *field,
		   size_t column)
{
	bool size = field->value == WIDTH || field->value == REFS ||
		    field->value == STATIC;
	long value = row_value(table, field->row, column, size);

	switch (field->value) {
	case REFS:
		return value /
		       row_value(table, "lua_State.glref", column, true);
	case STATIC:
		return value -
		       8 * row_value(table, "E.BC_FUNCF", column, false);
	case STATE_C:
		return value != LJ_OFFSETS_NONE
			       ? value
			       : row_value(table, "E.LJ_VMST_CFUNC", column,
					   false);
	case STR_ID:
		return value != LJ_OFFSETS_NONE
			       ? value
			       : row_value(table, "GCstr.hash", column, false);
	case WIDTH:
		return value;
	default:
		return value + field->value;
	}
}

static unsigned int check_entry(const struct table *table,
				const struct lj_offsets_entry *entry,
				size_t column)
{
	for (size_t i = 0; i < N_FIELDS; i++) {
		long want = wanted(table, &fields[i], column);

		if (value_of(&entry->offsets, &fields[i]) != want) {
			fprintf(stderr, "%s: %s:\n", entry->name,
				fields[i].name);
			CHECK_INT(value_of(&entry->offsets, &fields[i]), want);
		}
	}
	return N_FIELDS;
}

static void test_table_against_debug_info(void)
{
	unsigned int n_columns = 0, n = 0;
	struct table table;

	if (read_table(&table)) {
		SKIP("tsv: " TSV " is not here");
		return;
	}
	CHECK_INT(N_ENTRIES, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < N_ENTRIES; i++) {
		char list[128], *save = NULL;

		CHECK_STR(lj_offsets_table[i].name, columns[i][0]);
		snprintf(list, sizeof(list), "%s", columns[i][1]);
		for (char *name = strtok_r(list, " ", &save); name;
		     name = strtok_r(NULL, " ", &save)) {
			size_t column = find_column(&table, name);

			CHECK(column);
			if (column)
				n += check_entry(&table, &lj_offsets_table[i],
						 column);
			n_columns++;
		}
	}
	/* each build that was measured has an entry */
	CHECK(cell(table.rows[0], n_columns) &&
	      !cell(table.rows[0], n_columns + 1));
	CHECK_INT(n, n_columns * N_FIELDS);
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
		for (size_t j = 0; j < N_VMDEF; j++) {
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

/* Fields of which the VM's code shows nothing, so that marks cannot tell. */
static bool may_be_unknown(const char *name)
{
	return !strncmp(name, "tr_", 3) || !strncmp(name, "sn_", 3);
}

static void test_marks_tell_entries_apart(void)
{
	for (size_t i = 0; i < N_ENTRIES; i++) {
		const struct lj_offsets *want = &lj_offsets_table[i].offsets;
		const struct lb_luajit marks = lb_offsets_marks(want);
		struct lj_offsets got;
		const char *name = NULL;
		bool alone = true;

		for (size_t j = 0; j < N_ENTRIES; j++)
			if (j != i &&
			    lb_offsets_marks_equal(
				    &marks, &lj_offsets_table[j].offsets))
				alone = false;
		CHECK_INT(lb_offsets_find(&marks, &got, &name), 0);
		if (alone)
			CHECK_STR(name, lj_offsets_table[i].name);
		else
			CHECK(strstr(name, "LuaJIT 2.0"));
		for (size_t j = 0; j < N_FIELDS; j++) {
			uint32_t value = value_of(&got, &fields[j]);

			if (value == value_of(want, &fields[j]))
				continue;
			CHECK(!alone && may_be_unknown(fields[j].name));
			CHECK_INT(value, LJ_OFFSETS_NONE);
		}
	}
}

/* LuaJIT 2.0 before and after snapshots grew: neither's value is given out. */
static void test_unknown_where_entries_disagree(void)
{
	const struct lj_offsets *old = NULL, *new = NULL;
	struct lj_offsets got;
	const char *name;

	for (size_t i = 0; i < N_ENTRIES; i++) {
		if (!strncmp(lj_offsets_table[i].name, "LuaJIT 2.0.5", 12))
			old = &lj_offsets_table[i].offsets;
		if (!strncmp(lj_offsets_table[i].name, "LuaJIT 2.0 (", 12))
			new = &lj_offsets_table[i].offsets;
	}
	CHECK(old && new);
	if (!old || !new)
		return;

	const struct lb_luajit marks = lb_offsets_marks(old);

	CHECK(lb_offsets_marks_equal(&marks, new));
	CHECK_INT(lb_offsets_find(&marks, &got, &name), 0);
	CHECK_INT(old->sn_size, 8);
	CHECK_INT(new->sn_size, 12);
	CHECK_INT(got.sn_size, LJ_OFFSETS_NONE);
	CHECK_INT(got.tr_nsnap, LJ_OFFSETS_NONE);
	CHECK_INT(got.tr_startpt, old->tr_startpt);
	CHECK_INT(got.l_base, old->l_base);
}

static void test_each_mark_counts(void)
{
	static const size_t marks_at[] = {
		offsetof(struct lb_luajit, cframe_size),
		offsetof(struct lb_luajit, gc64),
		offsetof(struct lb_luajit, g2disp),
		offsetof(struct lb_luajit, g_cur_l),
		offsetof(struct lb_luajit, g_vmstate),
		offsetof(struct lb_luajit, static_dispatch),
		offsetof(struct lb_luajit, cf_nres),
		offsetof(struct lb_luajit, cf_l),
		offsetof(struct lb_luajit, cf_pc),
		offsetof(struct lb_luajit, cf_prev),
	};
	struct lj_offsets got;
	const char *name;

	for (size_t i = 0; i < sizeof(marks_at) / sizeof(marks_at[0]); i++) {
		struct lb_luajit marks =
			lb_offsets_marks(&lj_offsets_table[0].offsets);
		uint32_t value;

		CHECK_INT(lb_offsets_find(&marks, &got, &name), 0);
		memcpy(&value, (char *)&marks + marks_at[i], sizeof(value));
		value ^= 1;
		memcpy((char *)&marks + marks_at[i], &value, sizeof(value));
		CHECK_INT(lb_offsets_find(&marks, &got, &name), -ENOENT);
	}
}

/* lj-offsets has a list of its own. */
static void test_names_of_fields(void)
{
	CHECK_INT(lb_n_fields, N_FIELDS);
	for (size_t i = 0; i < N_FIELDS && i < lb_n_fields; i++) {
		CHECK_STR(lb_fields[i].name, fields[i].name);
		CHECK_INT(lb_fields[i].off, fields[i].off);
	}
}

/* What is taken where a file has no code agrees with the code of all builds. */
static void test_slots_by_rule(void)
{
	for (size_t i = 0; i < N_ENTRIES; i++) {
		const struct lj_offsets *want = &lj_offsets_table[i].offsets;
		struct lb_luajit luajit = { .cframe_size = want->cframe_size,
					    .gc64 = want->gc64 };
		struct lj_offsets got = *want;

		got.cf_nres = got.cf_l = got.cf_pc = got.cf_prev = 0;
		CHECK_INT(lb_fields_slots_by_rule(&luajit), 0);
		lb_fields_set_code(&got, &luajit);
		got.static_dispatch = want->static_dispatch;
		CHECK(!memcmp(&got, want, sizeof(got)));
	}
}

static void test_installed_files(void)
{
	static const char *const paths[] = {
		"/" LIB,
		"/usr/bin/luajit",
		UPSTREAM LIB,
		UPSTREAM "usr/bin/luajit",
		TARANTOOL "usr/bin/tarantool",
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
		LB_TEST(test_marks_tell_entries_apart),
		LB_TEST(test_unknown_where_entries_disagree),
		LB_TEST(test_each_mark_counts),
		LB_TEST(test_names_of_fields),
		LB_TEST(test_slots_by_rule),
		LB_TEST(test_installed_files),
	};

	return LB_TEST_MAIN(cases);
}
