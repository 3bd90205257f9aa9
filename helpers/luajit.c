/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is there a LuaJIT VM in this file, and where?
 *
 * The assembler part of the VM is written in one piece and described by one
 * FDE with one row: CFA = rsp + 80 (96 in newer forks), rbp, rbx, r15 and r14
 * saved below it. A compiler does not make such an FDE of several kilobytes.
 * Four places in it push those registers, the entries from C, and one of these
 * (lj_vm_call) shows how the build lays out global_State.
 */
#include <errno.h>
#include <stdbool.h>

#include "ehframe.h"
#include "luajit.h"

#define VM_SIZE_MIN	  8000 /* bytes; 16 to 18 KiB were seen */
#define VM_SIZE_MAX	  (1 << 20)
#define FFI_CALL_SIZE_MAX 4096
#define ENTRIES_MIN	  3
#define ENTRY_CODE_SIZE	  160 /* bytes of an entry that are looked at */

/* push rbp; push rbx; push r15; push r14; sub rsp, imm8 */
static const uint8_t entry_code[] = { 0x55, 0x53, 0x41, 0x57, 0x41,
				      0x56, 0x48, 0x83, 0xec };
#define ENTRY_PUSHED 40 /* bytes: the four registers and the return address */

struct search {
	const struct lb_elf *elf;
	struct lb_luajit found;
	bool have_vm;
	bool done;
	struct lb_fde fde; /* the one whose rules come in */
	struct lb_rule first_rule;
	unsigned int n_rules;
};

/* Code at an entry point, with its distance from the begin of the VM. */
static const uint8_t *next_entry(const uint8_t *code, uint64_t size,
				 uint64_t *off, uint32_t cframe_size)
{
	for (; *off + sizeof(entry_code) + 1 <= size; (*off)++) {
		const uint8_t *p = code + *off;

		if (!memcmp(p, entry_code, sizeof(entry_code)) &&
		    p[sizeof(entry_code)] == cframe_size - ENTRY_PUSHED) {
			*off += sizeof(entry_code) + 1;
			return p;
		}
	}
	return NULL;
}

static unsigned int count_entries(const uint8_t *code, uint64_t size,
				  uint32_t cframe_size)
{
	unsigned int n = 0;
	uint64_t off = 0;

	while (next_entry(code, size, &off, cframe_size))
		n++;
	return n;
}

static bool is_vm(const struct search *search)
{
	const struct lb_rule *rule = &search->first_rule;

	if (search->n_rules != 1 || search->fde.size <= VM_SIZE_MIN ||
	    search->fde.size > VM_SIZE_MAX || rule->kind != LB_RULE_RSP ||
	    (rule->cfa_off != 80 && rule->cfa_off != 96) || rule->rbp != 2 ||
	    rule->rbx != 3 || rule->r14 != 5)
		return false;

	const uint8_t *code = lb_elf_vaddr_data(search->elf, search->fde.vaddr,
						search->fde.size);

	return code && count_entries(code, search->fde.size,
				     (uint32_t)rule->cfa_off) >= ENTRIES_MIN;
}

static bool is_ffi_call(const struct search *search)
{
	const struct lb_rule *rule = &search->first_rule;

	return search->n_rules == 1 && search->fde.size <= FFI_CALL_SIZE_MAX &&
	       search->fde.vaddr ==
		       search->found.vm_vaddr + search->found.vm_size &&
	       rule->kind == LB_RULE_RBP && rule->cfa_off == 16 &&
	       rule->rbp == 2 && rule->rbx == 3;
}

/* All rules of an FDE are known. */
static void end_fde(struct search *search)
{
	if (search->done)
		return;
	if (search->have_vm) { /* this is the one behind it */
		search->done = true;
		if (is_ffi_call(search)) {
			search->found.ffi_call_vaddr = search->fde.vaddr;
			search->found.ffi_call_size = search->fde.size;
		}
	} else if (is_vm(search)) {
		search->have_vm = true;
		search->found.vm_vaddr = search->fde.vaddr;
		search->found.vm_size = search->fde.size;
		search->found.cframe_size =
			(uint32_t)search->first_rule.cfa_off;
	}
}

static int on_fde(void *arg, const struct lb_fde *fde)
{
	struct search *search = arg;

	end_fde(search);
	search->fde = *fde;
	search->n_rules = 0;
	return search->done;
}

static int on_rule(void *arg, uint64_t vaddr, const struct lb_rule *rule)
{
	struct search *search = arg;

	(void)vaddr;
	if (!search->n_rules++)
		search->first_rule = *rule;
	return 0;
}

/* ---- marks ---- */

/* A 32-bit field in the code; the caller has checked that it is inside. */
static int32_t s32_at(const uint8_t *code)
{
	int32_t value;

	memcpy(&value, code, sizeof(value));
	return value;
}

/* The first place with these three bytes from @pos on, or NULL. */
static const uint8_t *find3(const uint8_t *pos, const uint8_t *end, uint8_t b0,
			    uint8_t b1, uint8_t b2)
{
	/* all instructions looked for are at most 11 bytes long */
	for (; end - pos >= 11; pos++) {
		if (pos[0] == b0 && pos[1] == b1 && pos[2] == b2)
			return pos;
	}
	return NULL;
}

/*
 * What every entry does, in this order:
 *   mov r14, [rbp + glref]     G of this thread
 *   add r14, g2disp            now the dispatch table
 *   mov [r14 + d], rbp         G->cur_L = L
 *   mov dword [r14 + d], ~n    G->vmstate
 * with r14d and ebp in builds with 32-bit references. LuaJIT 2.0, which knows
 * no other, has no cur_L. Return: behind the last of these, or NULL.
 */
static const uint8_t *decode_marks(const uint8_t *pos, const uint8_t *end,
				   struct lb_luajit *luajit)
{
	const uint8_t *load = find3(pos, end, 0x4c, 0x8b, 0x75);
	bool gc64 = load != NULL;

	if (!load)
		load = find3(pos, end, 0x44, 0x8b, 0x75);
	if (!load)
		return NULL;

	const uint8_t rex = gc64 ? 0x49 : 0x41;
	const uint8_t *add = find3(load, end, rex, 0x81, 0xc6);
	const uint8_t *state = add ? find3(add, end, 0x41, 0xc7, 0x86) : NULL;

	if (!state)
		return NULL;

	const uint8_t *cur_l = find3(add, state + 4, rex, 0x89, 0xae);

	if (!cur_l && gc64)
		return NULL;

	int64_t g2disp = s32_at(add + 3);
	int64_t g_cur_l = cur_l ? g2disp + s32_at(cur_l + 3) : LB_LUAJIT_NONE;
	int64_t g_vmstate = g2disp + s32_at(state + 3);
	int32_t vmstate = s32_at(state + 7);

	if (g2disp <= 0 || g2disp > UINT16_MAX || g_vmstate <= 0 ||
	    g_vmstate >= g2disp || vmstate >= 0 || vmstate < -16 ||
	    (cur_l && (g_cur_l <= 0 || g_cur_l >= g2disp)))
		return NULL;
	luajit->gc64 = gc64;
	luajit->g2disp = (uint32_t)g2disp;
	luajit->g_cur_l = (uint32_t)g_cur_l;
	luajit->g_vmstate = (uint32_t)g_vmstate;
	return state + 11;
}

enum { REG_DX = 2, REG_BP = 5, REG_DI = 7, REG_R15 = 15 };

/*
 * mov [rsp + disp8], reg: what it stores where. Return: length in bytes, 0 if
 * it is another instruction.
 */
static unsigned int decode_store(const uint8_t *pos, const uint8_t *end,
				 unsigned int *reg_ret, bool *wide_ret,
				 uint32_t *slot_ret)
{
	uint8_t rex = (pos[0] & 0xf0) == 0x40 ? pos[0] : 0;
	const uint8_t *p = pos + (rex != 0);

	if (end - p < 4 || p[0] != 0x89 || (p[1] & 0xc7) != 0x44 ||
	    p[2] != 0x24)
		return 0;
	*reg_ret = (p[1] >> 3 & 7) | (rex & 4) << 1;
	*wide_ret = rex & 8;
	*slot_ret = p[3];
	return (unsigned int)(p + 4 - pos);
}

/*
 * Where lj_vm_call saves its third argument (edx), L (rdi), L->cframe (r15)
 * and, for want of a bytecode, L once more as PC (rbp).
 */
static bool decode_slots(const uint8_t *pos, const uint8_t *end,
			 struct lb_luajit *luajit)
{
	struct {
		unsigned int reg;
		bool wide;
		uint32_t *slot;
		bool found;
	} saves[] = {
		{ REG_DX, false, &luajit->cf_nres, false },
		{ REG_DI, luajit->gc64, &luajit->cf_l, false },
		{ REG_R15, true, &luajit->cf_prev, false },
		{ REG_BP, luajit->gc64, &luajit->cf_pc, false },
	};
	const size_t n = sizeof(saves) / sizeof(saves[0]);
	size_t n_found = 0;

	while (pos < end) {
		unsigned int reg;
		bool wide;
		uint32_t slot;
		unsigned int size = decode_store(pos, end, &reg, &wide, &slot);

		if (!size) {
			pos++;
			continue;
		}
		pos += size;
		for (size_t i = 0; i < n; i++) {
			if (saves[i].reg != reg || saves[i].wide != wide ||
			    saves[i].found)
				continue;
			*saves[i].slot = slot;
			saves[i].found = true;
			n_found++;
			if (slot > luajit->cframe_size - ENTRY_PUSHED - 4)
				return false;
		}
	}
	return n_found == n;
}

/*
 * jmp [r14 + rbp * 8 + disp32]: recording and hooks go on in the static half of
 * the dispatch table. All of them must agree.
 */
static bool decode_static(const uint8_t *code, uint64_t size,
			  struct lb_luajit *luajit)
{
	static const uint8_t jmp[] = { 0x41, 0xff, 0xa4, 0xee };
	int32_t found = 0;

	for (uint64_t off = 0; off + sizeof(jmp) + 4 <= size; off++) {
		if (memcmp(code + off, jmp, sizeof(jmp)))
			continue;

		int32_t disp = s32_at(code + off + sizeof(jmp));

		if (disp <= 0 || disp > UINT16_MAX || (found && disp != found))
			return false;
		found = disp;
	}
	luajit->static_dispatch = (uint32_t)found;
	return found;
}

/*
 * lj_vm_call: the entry that pushes frame type FRAME_C, `mov ebx, 1` right
 * behind its prologue. It runs on into the part that is common to all calls.
 */
int lb_luajit_decode(const uint8_t *code, uint64_t vm_size,
		     struct lb_luajit *luajit)
{
	static const uint8_t frame_c[] = { 0xbb, 0x01, 0x00, 0x00, 0x00 };
	uint64_t off = 0;

	while (next_entry(code, vm_size, &off, luajit->cframe_size)) {
		struct lb_luajit found = *luajit;
		const uint8_t *begin = code + off;
		uint64_t size = vm_size - off;

		if (size > ENTRY_CODE_SIZE)
			size = ENTRY_CODE_SIZE;
		if (size <= sizeof(frame_c) ||
		    memcmp(begin, frame_c, sizeof(frame_c)))
			continue;

		const uint8_t *end = decode_marks(begin, begin + size, &found);

		if (end && decode_slots(begin, end, &found) &&
		    decode_static(code, vm_size, &found)) {
			*luajit = found;
			return 0;
		}
	}
	return -EOPNOTSUPP;
}

int lb_luajit_find(const struct lb_elf *elf, struct lb_luajit *luajit_ret)
{
	struct search search = { .elf = elf };
	int ret = lb_ehframe_each(elf, on_fde, on_rule, &search, NULL);

	if (ret < 0)
		return ret == -EBADMSG ? -ENOENT : ret;
	end_fde(&search); /* the last one has no other behind it */
	if (!search.have_vm)
		return -ENOENT;

	const uint8_t *code = lb_elf_vaddr_data(elf, search.found.vm_vaddr,
						search.found.vm_size);

	ret = code ? lb_luajit_decode(code, search.found.vm_size, &search.found)
		   : -EOPNOTSUPP;
	*luajit_ret = search.found;
	return ret;
}
