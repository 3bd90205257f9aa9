/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .eh_frame programs made here and the rules they must give; damage.
 */
#include <errno.h>

#include "ehframe.h"
#include "lb_test.h"
#include "lb_write.h"

#define ROWS_MAX 64

struct rows {
	uint64_t vaddrs[ROWS_MAX];
	struct lb_rule rules[ROWS_MAX];
	size_t n;
	struct lb_fde fdes[ROWS_MAX];
	size_t n_fdes;
	uint64_t n_bad;
	int stop_after; /* rules; 0: never */
};

static int on_fde(void *arg, const struct lb_fde *fde)
{
	struct rows *rows = arg;

	if (rows->n_fdes < ROWS_MAX)
		rows->fdes[rows->n_fdes++] = *fde;
	return 0;
}

static int on_rule(void *arg, uint64_t vaddr, const struct lb_rule *rule)
{
	struct rows *rows = arg;

	if (rows->n < ROWS_MAX) {
		rows->vaddrs[rows->n] = vaddr;
		rows->rules[rows->n++] = *rule;
	}
	return rows->stop_after && (int)rows->n == rows->stop_after ? 42 : 0;
}

static int run_image(const struct wr *image, struct rows *rows)
{
	struct lb_elf *elf;
	int ret = lb_elf_open_mem(image->data, image->size, "image", &elf);

	if (ret)
		return ret;
	ret = lb_ehframe_each(elf, on_fde, on_rule, rows, &rows->n_bad);
	lb_elf_free(elf);
	return ret;
}

static int run_eh(const struct wr *eh_frame, struct rows *rows)
{
	static const uint8_t text[0x400];
	struct wr image = wr_eh_image(eh_frame, text, sizeof(text));
	int ret = run_image(&image, rows);

	wr_free(&image);
	return ret;
}

/* ---- programs ---- */

struct want_row {
	uint32_t off; /* from the begin of the FDE */
	struct lb_rule rule;
};

struct program {
	const char *name;
	const char *bytes;
	size_t size;
	const char *augmentation; /* NULL: "zR" */
	uint64_t n_bad;
	struct want_row rows[6];
	size_t n_rows;
};

#define P(bytes) bytes, sizeof(bytes) - 1
#define RSP(off, ...)                                              \
	{                                                          \
		.kind = LB_RULE_RSP, .cfa_off = (off), __VA_ARGS__ \
	}
#define RBP(off, ...)                                              \
	{                                                          \
		.kind = LB_RULE_RBP, .cfa_off = (off), __VA_ARGS__ \
	}
#define KIND(k, ...)                             \
	{                                        \
		.kind = LB_RULE_##k, __VA_ARGS__ \
	}
#define BAD KIND(BAD)

static const struct program programs[] = {
	{ "nothing", P(""), NULL, 0, { { 0, RSP(8) } }, 1 },
	{ "push rbp; mov rbp, rsp; leave",
	  P("\x41\x0e\x10\x86\x02\x43\x0d\x06\x50\x0c\x07\x08"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 1, RSP(16, .rbp = 2) },
	    { 4, RBP(16, .rbp = 2) },
	    { 20, RSP(8, .rbp = 2) } },
	  4 },
	{ "save rbx, r14, and r12 which is not followed",
	  P("\x42\x8e\x02\x42\x83\x03\x42\x8c\x04\x42\xc3\x42\x06\x0e"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 2, RSP(8, .r14 = 2) },
	    { 4, RSP(8, .r14 = 2, .rbx = 3) },
	    { 8, RSP(8, .r14 = 2) },
	    { 10, RSP(8) } },
	  5 },
	{ "advance 1, 2, 4 and 8",
	  P("\x02\x10\x0e\x10\x03\x00\x01\x0e\x18\x04\x10\x00\x00\x00\x0e\x20"
	    "\x1d\x01\x00\x00\x00\x00\x00\x00\x00\x0e\x28"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 0x10, RSP(16) },
	    { 0x110, RSP(24) },
	    { 0x120, RSP(32) },
	    { 0x121, RSP(40) } },
	  5 },
	{ "advance to the end and past it",
	  P("\x03\xff\x02\x0e\x10\x03\xff\x02\x0e\x18"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 0x2ff, RSP(16) } },
	  2 },
	{ "no row where nothing changes",
	  P("\x41\x0e\x08\x41\x00\x41\x0e\x10"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 3, RSP(16) } },
	  2 },
	{ "several changes at one address",
	  P("\x0e\x10\x0e\x18\x41\x0e\x20"),
	  NULL,
	  0,
	  { { 0, RSP(24) }, { 1, RSP(32) } },
	  2 },
	{ "remember and restore, nested",
	  P("\x41\x0e\x10\x0a\x41\x0e\x18\x0a\x41\x0c\x06\x20\x41\x0b\x41\x0b"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 1, RSP(16) },
	    { 2, RSP(24) },
	    { 3, RBP(32) },
	    { 4, RSP(24) },
	    { 5, RSP(16) } },
	  6 },
	{ "restore_state without remember_state",
	  P("\x41\x0e\x10\x41\x0b"),
	  NULL,
	  1,
	  { { 0, RSP(8) }, { 1, RSP(16) }, { 2, BAD } },
	  3 },
	{ "def_cfa_sf, def_cfa_offset_sf, offset_extended_sf",
	  P("\x41\x12\x06\x7e\x41\x13\x7d\x41\x11\x03\x02"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 1, RBP(16) },
	    { 2, RBP(24) },
	    { 3, RBP(24, .rbx = 2) } },
	  4 },
	{ "GNU_args_size, negative_offset_extended",
	  P("\x41\x2e\x10\x2f\x03\x02"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, BAD } }, /* rbx above the CFA */
	  2 },
	{ "rbx and others as base",
	  P("\x41\x0d\x03\x41\x0d\x0a\x41\x0d\x07"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 1, KIND(RBX, .cfa_off = 8) },
	    { 2, BAD },
	    { 3, RSP(8) } },
	  4 },
	{ "jump to a landing pad, then the state before",
	  P("\x41\x83\x03\x0a\x41\x0c\x02\x08\x41\x0c\x07\x08\x41\x0e\x00\x09"
	    "\x10\x02\x41\x0b"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 1, RSP(8, .rbx = 3) },
	    { 2, KIND(RCX, .cfa_off = 8, .flags = LB_RULE_F_LANDING) },
	    { 3, RSP(8, .flags = LB_RULE_F_LANDING) },
	    { 4, RSP(0, .flags = LB_RULE_F_LANDING | LB_RULE_F_RA_RCX) },
	    { 5, RSP(8, .rbx = 3) } },
	  6 },
	{ "return address undefined",
	  P("\x41\x07\x10"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, KIND(END) } },
	  2 },
	{ "return address elsewhere",
	  P("\x41\x90\x02\x41\x09\x10\x01"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, BAD } },
	  2 },
	{ "rbp in a register, unchanged, lost",
	  P("\x41\x09\x06\x01\x41\x08\x06\x41\x07\x06"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, BAD }, { 2, RSP(8) }, { 3, BAD } },
	  4 },
	{ "val_offset and val_expression of rbx; of rax",
	  P("\x41\x14\x00\x02\x41\x14\x03\x02\x41\x08\x03\x41\x16\x03\x01\x30"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 2, BAD }, { 3, RSP(8) }, { 4, BAD } },
	  4 },
	{ "slot 65535 and 65536",
	  P("\x41\x86\xff\xff\x03\x41\x86\x80\x80\x04"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, RSP(8, .rbp = 65535) }, { 2, BAD } },
	  3 },
	{ "PLT",
	  P("\x0e\x10\x46\x0e\x18\x4a\x0f\x0b\x77\x08\x80\x00\x3f\x1a\x3b\x2a"
	    "\x33\x24\x22"),
	  NULL,
	  0,
	  { { 0, RSP(16) }, { 6, RSP(24) }, { 16, KIND(PLT, .cfa_off = 11) } },
	  3 },
	{ "nearly PLT",
	  P("\x41\x0f\x0b\x77\x10\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, BAD } },
	  2 },
	{ "[rsp + 48], [rbp - 8] + 8, rsp + 24 by an expression",
	  P("\x41\x0f\x03\x77\x30\x06\x41\x0f\x05\x76\x78\x06\x23\x08\x41\x0f"
	    "\x02\x77\x18"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 1, KIND(DEREF_RSP, .cfa_off = 48) },
	    { 2, KIND(DEREF_RBP, .cfa_off = -8, .deref_off = 8) },
	    { 3, RSP(24) } },
	  4 },
	{ "def_cfa_offset while the CFA is an expression",
	  P("\x41\x0f\x03\x77\x30\x06\x41\x0e\x10\x41\x0c\x07\x08"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 1, KIND(DEREF_RSP, .cfa_off = 48) },
	    { 2, BAD },
	    { 3, RSP(8) } },
	  4 },
	{ "realigned stack",
	  P("\x45\x0c\x0a\x00\x49\x10\x06\x02\x76\x00\x44\x0f\x03\x76\x78\x06"
	    "\x10\x0e\x02\x76\x68\x44\x10\x03\x02\x76\x60"),
	  NULL,
	  0,
	  { { 0, RSP(8) },
	    { 5, BAD }, /* the CFA is r10 */
	    { 18, KIND(DEREF_RBP, .cfa_off = -8, .rbp = 1, .r14 = 4,
		       .flags = LB_RULE_F_RBP_SLOTS) },
	    { 22, KIND(DEREF_RBP, .cfa_off = -8, .rbp = 1, .r14 = 4, .rbx = 5,
		       .flags = LB_RULE_F_RBP_SLOTS) } },
	  4 },
	{ "slots of both kinds",
	  P("\x41\x86\x02\x10\x03\x02\x76\x78"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, BAD } },
	  2 },
	{ "rbx at rsp + 8, rbx by a longer expression",
	  P("\x41\x10\x03\x02\x77\x08\x41\x10\x03\x03\x76\x78\x06"),
	  NULL,
	  0,
	  { { 0, RSP(8) }, { 1, BAD } },
	  2 },
	{ "signal frame of the kernel",
	  P("\x0f\x04\x77\xa0\x01\x06\x10\x06\x03\x77\xf8\x00\x10\x03\x03\x77"
	    "\x80\x01\x10\x0e\x03\x77\xd8\x00\x10\x07\x03\x77\xa0\x01\x10\x10"
	    "\x03\x77\xa8\x01"),
	  "zRS",
	  0,
	  { { 0, KIND(SIGNAL) } },
	  1 },
	{ "signal frame of another kind",
	  P("\x0e\x10"),
	  "zRS",
	  0,
	  { { 0, BAD } },
	  1 },
	{ "unknown opcode",
	  P("\x41\x0e\x10\x41\x3f\x00"),
	  NULL,
	  1,
	  { { 0, RSP(8) }, { 1, RSP(16) }, { 2, BAD } },
	  3 },
	{ "expression longer than the record",
	  P("\x41\x0f\x7f\x77\x08"),
	  NULL,
	  1,
	  { { 0, RSP(8) }, { 1, BAD } },
	  2 },
};

static void check_program(const struct program *program)
{
	struct rows rows = { 0 };
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, program->augmentation ? program->augmentation
						       : "zR");

	wr_fde(&eh, cie, 0x1000, 0x300, program->bytes, program->size);
	CHECK_INT(run_eh(&eh, &rows), 0);
	CHECK_INT(rows.n_bad, program->n_bad);
	CHECK_INT(rows.n, program->n_rows);
	for (size_t i = 0; i < rows.n && i < program->n_rows; i++) {
		const struct want_row *want = &program->rows[i];

		CHECK_INT(rows.vaddrs[i], 0x1000 + want->off);
		CHECK(!memcmp(&rows.rules[i], &want->rule, sizeof(want->rule)));
	}
	wr_free(&eh);
}

static void test_programs(void)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		int before = lb_test_failed_checks;

		check_program(&programs[i]);
		if (lb_test_failed_checks != before)
			fprintf(stderr, "  in: %s\n", programs[i].name);
	}
}

/* The state that CIE instructions leave is what restore goes back to. */
static void test_restore_to_initial_rule(void)
{
	struct rows rows = { 0 };
	struct wr eh = { 0 };

	wr_u32(&eh, 0);
	wr_u32(&eh, 0);
	wr_bytes(&eh, "\x01zR\0\x01\x78\x10\x01\x1b", 9);
	wr_bytes(&eh, "\x0c\x07\x10\x90\x01\x86\x02", 7); /* rbp in slot 2 */
	wr_end_record(&eh, 0);
	wr_fde(&eh, 0, 0x1000, 0x20, "\x41\x86\x05\x41\xc6\x41\x08\x06", 8);
	CHECK_INT(run_eh(&eh, &rows), 0);
	CHECK_INT(rows.n, 4);
	CHECK_INT(rows.rules[0].rbp, 2);
	CHECK_INT(rows.rules[1].rbp, 5);
	CHECK_INT(rows.rules[2].rbp, 2);
	CHECK_INT(rows.rules[3].rbp, 0);
	wr_free(&eh);
}

static void test_nesting_is_bounded(void)
{
	uint8_t program[64];
	struct rows rows = { 0 };
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");

	memset(program, 0x0a, sizeof(program)); /* remember_state */
	wr_fde(&eh, cie, 0x1000, 0x20, program, 16);
	wr_fde(&eh, cie, 0x1020, 0x20, program, 17);
	CHECK_INT(run_eh(&eh, &rows), 0);
	CHECK_INT(rows.n_bad, 1);
	CHECK_INT(rows.rules[0].kind, LB_RULE_RSP);
	CHECK_INT(rows.rules[1].kind, LB_RULE_BAD);
	wr_free(&eh);
}

static void test_set_loc(void)
{
	struct rows rows = { 0 };
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");
	size_t fde = eh.size;

	wr_fde(&eh, cie, 0x1000, 0x20, "\x01\0\0\0\0\x0e\x10", 7);
	/* the operand is behind length, id, range, augmentation size, opcode */
	wr_patch_u32(&eh, fde + 18,
		     0x1008 - (uint32_t)(WR_EH_FRAME + fde + 18));
	fde = eh.size;
	wr_fde(&eh, cie, 0x1040, 0x20, "\x42\x01\0\0\0\0\x0e\x10", 8);
	wr_patch_u32(&eh, fde + 19,
		     0x1041 - (uint32_t)(WR_EH_FRAME + fde + 19));
	CHECK_INT(run_eh(&eh, &rows), 0);
	CHECK_INT(rows.n, 4);
	CHECK_INT(rows.vaddrs[1], 0x1008);
	CHECK_INT(rows.rules[1].cfa_off, 16);
	CHECK_INT(rows.n_bad, 1); /* the second one goes back */
	CHECK_INT(rows.rules[3].kind, LB_RULE_BAD);
	wr_free(&eh);
}

/* ---- records ---- */

static void test_order_terminator_and_personality(void)
{
	struct rows rows = { 0 };
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");
	size_t second;

	wr_fde(&eh, cie, 0x1100, 0x20, "", 0);
	wr_u32(&eh, 0); /* a terminator that is not the end */
	wr_fde(&eh, cie, 0x1000, 0x20, "", 0);
	second = eh.size;
	wr_u32(&eh, 0);
	wr_u32(&eh, 0);
	wr_bytes(&eh, "\x01zPLR\0\x01\x78\x10\x07\x1b", 11);
	wr_u32(&eh, 0x1200 - (uint32_t)(WR_EH_FRAME + eh.size));
	wr_bytes(&eh, "\x1b\x1b\x0c\x07\x08\x90\x01", 7);
	wr_end_record(&eh, second);
	wr_fde(&eh, second, 0x1080, 0x20, "", 0);
	CHECK_INT(run_eh(&eh, &rows), 0);
	CHECK_INT(rows.n_fdes, 3);
	CHECK_INT(rows.fdes[0].vaddr, 0x1000);
	CHECK_INT(rows.fdes[0].personality_vaddr, 0);
	CHECK_INT(rows.fdes[1].vaddr, 0x1080);
	CHECK_INT(rows.fdes[1].size, 0x20);
	CHECK_INT(rows.fdes[1].personality_vaddr, 0x1200);
	CHECK_INT(rows.fdes[2].vaddr, 0x1100);
	CHECK_INT(rows.n, 3);
	CHECK_INT(rows.n_bad, 0);
	wr_free(&eh);
}

static void test_64_bit_length(void)
{
	struct rows rows = { 0 };
	struct wr plain = { 0 }, eh = { 0 };
	size_t cie = wr_cie(&plain, "zR");

	wr_bytes(&eh, plain.data, plain.size);
	wr_u32(&eh, UINT32_MAX);
	wr_u64(&eh, 16);
	wr_u32(&eh, (uint32_t)(eh.size - cie));
	wr_u32(&eh, 0x1000 - (uint32_t)(WR_EH_FRAME + eh.size));
	wr_u32(&eh, 0x20);
	wr_bytes(&eh, "\0\x41\x0e\x10", 4);
	CHECK_INT(run_eh(&eh, &rows), 0);
	CHECK_INT(rows.n, 2);
	CHECK_INT(rows.vaddrs[1], 0x1001);
	wr_free(&plain);
	wr_free(&eh);
}

/* Each way to write the address 0x1000 and the size 0x20. */
static void test_pointer_encodings(void)
{
	static const uint8_t encs[] = { 0x00, 0x01, 0x02, 0x03, 0x04,
					0x09, 0x0a, 0x0b, 0x0c, 0x10,
					0x1a, 0x1b, 0x1c, 0x50 };

	for (size_t i = 0; i < sizeof(encs); i++) {
		struct rows rows = { 0 };
		struct wr eh = { 0 };
		uint8_t enc = encs[i];
		size_t cie = wr_cie(&eh, "zR");
		size_t fde = eh.size;
		uint64_t value = 0x1000;

		/* version, "zR", two factors, register, size of data */
		eh.data[cie + 8 + 1 + 3 + 3 + 1] = enc;
		wr_u32(&eh, 0);
		wr_u32(&eh, (uint32_t)(eh.size - cie));
		if (enc == 0x50) {
			while ((WR_EH_FRAME + eh.size) % 8)
				wr_u8(&eh, 0xee);
		} else if (enc & 0x70) {
			value -= WR_EH_FRAME + eh.size;
		}
		for (int j = 0; j < 2; j++) {
			switch (enc & 0xf) {
			case 1:
				wr_uleb(&eh, value);
				break;
			case 9:
				wr_sleb(&eh, (int64_t)value);
				break;
			case 2:
			case 10:
				wr_u16(&eh, (uint16_t)value);
				break;
			case 3:
			case 11:
				wr_u32(&eh, (uint32_t)value);
				break;
			default:
				wr_u64(&eh, value);
				break;
			}
			value = 0x20;
		}
		wr_uleb(&eh, 0);
		wr_end_record(&eh, fde);
		CHECK_INT(run_eh(&eh, &rows), 0);
		CHECK_INT(rows.n_fdes, 1);
		CHECK_INT(rows.fdes[0].vaddr, 0x1000);
		CHECK_INT(rows.fdes[0].size, 0x20);
		wr_free(&eh);
	}
}

static void test_bad_cies(void)
{
	static const struct {
		size_t off; /* in the CIE's content */
		uint8_t byte;
	} cases[] = {
		{ 0, 2 },    /* version */
		{ 1, 'q' },  /* augmentation without z */
		{ 2, 'q' },  /* augmentation unknown */
		{ 6, 17 },   /* return address register */
		{ 7, 0x7f }, /* augmentation data past the end */
		{ 8, 0x2b }, /* textrel */
		{ 8, 0x9b }, /* indirect */
		{ 8, 0xff }, /* no pointer */
		{ 8, 0x07 }, /* no such format */
		{ 9, 0x3f }, /* initial instructions */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rows rows = { 0 };
		struct wr eh = { 0 };
		size_t cie = wr_cie(&eh, "zR");
		size_t good;

		eh.data[cie + 8 + cases[i].off] = cases[i].byte;
		wr_fde(&eh, cie, 0x1000, 0x20, "", 0);
		CHECK_INT(run_eh(&eh, &rows), -EBADMSG);
		/* the rest is still delivered */
		good = wr_cie(&eh, "zR");
		wr_fde(&eh, good, 0x1040, 0x20, "", 0);
		CHECK_INT(run_eh(&eh, &rows), 0);
		CHECK_INT(rows.n_fdes, 1);
		CHECK(rows.n_bad > 0);
		wr_free(&eh);
	}
}

static void test_fde_without_cie(void)
{
	struct rows rows = { 0 };
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");

	wr_fde(&eh, cie + 4, 0x1000, 0x20, "", 0);
	wr_fde(&eh, cie - 4000, 0x1000, 0x20, "", 0);
	wr_fde(&eh, cie, 0x1000, 0x20, "", 0);
	CHECK_INT(run_eh(&eh, &rows), 0);
	CHECK_INT(rows.n_fdes, 1);
	CHECK_INT(rows.n_bad, 2);
	wr_free(&eh);
}

static void test_nothing_there(void)
{
	struct rows rows = { 0 };
	struct wr eh = { 0 };

	CHECK_INT(run_eh(&eh, &rows), -ENODATA);
	wr_u32(&eh, 0);
	CHECK_INT(run_eh(&eh, &rows), -ENODATA);
	wr_u32(&eh, 100); /* longer than the section */
	CHECK_INT(run_eh(&eh, &rows), -EBADMSG);
	wr_free(&eh);
}

static void test_callback_stops(void)
{
	struct rows rows = { .stop_after = 2 };
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");

	wr_fde(&eh, cie, 0x1000, 0x20, "\x41\x0e\x10\x41\x0e\x18", 6);
	CHECK_INT(run_eh(&eh, &rows), 42);
	CHECK_INT(rows.n, 2);
	wr_free(&eh);
}

/* ---- damage ---- */

/* Every program above, as one section. */
static struct wr all_programs(void)
{
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");
	size_t signal = wr_cie(&eh, "zRS");

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		wr_fde(&eh, programs[i].augmentation ? signal : cie,
		       0x1000 + (uint32_t)i * 0x10, 0x10, programs[i].bytes,
		       programs[i].size);
	return eh;
}

static void check_rules(const struct rows *rows)
{
	for (size_t i = 0; i < rows->n; i++)
		CHECK(rows->rules[i].kind <= LB_RULE_DEREF_RBP);
}

static void test_cut_at_each_byte(void)
{
	struct wr eh = all_programs();

	for (size_t size = 0; size <= eh.size; size++) {
		struct wr cut = { 0 };
		struct rows rows = { 0 };

		wr_bytes(&cut, eh.data, size);
		run_eh(&cut, &rows);
		check_rules(&rows);
		wr_free(&cut);
	}
	wr_free(&eh);
}

static void test_each_byte_at_maximum(void)
{
	static const size_t widths[] = { 1, 4, 8 };
	struct wr eh = all_programs();

	for (size_t w = 0; w < 3; w++) {
		for (size_t off = 0; off + widths[w] <= eh.size; off++) {
			struct wr copy = { 0 };
			struct rows rows = { 0 };

			wr_bytes(&copy, eh.data, eh.size);
			memset(copy.data + off, 0xff, widths[w]);
			run_eh(&copy, &rows);
			check_rules(&rows);
			copy.data[off + widths[w] - 1] = 0x7f;
			run_eh(&copy, &rows);
			check_rules(&rows);
			wr_free(&copy);
		}
	}
	wr_free(&eh);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_programs),
		LB_TEST(test_restore_to_initial_rule),
		LB_TEST(test_nesting_is_bounded),
		LB_TEST(test_set_loc),
		LB_TEST(test_order_terminator_and_personality),
		LB_TEST(test_64_bit_length),
		LB_TEST(test_pointer_encodings),
		LB_TEST(test_bad_cies),
		LB_TEST(test_fde_without_cie),
		LB_TEST(test_nothing_there),
		LB_TEST(test_callback_stops),
		LB_TEST(test_cut_at_each_byte),
		LB_TEST(test_each_byte_at_maximum),
	};

	return LB_TEST_MAIN(cases);
}
