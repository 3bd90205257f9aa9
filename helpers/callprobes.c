/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where calls pass in a LuaJIT VM.
 *
 * A call jumps through the dispatch table to the code of the callee's header:
 * FUNCF (which counts, and runs on into IFUNCF) and FUNCV for Lua functions,
 * JFUNCF for one that has been compiled, FUNCC and FUNCCW for C functions; fast
 * functions have code of their own. Each header compares its top with
 * L->maxstack and jumps if the stack must grow first: that jump is an
 * instruction that the kernel emulates. When it is taken, the header runs again
 * afterwards, so a hit counts only if it is not.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <capstone/capstone.h>

#include "callprobes.h"
#include "opcodes.h"
#include "../bpf_c/lb_wire.h"

#define VM_SIZE_MAX  (1 << 20) /* bytes */
#define HEADER_INSNS 24	       /* looked at for the stack check */
#define FAST_INSNS   12	       /* of a fast function */

/* Headers, from FUNCF on. */
enum { IFUNCF = 1, JFUNCF = 2, IFUNCV = 4, FUNCC = 6, FUNCCW = 7, N_HEADERS };
#define JLOOP 2 /* from LOOP on */

struct vm {
	const struct lb_elf *elf;
	const struct lb_luajit *luajit;
	struct lb_opcodes opcodes;
	uint32_t bc_funcf;
	uint32_t bc_loop;
	const uint8_t *code;
	csh handle;
	uint8_t *is_target; /* for each byte: a jump leads there */
};

static uint64_t header(const struct vm *vm, uint32_t n)
{
	return vm->opcodes.off[vm->bc_funcf + n];
}

static bool is_jump(const struct vm *vm, const cs_insn *insn)
{
	return cs_insn_group(vm->handle, insn, CS_GRP_JUMP);
}

/* Offset in the VM that @insn jumps to, or UINT64_MAX. */
static uint64_t target_of(const struct vm *vm, const cs_insn *insn)
{
	const cs_x86 *x86 = &insn->detail->x86;

	if (!is_jump(vm, insn) || x86->op_count != 1 ||
	    x86->operands[0].type != X86_OP_IMM)
		return UINT64_MAX;

	uint64_t off = x86->operands[0].imm - vm->luajit->vm_vaddr;

	return off < vm->luajit->vm_size ? off : UINT64_MAX;
}

/* Call @fn for each instruction from @off on until it returns non-zero. */
typedef int (*insn_fn)(struct vm *vm, const cs_insn *insn, void *arg);

static int each_insn(struct vm *vm, uint64_t off, insn_fn fn, void *arg)
{
	const uint8_t *code = vm->code + off;
	uint64_t at = vm->luajit->vm_vaddr + off;
	size_t left = vm->luajit->vm_size - off;
	cs_insn *insn = cs_malloc(vm->handle);
	int ret = 0;

	if (!insn)
		return -ENOMEM;
	while (!ret && cs_disasm_iter(vm->handle, &code, &left, &at, insn))
		ret = fn(vm, insn, arg);
	cs_free(insn, 1);
	return ret;
}

/* ---- the stack check of a header ---- */

struct check {
	uint32_t maxstack;
	unsigned int n;
	bool compared;
	uint64_t found;
};

static int on_header(struct vm *vm, const cs_insn *insn, void *arg)
{
	struct check *check = arg;
	const cs_x86 *x86 = &insn->detail->x86;

	if (check->n++ == HEADER_INSNS)
		return -EOPNOTSUPP;
	if (insn->id == X86_INS_CMP && x86->op_count == 2 &&
	    x86->operands[1].type == X86_OP_MEM &&
	    x86->operands[1].mem.base == X86_REG_RBP &&
	    x86->operands[1].mem.index == X86_REG_INVALID &&
	    x86->operands[1].mem.disp == check->maxstack) {
		check->compared = true;
		return 0;
	}
	if (insn->id == X86_INS_JA && check->compared) {
		check->found = insn->address;
		return 1;
	}
	/* flags must be those of the comparison */
	if (check->compared && insn->id != X86_INS_MOV)
		return -EOPNOTSUPP;
	return is_jump(vm, insn) ||
			       cs_insn_group(vm->handle, insn, CS_GRP_CALL) ||
			       cs_insn_group(vm->handle, insn, CS_GRP_RET)
		       ? -EOPNOTSUPP
		       : 0;
}

static int add_header(struct vm *vm, const struct lj_offsets *offsets,
		      uint32_t n, uint32_t kind, const char *name,
		      struct lb_probes *probes)
{
	struct check check = { .maxstack = offsets->l_maxstack };
	int ret = each_insn(vm, header(vm, n), on_header, &check);

	if (ret != 1)
		return ret < 0 ? ret : -EOPNOTSUPP;
	return lb_probes_add(probes, vm->elf, kind, name, check.found);
}

/* ---- ways into compiled loops ---- */

struct loops {
	struct lb_probes *probes;
	uint64_t jloop, skip_lo, skip_hi;
	int err;
};

static int on_jump(struct vm *vm, const cs_insn *insn, void *arg)
{
	struct loops *loops = arg;
	uint64_t target = target_of(vm, insn);
	uint64_t off = insn->address - vm->luajit->vm_vaddr;

	if (target == UINT64_MAX)
		return 0;
	vm->is_target[target] = 1;
	/* a compiled function goes the same way, and has its own point */
	if (target != loops->jloop ||
	    (off >= loops->skip_lo && off < loops->skip_hi))
		return 0;
	loops->err = lb_probes_add(loops->probes, vm->elf, LB_PROBE_LOOP,
				   "compiled loop", insn->address);
	return loops->err;
}

static int add_loops(struct vm *vm, struct lb_probes *probes)
{
	struct loops loops = { .probes = probes,
			       .jloop = vm->opcodes.off[vm->bc_loop + JLOOP],
			       .skip_lo = header(vm, JFUNCF),
			       .skip_hi = header(vm, JFUNCF + 1) };

	return each_insn(vm, 0, on_jump, &loops);
}

/* ---- fast functions ---- */

struct fast {
	unsigned int n;
	uint64_t begin; /* offsets in the VM */
	uint64_t found;
};

/* The first instruction that is emulated, on the way that all calls go. */
static int on_fast(struct vm *vm, const cs_insn *insn, void *arg)
{
	struct fast *fast = arg;
	uint64_t off = insn->address - vm->luajit->vm_vaddr;

	if (fast->n++ == FAST_INSNS ||
	    (off != fast->begin && vm->is_target[off]))
		return 1;
	if (lb_probe_is_emulated(insn->bytes, insn->size)) {
		fast->found = off;
		return 1;
	}
	return is_jump(vm, insn) ||
	       cs_insn_group(vm->handle, insn, CS_GRP_CALL) ||
	       cs_insn_group(vm->handle, insn, CS_GRP_RET);
}

static int add_fast(struct vm *vm, struct lb_probes *probes)
{
	const struct lb_opcodes *ops = &vm->opcodes;
	int err = 0;

	for (uint32_t i = ops->n_opcodes; !err && i < ops->n_all; i++) {
		struct fast fast = { .begin = ops->off[i],
				     .found = ops->off[i] };

		err = each_insn(vm, fast.begin, on_fast, &fast);
		if (err < 0)
			return err;
		err = lb_probes_add(probes, vm->elf, LB_PROBE_FAST,
				    "fast function",
				    vm->luajit->vm_vaddr + fast.found);
	}
	return err;
}

/*
 * Behind the C part of a fast function: it has returned 0 when the same call
 * is to be made again, by a jump through the dispatch table.
 */
struct retry {
	uint32_t fn_f;
	unsigned int left; /* instructions behind the call; 0: none yet */
	uint64_t found;
	unsigned int n_found;
};

static int on_retry(struct vm *vm, const cs_insn *insn, void *arg)
{
	struct retry *retry = arg;
	const cs_x86 *x86 = &insn->detail->x86;

	(void)vm;
	if (insn->id == X86_INS_CALL && x86->operands[0].type == X86_OP_MEM &&
	    x86->operands[0].mem.base != X86_REG_R14 &&
	    x86->operands[0].mem.index == X86_REG_INVALID &&
	    x86->operands[0].mem.disp == retry->fn_f)
		retry->left = HEADER_INSNS;
	else if (retry->left)
		retry->left--;
	if (retry->left && insn->id == X86_INS_JNE) {
		retry->found = insn->address;
		retry->n_found++;
		retry->left = 0;
	}
	return 0;
}

static int add_retry(struct vm *vm, const struct lj_offsets *offsets,
		     struct lb_probes *probes)
{
	struct retry retry = { .fn_f = offsets->fn_f };
	int err = each_insn(vm, 0, on_retry, &retry);

	if (err)
		return err;
	if (retry.n_found != 1)
		return -EOPNOTSUPP;
	return lb_probes_add(probes, vm->elf, LB_PROBE_RETRY,
			     "fast function, again", retry.found);
}

/* ---- all of it ---- */

static int add_all(struct vm *vm, const struct lj_offsets *offsets,
		   struct lb_probes *probes)
{
	static const struct {
		uint32_t n;
		uint32_t kind;
		const char *name;
	} headers[] = {
		{ IFUNCF, LB_PROBE_LUA, "Lua function" },
		{ IFUNCV, LB_PROBE_LUA, "vararg function" },
		{ JFUNCF, LB_PROBE_COMPILED, "compiled function" },
		{ FUNCC, LB_PROBE_C, "C function" },
		{ FUNCCW, LB_PROBE_C, "wrapped C function" },
	};
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(headers) / sizeof(*headers); i++)
		err = add_header(vm, offsets, headers[i].n, headers[i].kind,
				 headers[i].name, probes);
	if (!err)
		err = add_loops(vm, probes);
	if (!err)
		err = add_retry(vm, offsets, probes);
	return err ? err : add_fast(vm, probes);
}

int lb_callprobes_vm(const struct lb_elf *elf, const struct lb_luajit *luajit,
		     const struct lj_offsets *offsets, struct lb_probes *probes)
{
	struct vm vm = { .elf = elf, .luajit = luajit };
	struct lj_offsets numbers;
	int err = -EOPNOTSUPP;

	memset(&numbers, 0xff, sizeof(numbers));
	if (luajit->vm_size > VM_SIZE_MAX ||
	    lb_opcodes_find(elf, luajit, &vm.opcodes, &numbers))
		return -EOPNOTSUPP;
	vm.bc_funcf = numbers.bc_funcf;
	vm.bc_loop = numbers.bc_loop;
	vm.code = lb_elf_vaddr_data(elf, luajit->vm_vaddr, luajit->vm_size);
	if (!vm.code || vm.bc_funcf >= LB_OPCODES_MAX ||
	    vm.bc_loop >= LB_OPCODES_MAX ||
	    vm.bc_funcf + N_HEADERS > vm.opcodes.n_opcodes ||
	    vm.bc_loop + JLOOP >= vm.opcodes.n_opcodes)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < vm.opcodes.n_all; i++)
		if (vm.opcodes.off[i] >= luajit->vm_size)
			return -EOPNOTSUPP;
	vm.is_target = calloc(luajit->vm_size, 1);
	if (!vm.is_target)
		return -ENOMEM;
	if (!cs_open(CS_ARCH_X86, CS_MODE_64, &vm.handle)) {
		cs_option(vm.handle, CS_OPT_DETAIL, CS_OPT_ON);
		err = add_all(&vm, offsets, probes);
		cs_close(&vm.handle);
	}
	free(vm.is_target);
	return err;
}

/* ---- C API ---- */

struct api {
	const struct lb_elf *elf;
	struct lb_probes *probes;
	int err;
};

static int on_sym(void *arg, const struct lb_elf_sym *sym)
{
	static const char *const prefixes[] = { "lua_", "luaL_", "luaJIT_",
						"luaopen_" };
	struct api *api = arg;
	bool is_api = false;

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		is_api |= !strncmp(sym->name, prefixes[i], strlen(prefixes[i]));
	if (!is_api || sym->type != STT_FUNC || !sym->shndx || !sym->vaddr)
		return 0;
	api->err =
		lb_probes_add(api->probes, api->elf, LB_PROBE_API, sym->name,
			      lb_probe_cheap(api->elf, sym->vaddr, sym->size));
	if (api->err == -ERANGE)
		api->err = 0;
	return api->err;
}

int lb_callprobes_api(const struct lb_elf *elf, struct lb_probes *probes)
{
	struct api api = { .elf = elf, .probes = probes };
	size_t before = probes->n;
	int err = lb_elf_each_sym(elf, ".dynsym", on_sym, &api);

	if (api.err)
		return api.err;
	if (err < 0 && err != -ENODATA)
		return err;
	return probes->n > before ? 0 : -ENODATA;
}
