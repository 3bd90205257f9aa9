/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unwind table: its shape, and its rules against libdw's at every address
 * where one of the two changes.
 */
#include <errno.h>
#include <fcntl.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <time.h>
#include <unistd.h>

#include "unwind.h"
#include "lb_test.h"
#include "lb_write.h"

#define LIB_DIR	 "/lib/x86_64-linux-gnu/"
#define UPSTREAM ".output/deb/upstream/usr/lib/x86_64-linux-gnu/"

/* ---- libdw's view, as a struct lb_rule ---- */

enum {
	DW_RBX = 3,
	DW_RBP = 6,
	DW_RSP = 7,
	DW_R14 = 14,
	DW_RIP = 16,
};

static int is_breg(const Dwarf_Op *op, int reg, int64_t *off)
{
	if (op->atom == DW_OP_bregx && op->number == (Dwarf_Word)reg) {
		*off = (int64_t)op->number2;
		return 1;
	}
	if (op->atom == (uint8_t)(DW_OP_breg0 + reg)) {
		*off = (int64_t)op->number;
		return 1;
	}
	return 0;
}

static int dw_plt(const Dwarf_Op *ops, size_t n, struct lb_rule *rule)
{
	static const uint8_t atoms[] = {
		DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, 0,
		DW_OP_ge,    DW_OP_lit3,   DW_OP_shl,	DW_OP_plus
	};

	if (n != sizeof(atoms) || ops[0].number != 8 || ops[1].number)
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (atoms[i] && ops[i].atom != atoms[i])
			return 0;
	}
	rule->kind = LB_RULE_PLT;
	rule->cfa_off = ops[4].atom - DW_OP_lit0;
	return 1;
}

static int dw_cfa(Dwarf_Frame *frame, struct lb_rule *rule)
{
	Dwarf_Op *ops;
	size_t n;
	int64_t off;
	int reg;

	if (dwarf_frame_cfa(frame, &ops, &n) || !n)
		return 0;
	if (dw_plt(ops, n, rule))
		return 1;
	if (is_breg(ops, DW_RSP, &off))
		reg = DW_RSP;
	else if (is_breg(ops, DW_RBP, &off))
		reg = DW_RBP;
	else if (is_breg(ops, DW_RBX, &off))
		reg = DW_RBX;
	else
		return 0;
	rule->cfa_off = (int32_t)off;
	if (n == 1) {
		rule->kind = reg == DW_RSP   ? LB_RULE_RSP
			     : reg == DW_RBP ? LB_RULE_RBP
					     : LB_RULE_RBX;
		return 1;
	}
	if (reg == DW_RBX || ops[1].atom != DW_OP_deref || n > 3)
		return 0;
	rule->kind = reg == DW_RSP ? LB_RULE_DEREF_RSP : LB_RULE_DEREF_RBP;
	if (n == 3) {
		if (ops[2].atom != DW_OP_plus_uconst)
			return 0;
		rule->deref_off = (int32_t)ops[2].number;
	}
	return 1;
}

/* How a register is saved: 0 not, 1 at CFA + off, 2 at rbp + off, 3 at
 * rsp + off, 4 undefined, 5 otherwise. */
static int dw_saved(Dwarf_Frame *frame, int reg, int64_t *off)
{
	Dwarf_Op mem[3];
	Dwarf_Op *ops;
	size_t n;

	if (dwarf_frame_register(frame, reg, mem, &ops, &n))
		return 5;
	if (!n)
		return ops ? 4 : 0;
	if (ops[0].atom != DW_OP_call_frame_cfa)
		return 5;
	*off = 0;
	if (n == 1)
		return 1;
	if (n == 2 && ops[1].atom == DW_OP_plus_uconst) {
		*off = (int64_t)ops[1].number;
		return 1;
	}
	if (n == 2 && is_breg(&ops[1], DW_RBP, off))
		return 2;
	if (n == 2 && is_breg(&ops[1], DW_RSP, off))
		return 3;
	return 5;
}

static struct lb_rule dw_rule(Dwarf_Frame *frame, int is_signal)
{
	const int regs[] = { DW_RBP, DW_RBX, DW_R14 };
	const struct lb_rule bad = { .kind = LB_RULE_BAD };
	struct lb_rule rule = { 0 };
	uint16_t *const slots[] = { &rule.rbp, &rule.rbx, &rule.r14 };
	int64_t off = 0;
	int ra = dw_saved(frame, DW_RIP, &off);
	int seen = 0;

	if (ra == 4)
		return (struct lb_rule){ .kind = LB_RULE_END };
	if (is_signal) {
		if (ra == 3 && off == 168)
			return (struct lb_rule){ .kind = LB_RULE_SIGNAL };
		return bad;
	}
	if (ra != 1 || off != -8 || !dw_cfa(frame, &rule))
		return bad;
	for (int i = 0; i < 3; i++) {
		int how = dw_saved(frame, regs[i], &off);
		int64_t slot = how == 1 ? -off / 8 : 1 - off / 8;

		/* libdw says undefined as well where there is no rule */
		if (!how || how == 4)
			continue;
		if (how > 2 || off % 8 || slot < 1 || slot > UINT16_MAX)
			return bad;
		seen |= how;
		*slots[i] = (uint16_t)slot;
	}
	if (seen == 3)
		return bad;
	if (seen == 2)
		rule.flags = LB_RULE_F_RBP_SLOTS;
	return rule;
}

/* ---- comparison ---- */

struct oracle {
	const char *name;
	const struct lb_unwind *unwind;
	Dwarf_CFI *cfi;
	uint64_t skip_lo; /* the VM, where libdw does not know better */
	uint64_t skip_hi;
	uint64_t n_addrs;
	uint64_t n_mismatches;
};

static void print_rule(const char *who, const struct lb_rule *rule)
{
	fprintf(stderr,
		"  %s: kind %u cfa %d deref %d rbp %u rbx %u r14 %u%s\n", who,
		rule->kind, rule->cfa_off, rule->deref_off, rule->rbp,
		rule->rbx, rule->r14, rule->flags ? " rbp slots" : "");
}

/* *end: where libdw's rule ends. */
static struct lb_rule dw_rule_at(const struct oracle *oracle, uint64_t vaddr,
				 uint64_t *end)
{
	struct lb_rule rule = { .kind = LB_RULE_NONE };
	Dwarf_Frame *frame;
	Dwarf_Addr start, frame_end;
	bool is_signal;

	*end = 0;
	if (dwarf_cfi_addrframe(oracle->cfi, vaddr, &frame))
		return rule;
	if (dwarf_frame_info(frame, &start, &frame_end, &is_signal) >= 0) {
		*end = frame_end;
		rule = dw_rule(frame, is_signal);
	}
	free(frame);
	return rule;
}

/* Return: end of libdw's rule at @vaddr, 0 when it has none. */
static uint64_t compare_at(struct oracle *oracle, uint64_t vaddr)
{
	static const struct lb_rule outside = { .kind = LB_RULE_NONE };
	const struct lb_rule *got = lb_unwind_rule(oracle->unwind, vaddr);
	uint64_t end;
	struct lb_rule want = dw_rule_at(oracle, vaddr, &end);

	if (!got)
		got = &outside;
	oracle->n_addrs++;
	if (vaddr >= oracle->skip_lo && vaddr < oracle->skip_hi)
		return end;
	/* padding gets the rule before it */
	if (want.kind == LB_RULE_NONE && got->kind != LB_RULE_NONE &&
	    !lb_unwind_function(oracle->unwind, vaddr))
		return end;
	if (!memcmp(got, &want, sizeof(want)))
		return end;
	/* CFI is not right there, see landing_rule() in ehframe.c */
	if (got->flags & LB_RULE_F_LANDING)
		return end;
	if (oracle->n_mismatches++ < 10) {
		fprintf(stderr, "%s: 0x%llx\n", oracle->name,
			(unsigned long long)vaddr);
		print_rule("ours ", got);
		print_rule("libdw", &want);
	}
	return end;
}

static void compare_all(struct oracle *oracle)
{
	const struct lb_unwind *unwind = oracle->unwind;
	uint64_t vaddr = unwind->vaddr_lo;

	for (uint32_t i = 0; i < unwind->n_rows; i++) {
		uint64_t at = unwind->vaddr_lo + unwind->rows[i].vaddr;

		compare_at(oracle, at);
		compare_at(oracle, at - 1);
	}
	/* libdw's own changes, in case that we merged what is not equal */
	for (uint32_t i = 0; i < unwind->n_fdes; i++) {
		uint64_t end = unwind->vaddr_lo + unwind->fdes[i][1];

		vaddr = unwind->vaddr_lo + unwind->fdes[i][0];
		while (vaddr && vaddr < end) {
			uint64_t next = compare_at(oracle, vaddr);

			if (next <= vaddr)
				break;
			compare_at(oracle, next - 1);
			vaddr = next;
		}
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int open_elf(const char *path, struct lb_elf **elf)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : lb_elf_open_fd(fd, path, elf);

	if (fd >= 0)
		close(fd);
	return err;
}

static void check_shape(const struct lb_unwind *unwind)
{
	uint64_t size = unwind->vaddr_hi - unwind->vaddr_lo;
	uint32_t row = 0;

	CHECK_INT(unwind->rows[0].vaddr, 0);
	CHECK_INT(unwind->rows[unwind->n_rows - 1].vaddr, size);
	CHECK_INT(unwind->rules[unwind->rows[unwind->n_rows - 1].rule].kind,
		  LB_RULE_NONE);
	for (uint32_t i = 1; i < unwind->n_rows; i++) {
		CHECK(unwind->rows[i].vaddr > unwind->rows[i - 1].vaddr);
		CHECK(unwind->rows[i].rule != unwind->rows[i - 1].rule);
		CHECK(unwind->rows[i].rule < unwind->n_rules);
	}
	CHECK_INT(unwind->n_blocks, (size >> LB_BLOCK_SHIFT) + 2);
	for (uint32_t i = 0; i < unwind->n_blocks; i++) {
		while (row + 1 < unwind->n_rows &&
		       unwind->rows[row + 1].vaddr <= (uint64_t)i
							      << LB_BLOCK_SHIFT)
			row++;
		CHECK_INT(unwind->blocks[i], row);
	}
	for (uint32_t i = 0; i < unwind->n_fdes; i++) {
		CHECK(unwind->fdes[i][0] < unwind->fdes[i][1]);
		CHECK(!i || unwind->fdes[i][0] >= unwind->fdes[i - 1][1]);
	}
	for (uint32_t i = 0; i < unwind->n_rules; i++) {
		for (uint32_t j = 0; j < i && unwind->n_rules < 3000; j++)
			CHECK(memcmp(&unwind->rules[i], &unwind->rules[j],
				     sizeof(struct lb_rule)));
	}
}

/* Return: 0, or -ENOENT when there is no such file. */
static int check_file(const char *path)
{
	struct oracle oracle = { .name = path };
	struct lb_luajit luajit;
	struct lb_unwind *unwind;
	struct lb_elf *elf;
	struct lb_section eh_frame;

	if (open_elf(path, &elf))
		return -ENOENT;

	int has_vm = !lb_luajit_find(elf, &luajit);

	CHECK_INT(lb_unwind_build(elf, has_vm ? &luajit : NULL, &unwind), 0);
	lb_unwind_free(unwind);

	double start = seconds();

	CHECK_INT(lb_unwind_build(elf, has_vm ? &luajit : NULL, &unwind), 0);

	double spent = seconds() - start;

	CHECK_INT(lb_elf_eh_frame(elf, &eh_frame), 0);
	CHECK_INT(unwind->n_bad_records, 0);
	check_shape(unwind);
	if (has_vm) {
		oracle.skip_lo = luajit.vm_vaddr;
		oracle.skip_hi = luajit.ffi_call_vaddr + luajit.ffi_call_size;
	}
	elf_version(EV_CURRENT);

	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf *gelf = elf_begin(fd, ELF_C_READ, NULL);

	oracle.unwind = unwind;
	oracle.cfi = dwarf_getcfi_elf(gelf);
	CHECK(oracle.cfi);
	if (oracle.cfi)
		compare_all(&oracle);
	CHECK_INT(oracle.n_mismatches, 0);
	fprintf(stderr,
		"%s: %u rows (%llu bad), %u rules, %.2f ms, %.1f ms/MB, "
		"%.1f M rows/s; %llu addresses compared, %llu mismatches\n",
		path, unwind->n_rows, (unsigned long long)unwind->n_bad_rows,
		unwind->n_rules, spent * 1e3,
		spent * 1e3 / ((double)eh_frame.size / (1 << 20)),
		unwind->n_rows / spent / 1e6,
		(unsigned long long)oracle.n_addrs,
		(unsigned long long)oracle.n_mismatches);
	dwarf_cfi_end(oracle.cfi);
	elf_end(gelf);
	close(fd);
	lb_unwind_free(unwind);
	lb_elf_free(elf);
	return 0;
}

static void test_files_against_libdw(void)
{
	static const char *const paths[] = {
		LIB_DIR "libc.so.6",	       "/lib64/ld-linux-x86-64.so.2",
		LIB_DIR "libcrypto.so.3",      LIB_DIR "libstdc++.so.6",
		LIB_DIR "libgcc_s.so.1",       "/usr/sbin/nginx",
		LIB_DIR "libluajit-5.1.so.2",  "/usr/bin/luajit",
		UPSTREAM "libluajit-5.1.so.2",
	};
	int n = 0;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		n += !check_file(paths[i]);
	if (!n)
		SKIP("files: none of the libraries is here");
}

/* ---- tables made here ---- */

static struct lb_unwind *build(const struct wr *eh_frame, int want)
{
	uint8_t text[0x400] = { 0 };
	struct wr image = wr_eh_image(eh_frame, text, sizeof(text));
	struct lb_unwind *unwind = NULL;
	struct lb_elf *elf;

	CHECK_INT(lb_elf_open_mem(image.data, image.size, "image", &elf), 0);
	CHECK_INT(lb_unwind_build(elf, NULL, &unwind), want);
	lb_elf_free(elf);
	wr_free(&image);
	return unwind;
}

static void check_rule_at(const struct lb_unwind *unwind, uint64_t vaddr,
			  enum lb_rule_kind kind, int cfa_off)
{
	const struct lb_rule *rule = lb_unwind_rule(unwind, vaddr);

	CHECK(rule);
	if (!rule)
		return;
	CHECK_INT(rule->kind, kind);
	CHECK_INT(rule->cfa_off, cfa_off);
}

/* advance 4; def_cfa_offset 16 */
#define PUSH "\x44\x0e\x10"

static void test_gaps(void)
{
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");

	wr_fde(&eh, cie, 0x1010, 0x10, PUSH, 3);
	wr_fde(&eh, cie, 0x102f, 0x11, "", 0); /* 15 bytes behind it */
	wr_fde(&eh, cie, 0x1050, 0x10, "", 0); /* 16 bytes behind it */

	struct lb_unwind *unwind = build(&eh, 0);

	CHECK_INT(unwind->vaddr_lo, 0x1010);
	CHECK_INT(unwind->vaddr_hi, 0x1060);
	CHECK_INT(unwind->n_fdes, 3);
	CHECK(!lb_unwind_rule(unwind, 0x100f));
	CHECK(!lb_unwind_rule(unwind, 0x1060));
	check_rule_at(unwind, 0x1010, LB_RULE_RSP, 8);
	check_rule_at(unwind, 0x1013, LB_RULE_RSP, 8);
	check_rule_at(unwind, 0x1014, LB_RULE_RSP, 16);
	check_rule_at(unwind, 0x102e, LB_RULE_RSP, 16);
	check_rule_at(unwind, 0x102f, LB_RULE_RSP, 8);
	check_rule_at(unwind, 0x103f, LB_RULE_RSP, 8);
	check_rule_at(unwind, 0x1040, LB_RULE_NONE, 0);
	check_rule_at(unwind, 0x104f, LB_RULE_NONE, 0);
	check_rule_at(unwind, 0x1050, LB_RULE_RSP, 8);
	CHECK_INT(lb_unwind_function(unwind, 0x100f), 0);
	CHECK_INT(lb_unwind_function(unwind, 0x1010), 0x1010);
	CHECK_INT(lb_unwind_function(unwind, 0x101f), 0x1010);
	CHECK_INT(lb_unwind_function(unwind, 0x1020), 0);
	CHECK_INT(lb_unwind_function(unwind, 0x105f), 0x1050);
	CHECK_INT(lb_unwind_function(unwind, 0x1060), 0);
	/* 8 and 16, then 8, a gap, 8, the end */
	CHECK_INT(unwind->n_rows, 6);
	CHECK_INT(unwind->n_rules, 3);
	check_shape(unwind);
	lb_unwind_free(unwind);
	wr_free(&eh);
}

static void test_unsorted_overlapping_and_empty_fdes(void)
{
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");

	wr_fde(&eh, cie, 0x1100, 0x20, "", 0);
	wr_fde(&eh, cie, 0x1010, 0x20, "", 0);
	wr_fde(&eh, cie, 0x1018, 0x20, PUSH, 3); /* overlaps the second */
	wr_fde(&eh, cie, 0x1018, 0x04, PUSH, 3); /* is inside it */
	wr_fde(&eh, cie, 0x1080, 0, "", 0);
	wr_fde(&eh, cie, 0x4000000, 0x10, "", 0); /* no text there */

	struct lb_unwind *unwind = build(&eh, 0);

	CHECK_INT(unwind->vaddr_lo, 0x1010);
	CHECK_INT(unwind->vaddr_hi, 0x1120);
	CHECK_INT(unwind->n_fdes, 3);
	CHECK_INT(unwind->n_bad_records, 1);
	check_rule_at(unwind, 0x102f, LB_RULE_RSP, 8);
	check_rule_at(unwind, 0x1030, LB_RULE_RSP, 16);
	check_rule_at(unwind, 0x1038, LB_RULE_NONE, 0);
	check_rule_at(unwind, 0x1100, LB_RULE_RSP, 8);
	check_shape(unwind);
	lb_unwind_free(unwind);
	wr_free(&eh);
}

static void test_no_text_at_all(void)
{
	struct wr eh = { 0 };
	size_t cie = wr_cie(&eh, "zR");

	wr_fde(&eh, cie, 0x4000000, 0x10, "", 0);
	CHECK(!build(&eh, -EBADMSG));
	wr_free(&eh);
}

static void test_free_of_null(void)
{
	lb_unwind_free(NULL);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_gaps),
		LB_TEST(test_unsorted_overlapping_and_empty_fdes),
		LB_TEST(test_no_text_at_all),
		LB_TEST(test_free_of_null),
		LB_TEST(test_files_against_libdw),
	};

	return LB_TEST_MAIN(cases);
}
