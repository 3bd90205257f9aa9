/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind rules inside the LuaJIT VM, from byte patterns of its code.
 *
 * The VM's assembler is not compiled, so each state looks the same in every
 * build; only displacements differ. Every byte of the code is given a state,
 * LB_RULE_VM to begin with; then each pattern that is found paints its bytes;
 * a row begins wherever the state changes.
 *
 * Names such as vm_call are those of LuaJIT's src/vm_x64.dasc, vm_x86.dasc.
 */
#include <errno.h>
#include <stdlib.h>

#include "vmrows.h"

/* Slots of the C frame: [CFA - 8 * n]; r15 is in slot 4. */
enum {
	SLOT_RBP = 2,
	SLOT_RBX = 3,
	SLOT_R14 = 5,
};

#define PUSHED	     40	 /* bytes: return address and four registers */
#define ENTRY_MAX    160 /* bytes from an entry to the store of cframe */
#define RETURN_MAX   256 /* bytes of vm_leave_cp and what is around it */
#define EXIT_MAX     512 /* bytes of vm_exit_handler */
#define CALLBACK_MAX 512 /* bytes of vm_ffi_callback */

enum vm_state {
	STATE_VM,
	STATE_EXIT,
	STATE_RETURN,
	STATE_CALLBACK,
	STATE_NATIVE, /* the C frame is complete, no Lua frame belongs to it */
	STATE_CALLED, /* nothing but the return address pushed */
	STATE_RBP,    /* then rbp */
	STATE_RBX,    /* then rbx */
	STATE_R15,    /* then r15 */
	STATE_R14,    /* then r14 */
	STATE_ONLY_RBX, /* only rbx pushed */
	N_STATES,
};

struct code {
	const uint8_t *bytes;
	size_t size;
	uint8_t *states;
	uint8_t frame_imm; /* of sub rsp, imm8 */
};

struct pattern {
	uint8_t bytes[20];
	uint8_t size;
};

static void paint(struct code *code, size_t off, size_t end,
		  enum vm_state state)
{
	if (end > code->size)
		end = code->size;
	if (off < end)
		memset(code->states + off, state, end - off);
}

static bool match(const struct code *code, size_t off,
		  const struct pattern *pattern)
{
	return off <= code->size && code->size - off >= pattern->size &&
	       !memcmp(code->bytes + off, pattern->bytes, pattern->size);
}

/* First match in [off, end); *off_ret is untouched when there is none. */
static bool find(const struct code *code, size_t off, size_t end,
		 const struct pattern *pattern, size_t *off_ret)
{
	for (; off < end && off < code->size; off++) {
		if (match(code, off, pattern)) {
			*off_ret = off;
			return true;
		}
	}
	return false;
}

static size_t min_off(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool byte_is(const struct code *code, size_t off, uint8_t byte)
{
	return off < code->size && code->bytes[off] == byte;
}

/* ---- entries: vm_resume, vm_pcall, vm_call, vm_cpcall ---- */

/*
 * Behind the store of L->cframe the new Lua frame is not linked yet, and BASE
 * is still that of the caller's frames, which belong to the C frame above.
 * These instructions lead up to vm_call_dispatch, which the interpreter uses
 * as well; the last of them ends the state.
 */
static size_t skip_linking(const struct code *code, size_t off)
{
	static const struct {
		struct pattern pattern;
		uint8_t size; /* of the whole instruction */
		bool last;
	} steps[] = {
		{ { { 0x49, 0x89, 0xae }, 3 }, 7, false }, /* cur_L = L */
		{ { { 0x41, 0x89, 0xae }, 3 }, 7, false },
		{ { { 0x41, 0xc7, 0x86 }, 3 }, 11, false }, /* vmstate */
		{ { { 0xff, 0xd1 }, 2 }, 2, false },	    /* vm_cpcall */
		{ { { 0x48, 0x85, 0xc0 }, 3 }, 3, false },  /* base or NULL? */
		{ { { 0x48, 0x8b, 0x55 }, 3 }, 4, false },  /* BASE = L->base */
		{ { { 0x8b, 0x55 }, 2 }, 3, false },
		{ { { 0x48, 0x01, 0xcb }, 3 }, 3, false }, /* PC += RA */
		{ { { 0x01, 0xcb }, 2 }, 2, false },
		{ { { 0x48, 0x29, 0xd3 }, 3 }, 3, false }, /* PC -= BASE */
		{ { { 0x29, 0xd3 }, 2 }, 2, false },
		{ { { 0x48, 0x8b, 0x45 }, 3 }, 4, false }, /* RD = L->top */
		{ { { 0x8b, 0x45 }, 2 }, 3, false },
		{ { { 0x48, 0x29, 0xc8 }, 3 }, 3, false }, /* RD -= RA */
		{ { { 0x29, 0xc8 }, 2 }, 2, false },
		{ { { 0xc1, 0xe8, 0x03 }, 3 }, 3, false }, /* RD >>= 3 */
		{ { { 0x83, 0xc0, 0x01 }, 3 }, 3, true },  /* RD += 1 */
		{ { { 0x38, 0x45 }, 2 }, 3, false },	   /* L->status == 0? */
		{ { { 0x0f, 0x84 }, 2 }, 6, true },	   /* yes: as a call */
	};
	const size_t n = sizeof(steps) / sizeof(steps[0]);

	for (;;) {
		size_t i = 0;

		while (i < n && !match(code, off, &steps[i].pattern))
			i++;
		if (i == n)
			return off;
		off += steps[i].size;
		if (steps[i].last)
			return off;
	}
}

static void paint_entry(struct code *code, size_t off,
			const struct pattern *entry)
{
	/* mov [rbp + cframe], rsp; vm_resume has r15 = rsp + 1 */
	static const struct pattern stores[] = {
		{ { 0x48, 0x89, 0x65 }, 3 },
		{ { 0x4c, 0x89, 0x7d }, 3 },
	};
	size_t body = off + entry->size;
	size_t end = min_off(body + ENTRY_MAX, code->size);
	size_t store;

	paint(code, off, off + 1, STATE_CALLED);
	paint(code, off + 1, off + 2, STATE_RBP);
	paint(code, off + 2, off + 4, STATE_RBX);
	paint(code, off + 4, off + 6, STATE_R15);
	paint(code, off + 6, body, STATE_R14);

	bool runs_into_next = find(code, body, end, entry, &end);

	if (find(code, body, end, &stores[0], &store) ||
	    find(code, body, end, &stores[1], &store))
		paint(code, body, skip_linking(code, store + 4), STATE_NATIVE);
	else if (runs_into_next) /* vm_pcall jumps into vm_call behind it */
		paint(code, body, end, STATE_NATIVE);
}

static void paint_entries(struct code *code)
{
	/* push rbp, rbx, r15, r14; sub rsp, imm8 */
	const struct pattern entry = { { 0x55, 0x53, 0x41, 0x57, 0x41, 0x56,
					 0x48, 0x83, 0xec, code->frame_imm },
				       10 };
	size_t off = 0;

	while (find(code, off, code->size, &entry, &off)) {
		paint_entry(code, off, &entry);
		off += entry.size;
	}
}

/* ---- ways out: vm_leave_unw, vm_unwind_rethrow, and what leads there ---- */

static bool find_epilogue(const struct code *code, size_t off, size_t end,
			  size_t *off_ret)
{
	/* add rsp, imm8; pop r14, r15, rbx, rbp; then ret or jmp rel32 */
	const struct pattern epilogue = { { 0x48, 0x83, 0xc4, code->frame_imm,
					    0x41, 0x5e, 0x41, 0x5f, 0x5b,
					    0x5d },
					  10 };

	return find(code, off, end, &epilogue, off_ret);
}

static void paint_epilogues(struct code *code)
{
	size_t off = 0;

	while (find_epilogue(code, off, code->size, &off)) {
		size_t last = off + 10;

		paint(code, off, off + 4, STATE_NATIVE);
		paint(code, off + 4, off + 6, STATE_R14);
		paint(code, off + 6, off + 8, STATE_R15);
		paint(code, off + 8, off + 9, STATE_RBX);
		paint(code, off + 9, last, STATE_RBP);
		paint(code, last, last + (byte_is(code, last, 0xe9) ? 5 : 1),
		      STATE_CALLED);
		off = last;
	}
}

/*
 * vm_leave_cp, before the first epilogue: vmstate is set to C, PC (rbx) gets
 * the previous base, the results are copied down over the frame, and L->base
 * is set to PC. From then on L describes the frames of the caller. Behind the
 * epilogue are the less frequent parts, and vm_unwind_c, which is called from
 * C with the C frame to return to and lands in the epilogue, too.
 */
static void paint_return(struct code *code)
{
	static const struct pattern vmstate_c = { { 0x41, 0xc7, 0x86 }, 3 };
	static const struct pattern state_c = { { 0xfe, 0xff, 0xff, 0xff }, 4 };
	static const struct pattern neg_pc = { { 0xf7, 0xdb }, 2 };
	static const struct pattern set_base = { { 0x89, 0x5d }, 2 };
	/* mov eax, esi; mov rsp, rdi */
	static const struct pattern unwind_c = {
		{ 0x89, 0xf0, 0x48, 0x89, 0xfc }, 5
	};
	size_t epilogue = code->size;

	if (!find_epilogue(code, 0, code->size, &epilogue))
		return;

	size_t begin = epilogue;
	size_t off = epilogue > RETURN_MAX ? epilogue - RETURN_MAX : 0;
	size_t base;

	for (; find(code, off, epilogue, &vmstate_c, &off); off++) {
		if (match(code, off + 7, &state_c))
			begin = off;
	}
	/* until then BASE and the frame it points to are whole */
	if (find(code, begin, epilogue, &neg_pc, &base))
		begin = base + 2;
	if (find(code, begin, epilogue, &set_base, &base)) {
		paint(code, begin, base + 3, STATE_RETURN);
		paint(code, base + 3, epilogue, STATE_NATIVE);
	} else {
		paint(code, begin, epilogue, STATE_RETURN);
	}

	size_t end = min_off(epilogue + RETURN_MAX, code->size);
	size_t unwind, rethrow;

	if (!find(code, epilogue + 11, end, &unwind_c, &unwind) ||
	    !find_epilogue(code, unwind, end, &rethrow))
		return;
	paint(code, epilogue + 11, unwind, STATE_NATIVE);
	paint(code, unwind, unwind + 5, STATE_CALLED);
	paint(code, unwind + 5, rethrow, STATE_NATIVE);
}

/* vm_unwind_ff, called from C: and rdi, -4; mov rsp, rdi. */
static void paint_unwind_ff(struct code *code)
{
	static const struct pattern pattern = {
		{ 0x48, 0x83, 0xe7, 0xfc, 0x48, 0x89, 0xfc }, 7
	};
	size_t off;

	if (find(code, 0, code->size, &pattern, &off))
		paint(code, off, off + pattern.size, STATE_CALLED);
}

/* ---- the rest ---- */

/* vm_exit_handler pushes all registers; mov rsp, rcx is its way back. */
static void paint_exit_handler(struct code *code)
{
	/* push r13 ... r8, rdi, rsi, rbp; lea rbp, [rsp + disp8] */
	static const struct pattern begin_pattern = {
		{ 0x41, 0x55, 0x41, 0x54, 0x41, 0x53, 0x41, 0x52, 0x41, 0x51,
		  0x41, 0x50, 0x57, 0x56, 0x55, 0x48, 0x8d, 0x6c, 0x24 },
		19
	};
	static const struct pattern end_pattern = { { 0x48, 0x89, 0xcc }, 3 };
	size_t begin, end;

	if (find(code, 0, code->size, &begin_pattern, &begin) &&
	    find(code, begin, begin + EXIT_MAX, &end_pattern, &end))
		paint(code, begin, end + end_pattern.size, STATE_EXIT);
}

/*
 * vm_ffi_callback: the code that jumps here has pushed rbp. The frame becomes
 * one of L's in lj_ccallback_enter, which is called before vmstate is set. On
 * the way out lj_ccallback_leave takes it off again.
 */
static void paint_callback(struct code *code)
{
	/* push rbx, r15, r14; sub rsp, imm8 */
	const struct pattern entry = { { 0x53, 0x41, 0x57, 0x41, 0x56, 0x48,
					 0x83, 0xec, code->frame_imm },
				       9 };
	static const struct pattern vmstate = { { 0x41, 0xc7, 0x86 }, 3 };
	/* movsd xmm0, [rbx + disp8]; jmp rel32 */
	static const struct pattern leave_tail = { { 0xf2, 0x0f, 0x10, 0x43 },
						   4 };
	/* before it: call; mov rax, [rbx + disp8] or [rbx + disp32] */
	static const struct pattern leave_8 = { { 0x48, 0x8b, 0x43 }, 3 };
	static const struct pattern leave_32 = { { 0x48, 0x8b, 0x83 }, 3 };
	size_t off = 0, enter, leave;

	while (find(code, off, code->size, &entry, &off) && off &&
	       byte_is(code, off - 1, 0x55))
		off += entry.size;
	if (!match(code, off, &entry))
		return;

	size_t body = off + entry.size;
	size_t end = min_off(body + CALLBACK_MAX, code->size);

	paint(code, off, off + 1, STATE_RBP);
	paint(code, off + 1, off + 3, STATE_RBX);
	paint(code, off + 3, off + 5, STATE_R15);
	paint(code, off + 5, body, STATE_R14);
	if (!find(code, body, end, &vmstate, &enter) ||
	    !byte_is(code, enter - 5, 0xe8))
		return;
	paint(code, body, enter, STATE_CALLBACK);
	for (; find(code, enter, end, &leave_tail, &leave); enter = leave + 1) {
		size_t first = match(code, leave - 4, &leave_8) ? leave - 4
								: leave - 7;

		if ((first == leave - 4 || match(code, first, &leave_32)) &&
		    byte_is(code, first - 5, 0xe8) &&
		    byte_is(code, leave + 5, 0xe9))
			paint(code, first, leave + 10, STATE_NATIVE);
	}
}

/* vm_cpuid, called from C when the VM is created. */
static void paint_cpuid(struct code *code)
{
	/* mov eax, edi; push rbx; xor ecx, ecx; cpuid ... pop rbx; ret */
	static const struct pattern begin_pattern = {
		{ 0x89, 0xf8, 0x53, 0x31, 0xc9, 0x0f, 0xa2 }, 7
	};
	static const struct pattern end_pattern = { { 0x5b, 0xc3 }, 2 };
	size_t begin, end;

	if (!find(code, 0, code->size, &begin_pattern, &begin) ||
	    !find(code, begin, begin + 32, &end_pattern, &end))
		return;
	paint(code, begin, begin + 3, STATE_CALLED);
	paint(code, begin + 3, end + 1, STATE_ONLY_RBX);
	paint(code, end + 1, end + 2, STATE_CALLED);
}

static struct lb_rule rule_of(enum vm_state state, uint32_t cframe_size)
{
	static const struct lb_rule rules[N_STATES] = {
		[STATE_VM] = { .kind = LB_RULE_VM },
		[STATE_EXIT] = { .kind = LB_RULE_VM_EXIT },
		[STATE_RETURN] = { .kind = LB_RULE_VM_RETURN },
		[STATE_CALLBACK] = { .kind = LB_RULE_VM_CALLBACK },
		[STATE_NATIVE] = { .kind = LB_RULE_RSP },
		[STATE_CALLED] = { .kind = LB_RULE_RSP, .cfa_off = 8 },
		[STATE_RBP] = { .kind = LB_RULE_RSP,
				.cfa_off = 16,
				.rbp = SLOT_RBP },
		[STATE_RBX] = { .kind = LB_RULE_RSP,
				.cfa_off = 24,
				.rbp = SLOT_RBP,
				.rbx = SLOT_RBX },
		[STATE_R15] = { .kind = LB_RULE_RSP,
				.cfa_off = 32,
				.rbp = SLOT_RBP,
				.rbx = SLOT_RBX },
		[STATE_R14] = { .kind = LB_RULE_RSP,
				.cfa_off = 40,
				.rbp = SLOT_RBP,
				.rbx = SLOT_RBX,
				.r14 = SLOT_R14 },
		[STATE_ONLY_RBX] = { .kind = LB_RULE_RSP,
				     .cfa_off = 16,
				     .rbx = 2 },
	};
	struct lb_rule rule = rules[state];

	if (!rule.cfa_off) { /* the C frame is complete */
		rule.cfa_off = (int32_t)cframe_size;
		rule.rbp = SLOT_RBP;
		rule.rbx = SLOT_RBX;
		rule.r14 = SLOT_R14;
	}
	if (rule.kind == LB_RULE_RSP) /* a name of its own would say nothing */
		rule.flags = LB_RULE_F_VM;
	return rule;
}

int lb_vmrows_vm(const struct lb_elf *elf, const struct lb_luajit *luajit,
		 lb_rule_fn rule_fn, void *arg)
{
	const uint8_t *bytes =
		lb_elf_vaddr_data(elf, luajit->vm_vaddr, luajit->vm_size);
	_cleanup_free_ uint8_t *states = NULL;

	if (!bytes || !luajit->vm_size)
		return -ENODATA;
	states = calloc(luajit->vm_size, 1); /* STATE_VM */
	if (!states)
		return -ENOMEM;

	struct code code = {
		.bytes = bytes,
		.size = luajit->vm_size,
		.states = states,
		.frame_imm = (uint8_t)(luajit->cframe_size - PUSHED),
	};

	paint_exit_handler(&code);
	paint_return(&code);
	paint_entries(&code);
	paint_epilogues(&code);
	paint_unwind_ff(&code);
	paint_callback(&code);
	paint_cpuid(&code);
	for (size_t off = 0; off < code.size; off++) {
		if (off && states[off] == states[off - 1])
			continue;

		struct lb_rule rule = rule_of(states[off], luajit->cframe_size);
		int ret = rule_fn(arg, luajit->vm_vaddr + off, &rule);

		if (ret)
			return ret;
	}
	return 0;
}

int lb_vmrows_ffi_call(const struct lb_elf *elf, const struct lb_luajit *luajit,
		       lb_rule_fn rule_fn, void *arg)
{
	/* push rbp; mov rbp, rsp; push rbx; mov rbx, rdi */
	static const uint8_t begin_bytes[] = { 0x55, 0x48, 0x89, 0xe5,
					       0x53, 0x48, 0x89, 0xfb };
	/* mov rbx, [rbp - 8]; leave; ret */
	static const uint8_t end_bytes[] = {
		0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0xc3
	};
	static const struct lb_rule called = { .kind = LB_RULE_RSP,
					       .cfa_off = 8 };
	static const struct lb_rule pushed = { .kind = LB_RULE_RSP,
					       .cfa_off = 16,
					       .rbp = SLOT_RBP };
	static const struct lb_rule framed = { .kind = LB_RULE_RBP,
					       .cfa_off = 16,
					       .rbp = SLOT_RBP };
	static const struct lb_rule body = { .kind = LB_RULE_RBP,
					     .cfa_off = 16,
					     .rbp = SLOT_RBP,
					     .rbx = SLOT_RBX };
	const uint64_t vaddr = luajit->ffi_call_vaddr;
	const uint64_t size = luajit->ffi_call_size;
	const uint8_t *code =
		vaddr ? lb_elf_vaddr_data(elf, vaddr, size) : NULL;

	if (!code || size < sizeof(begin_bytes) + sizeof(end_bytes) ||
	    memcmp(code, begin_bytes, sizeof(begin_bytes)) ||
	    memcmp(code + size - sizeof(end_bytes), end_bytes,
		   sizeof(end_bytes)))
		return -ENODATA;

	int ret = rule_fn(arg, vaddr, &called);

	if (!ret)
		ret = rule_fn(arg, vaddr + 1, &pushed);
	if (!ret)
		ret = rule_fn(arg, vaddr + 4, &framed);
	if (!ret)
		ret = rule_fn(arg, vaddr + 5, &body);
	return ret ? ret : rule_fn(arg, vaddr + size - 1, &called);
}
