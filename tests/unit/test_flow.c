/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where probes go in a function: small functions of which the answer is known,
 * and each function of libluajit against an independent rule.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "flow.h"
#include "lb_test.h"

#define VADDR 0x1000
#define LIB   "/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"

/* An ELF file with one segment of code. */
static struct lb_elf *make_elf(const uint8_t *code, size_t size)
{
	struct {
		Elf64_Ehdr ehdr;
		Elf64_Phdr phdr;
		uint8_t code[512];
	} image = {
		.ehdr = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3,
				       ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			  .e_type = ET_DYN,
			  .e_machine = EM_X86_64,
			  .e_version = EV_CURRENT,
			  .e_phoff = sizeof(Elf64_Ehdr),
			  .e_ehsize = sizeof(Elf64_Ehdr),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = 1 },
		.phdr = { .p_type = PT_LOAD,
			  .p_flags = PF_R | PF_X,
			  .p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
			  .p_vaddr = VADDR,
			  .p_filesz = size,
			  .p_memsz = size },
	};
	struct lb_elf *elf = NULL;

	memcpy(image.code, code, size);
	CHECK_INT(lb_elf_open_mem(&image, sizeof(image), "image", &elf), 0);
	return elf;
}

struct known {
	const char *what;
	uint8_t code[64];
	size_t size;
	int entry; /* offset of the entry point, -1: none */
	int err;   /* of the exits */
	int exits[4];
	size_t n_exits;
};

static const struct known functions[] = {
	{ "a leaf: its begin is no end",
	  { 0x55, 0x5d, 0xc3 }, /* push rbp; pop rbp; ret */
	  3,
	  0,
	  0,
	  { 2 },
	  1 },
	{ "the jump behind the call covers both returns",
	  { 0x53,			  /* 0 push rbx */
	    0xe8, 0x00, 0x01, 0x00, 0x00, /* 1 call outside */
	    0x85, 0xc0,			  /* 6 test eax, eax */
	    0x74, 0x02,			  /* 8 je c */
	    0x5b,			  /* a pop rbx */
	    0xc3,			  /* b ret */
	    0x5b,			  /* c pop rbx */
	    0xc3 },			  /* d ret */
	  14,
	  0,
	  0,
	  { 8 },
	  1 },
	{ "a loop is no end, what is behind it is",
	  { 0x48, 0x89, 0xf8,		  /* 0 mov rax, rdi */
	    0x53,			  /* 3 push rbx */
	    0xe8, 0x00, 0x01, 0x00, 0x00, /* 4 call outside */
	    0x85, 0xc0,			  /* 9 test eax, eax */
	    0x75, 0xf7,			  /* b jne 4 */
	    0x5b,			  /* d pop rbx */
	    0xc3 },			  /* e ret */
	  15,
	  3,
	  0,
	  { 14 },
	  1 },
	{ "a jump to another function is an exit",
	  { 0x53,			    /* 0 push rbx */
	    0xe8, 0x00, 0x01, 0x00, 0x00,   /* 1 call outside */
	    0x5b,			    /* 6 pop rbx */
	    0xe9, 0x00, 0x01, 0x00, 0x00 }, /* 7 jmp outside */
	  12,
	  0,
	  0,
	  { 7 },
	  1 },
	{ "an indirect jump: returns alone",
	  { 0x53,			  /* 0 push rbx */
	    0xe8, 0x00, 0x01, 0x00, 0x00, /* 1 call outside */
	    0xff, 0xe0,			  /* 6 jmp rax */
	    0xeb, 0x01,			  /* 8 jmp b */
	    0xc3,			  /* a ret */
	    0xc3 },			  /* b ret */
	  12,
	  0,
	  0,
	  { 10, 11 },
	  2 },
	{ "an argument is written before the push",
	  { 0x89, 0xf7, 0x53, 0xc3 }, /* mov edi, esi; push rbx; ret */
	  4,
	  0,
	  0,
	  { 3 },
	  1 },
	{ "its begin is jumped to",
	  { 0x53, 0x75, 0xfd, 0xc3 }, /* push rbx; jne 0; ret */
	  4,
	  -1,
	  0,
	  { 3 },
	  1 },
	{ "a conditional jump leaves it",
	  { 0x53, 0x0f, 0x85, 0x00, 0x01, 0x00, 0x00, 0xc3 },
	  8,
	  0,
	  -EOPNOTSUPP,
	  { 0 },
	  0 },
	{ "it never returns",
	  { 0x53, 0xe8, 0x00, 0x01, 0x00, 0x00, 0x0f, 0x0b },
	  8,
	  0,
	  -ENOENT,
	  { 0 },
	  0 },
};

static void check_known(const struct known *known)
{
	struct lb_elf *elf = make_elf(known->code, known->size);
	const struct lb_insn *exits[8], *entry;
	struct lb_flow flow;
	size_t n = 0;
	int before = lb_test_failed_checks;

	CHECK_INT(lb_flow_read(elf, VADDR, known->size, &flow), 0);
	entry = lb_flow_entry(&flow);
	CHECK_INT(entry ? (int)(entry->vaddr - VADDR) : -1, known->entry);
	CHECK_INT(lb_flow_exits(elf, &flow, exits, 8, &n), known->err);
	CHECK_INT(n, known->n_exits);
	for (size_t i = 0; i < n && i < known->n_exits; i++)
		CHECK_INT(exits[i]->vaddr - VADDR, known->exits[i]);
	if (!known->err && known->n_exits)
		CHECK_INT(lb_flow_exits(elf, &flow, exits, known->n_exits - 1,
					&n),
			  -E2BIG);
	if (lb_test_failed_checks != before)
		fprintf(stderr, "\tin: %s\n", known->what);
	lb_flow_fini(&flow);
	lb_elf_free(elf);
}

static void test_known_functions(void)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		check_known(&functions[i]);
}

static void test_after_call(void)
{
	static const uint8_t code[] = {
		0xe8, 0x00, 0x01, 0x00, 0x00, /* 0 call outside */
		0x48, 0x89, 0xfb,	      /* 5 mov rbx, rdi */
		0x75, 0x09,		      /* 8 jne 13 */
		0xe8, 0x00, 0x01, 0x00, 0x00, /* a call outside */
		0x31, 0xc0,		      /* f xor eax, eax */
		0x74, 0x00,		      /* 11 je 13 */
		0xc3			      /* 13 ret */
	};
	struct lb_elf *elf = make_elf(code, sizeof(code));
	const struct lb_insn *first, *second;
	struct lb_flow flow;

	CHECK_INT(lb_flow_read(elf, VADDR, sizeof(code), &flow), 0);
	first = lb_flow_at(&flow, VADDR);
	second = lb_flow_at(&flow, VADDR + 0xa);
	CHECK(first && second);
	CHECK(!lb_flow_at(&flow, VADDR + 1));
	CHECK_INT(lb_flow_after(&flow, first)->vaddr, VADDR + 8);
	/* the result is gone at the emulated instruction */
	CHECK_INT(lb_flow_after(&flow, second)->vaddr, VADDR + 0xf);
	CHECK(!lb_flow_after(&flow, flow.insns + flow.n - 1));
	lb_flow_fini(&flow);
	lb_elf_free(elf);
}

static void test_what_is_no_code(void)
{
	static const uint8_t code[] = { 0x53, 0x06, 0xc3 };
	static const uint8_t middle[] = { 0x53, 0xeb, 0xff, 0xc3 };
	struct lb_elf *elf = make_elf(code, sizeof(code));
	struct lb_flow flow;

	CHECK_INT(lb_flow_read(elf, VADDR, sizeof(code), &flow), -EOPNOTSUPP);
	CHECK_INT(lb_flow_read(elf, VADDR, 1 << 20, &flow), -E2BIG);
	CHECK_INT(lb_flow_read(elf, VADDR + 4096, 4, &flow), -ENOENT);
	CHECK_INT(lb_flow_read(elf, VADDR, 0, &flow), -ENOENT);
	lb_elf_free(elf);
	elf = make_elf(middle, sizeof(middle));
	CHECK_INT(lb_flow_read(elf, VADDR, sizeof(middle), &flow), -EOPNOTSUPP);
	lb_elf_free(elf);
}

/*
 * Walk at random from the begin, calls return: each walk that comes to a return
 * has passed an exit, and none before its last call or jump back.
 */
static const struct lb_insn *
step(const struct lb_flow *flow, const struct lb_insn *insn, unsigned int *seed)
{
	*seed = *seed * 1103515245 + 12345;

	bool jumps = insn->kind == LB_INSN_JUMP ||
		     (insn->kind == LB_INSN_JCC && *seed & 0x10000);

	if (insn->kind == LB_INSN_RET || insn->kind == LB_INSN_INDIRECT ||
	    insn->kind == LB_INSN_TRAP)
		return NULL;
	if (jumps)
		return lb_flow_at(flow, insn->target);
	return insn + 1 < flow->insns + flow->n ? insn + 1 : NULL;
}

static bool is_one_of(const struct lb_insn *insn,
		      const struct lb_insn *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == insn)
			return true;
	return false;
}

static int walk(const struct lb_flow *flow, const struct lb_insn *const *exits,
		size_t n, unsigned int *seed)
{
	const struct lb_insn *insn = flow->insns, *entry = lb_flow_entry(flow);
	int n_entries = 0, n_exits = 0, n_returns = 0;

	for (int i = 0; insn && i < 4000; i++) {
		n_entries += insn == entry;
		if (insn->kind == LB_INSN_CALL)
			CHECK_INT(n_exits, 0);
		n_exits += is_one_of(insn, exits, n);
		if (insn->kind == LB_INSN_RET) {
			CHECK(n_exits > 0);
			CHECK_INT(n_entries, 1);
			n_returns++;
		}
		insn = step(flow, insn, seed);
	}
	return n_returns;
}

struct places {
	struct lb_extent list[4096];
	size_t n;
};

static int on_sym(void *arg, const struct lb_elf_sym *sym)
{
	struct places *places = arg;

	if (sym->type == STT_FUNC && sym->shndx && places->n < 4096)
		places->list[places->n++].vaddr = sym->vaddr;
	return 0;
}

static void test_walks_of_real_functions(void)
{
	static struct places places;
	struct lb_elf *elf;
	unsigned int seed = 23;
	int n_functions = 0, n_returns = 0;
	int fd = open(LIB, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		SKIP("luajit: no libluajit");
		return;
	}
	CHECK_INT(lb_elf_open_fd(fd, LIB, &elf), 0);
	close(fd);
	CHECK_INT(lb_elf_each_sym(elf, ".dynsym", on_sym, &places), 0);
	CHECK_INT(lb_flow_extents(elf, places.list, places.n), 0);
	for (size_t i = 0; i < places.n; i++) {
		const struct lb_insn *exits[256];
		struct lb_flow flow;
		size_t n;

		if (!places.list[i].size ||
		    lb_flow_read(elf, places.list[i].vaddr, places.list[i].size,
				 &flow))
			continue;
		if (lb_flow_entry(&flow) &&
		    !lb_flow_exits(elf, &flow, exits, 256, &n)) {
			n_functions++;
			for (int turn = 0; turn < 100; turn++)
				n_returns += walk(&flow, exits, n, &seed);
		}
		lb_flow_fini(&flow);
	}
	CHECK(n_functions > 100);
	CHECK(n_returns > 5000);
	lb_elf_free(elf);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_known_functions),
		LB_TEST(test_after_call),
		LB_TEST(test_what_is_no_code),
		LB_TEST(test_walks_of_real_functions),
	};

	return LB_TEST_MAIN(cases);
}
