/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LuaJIT's tables of opcodes.
 *
 * lj_bc_mode has 16 bits for each opcode: kinds of the operands A, B and C, and
 * the metamethod that stands in for it. Numbers of opcodes move between builds,
 * the operands of an instruction do not. lj_bc_ofs has for each opcode the
 * distance of its code from the begin of the VM. Behind the opcodes both have
 * one word for each fast function. How many words that are is known from the
 * dispatch table.
 */
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "opcodes.h"

#define SEARCH_MAX (UINT64_C(128) << 20) /* bytes of a segment */
#define N_MIN	   64			 /* opcodes; 93 to 104 were seen */
#define SHARED_MAX 8			 /* opcodes; 1 was seen */
#define SIZE_MIN   16			 /* bytes of code on average; 63 */

enum {
	NONE,
	DST,
	BASE,
	VAR,
	RBASE,
	UV,
	LIT,
	LITS,
	PRI,
	NUM,
	STR,
	TAB,
	FUNC,
	JUMP,
	CDATA
};
enum {
	MM_INDEX,
	MM_NEWINDEX,
	MM_GC,
	MM_MODE,
	MM_EQ,
	MM_LEN,
	MM_LT,
	MM_LE,
	MM_CONCAT,
	MM_CALL,
	MM_ADD,
	MM_SUB,
	MM_MUL,
	MM_DIV,
	MM_MOD,
	MM_POW,
	MM_UNM,
	MM_NONE = 31
};

#define MM_SHIFT 11
#define MODE(a, b, c, mm) \
	((uint16_t)((a) | (b) << 3 | (c) << 7 | (mm) << MM_SHIFT))
#define PLAIN(a, b, c) MODE(a, b, c, MM_NONE)

/* Opcodes in a row that is found once in all builds. */
static const uint16_t compare[] = {
	MODE(VAR, NONE, VAR, MM_LT), MODE(VAR, NONE, VAR, MM_LT),
	MODE(VAR, NONE, VAR, MM_LE), MODE(VAR, NONE, VAR, MM_LE),
	MODE(VAR, NONE, VAR, MM_EQ), MODE(VAR, NONE, VAR, MM_EQ),
	MODE(VAR, NONE, STR, MM_EQ), MODE(VAR, NONE, STR, MM_EQ),
	MODE(VAR, NONE, NUM, MM_EQ), MODE(VAR, NONE, NUM, MM_EQ),
	MODE(VAR, NONE, PRI, MM_EQ), MODE(VAR, NONE, PRI, MM_EQ),
	PLAIN(DST, NONE, VAR),	     PLAIN(DST, NONE, VAR),
	PLAIN(NONE, NONE, VAR),	     PLAIN(NONE, NONE, VAR),
};
static const uint16_t unary[] = {
	PLAIN(DST, NONE, VAR),
	PLAIN(DST, NONE, VAR),
	MODE(DST, NONE, VAR, MM_UNM),
	MODE(DST, NONE, VAR, MM_LEN),
};
#define FIVE(b, c)                                                \
	MODE(DST, b, c, MM_ADD), MODE(DST, b, c, MM_SUB),         \
		MODE(DST, b, c, MM_MUL), MODE(DST, b, c, MM_DIV), \
		MODE(DST, b, c, MM_MOD)
static const uint16_t binary[] = {
	FIVE(VAR, NUM),
	FIVE(VAR, NUM),
	FIVE(VAR, VAR),
	MODE(DST, VAR, VAR, MM_POW),
	MODE(DST, RBASE, RBASE, MM_CONCAT),
};
static const uint16_t constant[] = {
	PLAIN(DST, NONE, STR), PLAIN(DST, NONE, CDATA), PLAIN(DST, NONE, LITS),
	PLAIN(DST, NONE, NUM), PLAIN(DST, NONE, PRI),	PLAIN(BASE, NONE, BASE),
};
static const uint16_t upvalue[] = {
	PLAIN(DST, NONE, UV),	      PLAIN(UV, NONE, VAR),
	PLAIN(UV, NONE, STR),	      PLAIN(UV, NONE, NUM),
	PLAIN(UV, NONE, PRI),	      PLAIN(RBASE, NONE, JUMP),
	MODE(DST, NONE, FUNC, MM_GC),
};
static const uint16_t get[] = {
	MODE(DST, NONE, LIT, MM_GC),	MODE(DST, NONE, TAB, MM_GC),
	MODE(DST, NONE, STR, MM_INDEX), MODE(VAR, NONE, STR, MM_NEWINDEX),
	MODE(DST, VAR, VAR, MM_INDEX),	MODE(DST, VAR, STR, MM_INDEX),
	MODE(DST, VAR, LIT, MM_INDEX),
};
static const uint16_t set[] = {
	MODE(VAR, VAR, VAR, MM_NEWINDEX),
	MODE(VAR, VAR, STR, MM_NEWINDEX),
	MODE(VAR, VAR, LIT, MM_NEWINDEX),
	MODE(BASE, NONE, NUM, MM_NEWINDEX),
};
#define LOOP_OP PLAIN(BASE, NONE, JUMP)
static const uint16_t call[] = {
	MODE(BASE, LIT, LIT, MM_CALL),
	MODE(BASE, LIT, LIT, MM_CALL),
	MODE(BASE, NONE, LIT, MM_CALL),
	MODE(BASE, NONE, LIT, MM_CALL),
	MODE(BASE, LIT, LIT, MM_CALL),
	MODE(BASE, LIT, LIT, MM_CALL),
	PLAIN(BASE, LIT, LIT),
	PLAIN(BASE, NONE, JUMP),
	PLAIN(BASE, NONE, LIT),
	PLAIN(RBASE, NONE, LIT),
	PLAIN(RBASE, NONE, LIT),
	PLAIN(RBASE, NONE, LIT),
	LOOP_OP,
	LOOP_OP,
	LOOP_OP,
	LOOP_OP,
	PLAIN(BASE, NONE, LIT),
	LOOP_OP,
	LOOP_OP,
	PLAIN(BASE, NONE, LIT),
	PLAIN(RBASE, NONE, JUMP),
	PLAIN(RBASE, NONE, JUMP),
	PLAIN(RBASE, NONE, LIT),
	PLAIN(RBASE, NONE, JUMP),
};
static const uint16_t header[] = {
	PLAIN(RBASE, NONE, NONE), PLAIN(RBASE, NONE, NONE),
	PLAIN(RBASE, NONE, LIT),  PLAIN(RBASE, NONE, NONE),
	PLAIN(RBASE, NONE, NONE), PLAIN(RBASE, NONE, LIT),
	PLAIN(RBASE, NONE, NONE), PLAIN(RBASE, NONE, NONE),
};

#define ROW(name) name, sizeof(name) / sizeof((name)[0])
#define BC(name)  offsetof(struct lj_offsets, name)

static const struct {
	const uint16_t *row;
	size_t n;
	struct {
		size_t field; /* 0: none */
		uint32_t index;
	} members[10];
} rows[] = {
	{ ROW(compare),
	  { { BC(bc_iseqv), 4 }, { BC(bc_istc), 12 }, { BC(bc_ist), 14 } } },
	{ ROW(unary),
	  { { BC(bc_mov), 0 }, { BC(bc_unm), 2 }, { BC(bc_len), 3 } } },
	{ ROW(binary),
	  { { BC(bc_addvn), 0 }, { BC(bc_pow), 15 }, { BC(bc_cat), 16 } } },
	{ ROW(constant), { { BC(bc_kstr), 0 }, { BC(bc_knil), 5 } } },
	{ ROW(upvalue),
	  { { BC(bc_uget), 0 },
	    { BC(bc_usetv), 1 },
	    { BC(bc_uclo), 5 },
	    { BC(bc_fnew), 6 } } },
	{ ROW(get),
	  { { BC(bc_tnew), 0 },
	    { BC(bc_tdup), 1 },
	    { BC(bc_gget), 2 },
	    { BC(bc_gset), 3 },
	    { BC(bc_tgetv), 4 },
	    { BC(bc_tgets), 5 } } },
	{ ROW(set),
	  { { BC(bc_tsetv), 0 }, { BC(bc_tsets), 1 }, { BC(bc_tsetm), 3 } } },
	{ ROW(call),
	  { { BC(bc_call), 0 },
	    { BC(bc_iterc), 4 },
	    { BC(bc_itern), 5 },
	    { BC(bc_isnext), 7 },
	    { BC(bc_retm), 8 },
	    { BC(bc_fori), 12 },
	    { BC(bc_loop), 20 },
	    { BC(bc_jmp), 23 } } },
	{ ROW(header), { { BC(bc_funcf), 0 } } },
};

static uint16_t word_at(const uint8_t *data, size_t index)
{
	uint16_t word;

	memcpy(&word, data + 2 * index, sizeof(word));
	return word;
}

/* Words of one of the tables, by what they must look like. */
struct search {
	uint32_t n_all;
	uint32_t n_opcodes;
	uint64_t vm_size;
	const uint8_t *found;
	size_t n_found;
};

/* Number of opcodes if this is lj_bc_mode, else 0. */
static uint32_t modes_at(const uint8_t *data, uint32_t n_all)
{
	uint32_t n = 0;

	if (word_at(data, 0) != compare[0] || word_at(data, 1) != compare[1] ||
	    word_at(data, 2) != compare[2])
		return 0;
	while (n < n_all && word_at(data, n))
		n++;
	for (uint32_t i = n; i < n_all; i++)
		if (word_at(data, i))
			return 0;
	return n < N_MIN ? 0 : n;
}

/*
 * The code of opcodes stands in their order, that of fast functions behind.
 * Some opcodes may share code, but not many.
 */
static bool are_offs(const uint8_t *data, const struct search *search)
{
	uint32_t n_shared = 0, last = 0;

	if (word_at(data, 0) || !word_at(data, 1))
		return false;
	for (uint32_t i = 1; i < search->n_all; i++) {
		uint16_t word = word_at(data, i);

		if (word >= search->vm_size || word < last)
			return false;
		if (i >= search->n_opcodes)
			continue;
		n_shared += word == last;
		last = word;
	}
	return n_shared <= SHARED_MAX && last >= search->n_opcodes * SIZE_MIN;
}

static void search_in(const uint8_t *data, uint64_t size, struct search *search)
{
	uint64_t bytes = 2 * (uint64_t)search->n_all;

	for (uint64_t off = 0; off + bytes <= size; off += 2) {
		uint32_t n;

		if (search->n_opcodes) {
			n = are_offs(data + off, search);
		} else {
			n = modes_at(data + off, search->n_all);
		}
		if (!n)
			continue;
		search->found = data + off;
		search->n_found++;
		/* all zeros behind a table would match again and again */
		off += bytes - 2;
	}
}

static int search_file(const struct lb_elf *elf, struct search *search)
{
	const struct lb_segment *segments;
	size_t n = lb_elf_segments(elf, &segments);

	for (size_t i = 0; i < n; i++) {
		uint64_t size = segments[i].filesz;
		const uint8_t *data;

		if (segments[i].flags & PF_W)
			continue;
		if (size > SEARCH_MAX)
			size = SEARCH_MAX;
		data = lb_elf_vaddr_data(elf, segments[i].vaddr, size);
		/* both tables are aligned, segments are not */
		if (data && segments[i].vaddr % 2 == 0)
			search_in(data, size, search);
	}
	return search->n_found == 1 ? 0 : -ENOENT;
}

static bool equal_at(const uint16_t *modes, uint32_t n, uint32_t at,
		     const uint16_t *row, size_t n_row)
{
	if (n_row > n - at)
		return false;
	return !memcmp(modes + at, row, n_row * sizeof(*row));
}

static void name_opcodes(const uint8_t *table, uint32_t n,
			 struct lj_offsets *offsets)
{
	uint16_t modes[LB_OPCODES_MAX];
	uint16_t none = word_at(table, n - 1) >> MM_SHIFT;

	/* "no metamethod" is the number behind the last, which varies */
	for (uint32_t i = 0; i < n; i++) {
		modes[i] = word_at(table, i);
		if (modes[i] >> MM_SHIFT == none)
			modes[i] |= MM_NONE << MM_SHIFT;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t at = n, n_found = 0;

		for (uint32_t j = 0; j < n; j++) {
			if (equal_at(modes, n, j, rows[i].row, rows[i].n)) {
				at = j;
				n_found++;
			}
		}
		if (n_found != 1)
			continue;
		for (size_t j = 0; rows[i].members[j].field; j++) {
			uint32_t number = at + rows[i].members[j].index;

			memcpy((char *)offsets + rows[i].members[j].field,
			       &number, sizeof(number));
		}
	}
}

int lb_opcodes_find(const struct lb_elf *elf, const struct lb_luajit *luajit,
		    struct lb_opcodes *opcodes_ret, struct lj_offsets *offsets)
{
	struct search modes = { .n_all = luajit->static_dispatch / 8 };
	struct search offs = { .n_all = modes.n_all,
			       .vm_size = luajit->vm_size };

	if (modes.n_all < N_MIN || modes.n_all > LB_OPCODES_MAX ||
	    search_file(elf, &modes))
		return -ENOENT;
	offs.n_opcodes = modes_at(modes.found, modes.n_all);
	if (search_file(elf, &offs))
		return -ENOENT;
	opcodes_ret->n_opcodes = offs.n_opcodes;
	opcodes_ret->n_all = offs.n_all;
	for (uint32_t i = 0; i < offs.n_all; i++)
		opcodes_ret->off[i] = word_at(offs.found, i);
	name_opcodes(modes.found, offs.n_opcodes, offsets);
	return 0;
}
