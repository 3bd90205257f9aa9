/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native frames by rows compiled from .eh_frame: one step of the walk.
 */
#ifndef LB_NATIVE_H
#define LB_NATIVE_H

#define LB_MAPPING_STEPS 10 /* 2^9 mappings */
#define LB_ROW_STEPS	 9  /* 2^8 rows in one block: one for each byte */
_Static_assert(1 << (LB_MAPPING_STEPS - 1) >= LB_MAPPINGS_MAX, "");
_Static_assert(1 << (LB_ROW_STEPS - 1) >= 1 << LB_BLOCK_SHIFT, "");

/* The mapping that contains @pc, or NULL. */
static __always_inline struct lb_mapping *
lb_mapping_find(struct lb_state *s, struct lb_proc_entry *p, __u64 pc)
{
	struct lb_mapping *m = &p->mappings[s->mapping & (LB_MAPPINGS_MAX - 1)];

	if (pc >= m->start && pc < m->end)
		return m;
	/* in memory: the verifier then sees each turn alike */
	s->lo = 0;
	s->hi = p->n_mappings;
	for (int i = 0; i < LB_MAPPING_STEPS; i++) {
		if (s->lo >= s->hi)
			break;
		__u32 mid = (s->lo + s->hi) >> 1;

		if (p->mappings[mid & (LB_MAPPINGS_MAX - 1)].start <= pc)
			s->lo = mid + 1;
		else
			s->hi = mid;
	}
	s->mapping = (s->lo - 1) & (LB_MAPPINGS_MAX - 1);
	m = &p->mappings[s->mapping & (LB_MAPPINGS_MAX - 1)];
	if (pc >= m->start && pc < m->end)
		return m;
	return 0;
}

/* The rule for @pc in a mapping with rows, or NULL. */
static __always_inline struct lb_rule *
lb_rule_find(struct lb_state *s, struct lb_mapping *m, __u64 pc)
{
	__u32 vaddr = pc - m->bias;
	__u32 b = m->block + (vaddr >> LB_BLOCK_SHIFT);
	__u32 *first = lb_block_at(b), *last = lb_block_at(b + 1);

	if (!first || !last)
		return 0;
	/* the last row with row.vaddr <= vaddr is in [lo, hi) */
	s->lo = *first;
	s->hi = *last + 1;
	for (int i = 0; i < LB_ROW_STEPS; i++) {
		if (s->hi - s->lo <= 1)
			break;
		__u32 mid = (s->lo + s->hi) >> 1;
		struct lb_row *row = lb_row_at(mid);

		if (!row)
			break;
		if (row->vaddr <= vaddr)
			s->lo = mid;
		else
			s->hi = mid;
	}
	struct lb_row *row = lb_row_at(s->lo);

	return row ? lb_rule_at(row->rule) : 0;
}

/* Through a signal frame: the registers of the code it interrupted. */
static __always_inline int lb_signal_step(struct lb_state *s)
{
	__u64 sp = s->sp, bp_bx_dx_ax_cx[5] = {}, sp_ip[2] = {};

	if (bpf_probe_read_user(&s->r14, 8, (void *)(sp + LB_SIG_R14)) ||
	    bpf_probe_read_user(bp_bx_dx_ax_cx, sizeof(bp_bx_dx_ax_cx),
				(void *)(sp + LB_SIG_BP)) ||
	    bpf_probe_read_user(sp_ip, sizeof(sp_ip),
				(void *)(sp + LB_SIG_SP))) {
		lb_stop(s, LB_STOP_READ);
		return 0;
	}
	s->bp = bp_bx_dx_ax_cx[0];
	s->bx = bp_bx_dx_ax_cx[1];
	s->dx = bp_bx_dx_ax_cx[2];
	s->cx = bp_bx_dx_ax_cx[4];
	s->sp = sp_ip[0];
	s->pc = sp_ip[1];
	s->leaf = 1;
	return 0;
}

/* A saved register: slot @slot below @cfa, usually inside the window. */
static __always_inline void lb_restore(struct lb_state *s, __u64 cfa,
				       __u32 slot, __u64 *reg)
{
	__u64 addr = cfa - 8 * slot;

	if (!slot)
		return;
	if (addr >= s->stack_lo && addr + 8 <= s->stack_hi)
		*reg = LB_STACK_WORD(s, addr);
	else
		bpf_probe_read_user(reg, 8, (void *)addr);
}

/* One step by @rule. */
static __always_inline int lb_rule_step(struct lb_state *s,
					struct lb_rule *rule)
{
	__u32 kind = rule->kind;
	__u64 cfa;

	if (kind == LB_RULE_SIGNAL)
		return lb_signal_step(s);
	if (rule->flags & LB_RULE_F_LANDING && !s->leaf) {
		lb_stop(s, LB_STOP_BAD_ROW); /* rcx is not what it was */
		return 0;
	}
	if (kind == LB_RULE_RBP || kind == LB_RULE_DEREF_RBP)
		cfa = s->bp + rule->cfa_off;
	else if (kind == LB_RULE_RBX)
		cfa = s->bx + rule->cfa_off;
	else if (kind == LB_RULE_RCX)
		cfa = s->cx + rule->cfa_off;
	else if (kind == LB_RULE_PLT)
		cfa = s->sp + 8 + ((s->pc & 15) >= rule->cfa_off ? 8 : 0);
	else
		cfa = s->sp + rule->cfa_off;
	if (kind == LB_RULE_DEREF_RSP || kind == LB_RULE_DEREF_RBP) {
		if (bpf_probe_read_user(&cfa, 8, (void *)cfa)) {
			lb_stop(s, LB_STOP_READ);
			return 0;
		}
		cfa += rule->deref_off;
	}
	if (cfa <= s->sp && !s->leaf) {
		lb_stop(s, LB_STOP_NO_PROGRESS);
		return 0;
	}
	if (lb_stack_window(s, cfa - 64, 64)) {
		lb_stop(s, LB_STOP_READ);
		return 0;
	}
	s->pc = rule->flags & LB_RULE_F_RA_RCX ? s->cx
					       : LB_STACK_WORD(s, cfa - 8);
	__u64 from = cfa;

	if (rule->flags & LB_RULE_F_RBP_SLOTS)
		from = s->bp + 8;
	lb_restore(s, from, rule->rbx, &s->bx);
	lb_restore(s, from, rule->r14, &s->r14);
	lb_restore(s, from, rule->rbp, &s->bp);
	s->sp = cfa;
	s->leaf = rule->flags & LB_RULE_F_LANDING ? 1 : 0;
	return 0;
}

/* A VM frame that could not be verified: step over it without Lua frames. */
static __always_inline int lb_vm_skip(struct lb_state *s, struct lj_offsets *lj,
				      int miss, bool gc64)
{
	if (s->leaf && miss == LB_VM_NO_G) {
		/* VM helper called from C (lj_vm_floor ...): a leaf function */
		if (lb_stack_window(s, s->sp, 8)) {
			lb_stop(s, LB_STOP_READ);
			return 0;
		}
		s->pc = LB_STACK_WORD(s, s->sp);
		s->sp += 8;
		s->leaf = 0;
		s->mode = LB_MODE_NATIVE;
		return 0;
	}
	if (lb_cframe_read(s, lj, s->sp, gc64)) {
		lb_stop(s, LB_STOP_READ);
		return 0;
	}
	s->up_cframe = s->cframe; /* of another frame: leave it alone */
	__u32 seen = s->l_seen;

	lb_vm_leave(s);
	s->l_seen = seen;
	return 0;
}

/* 1: @word is not @want in the bits of @mask; else 0. */
static __always_inline __u64 lb_differs(__u64 word, __u64 mask, __u64 want)
{
	__u64 d = (word & mask) ^ want;

	return (d | -d) >> 63;
}

/*
 * The code that an FFI callback begins with (callback_mcode_init() in LuaJIT's
 * lj_ccallback.c): mov al, slot; jmp to the end of its group of 32; there push
 * rbp; mov ah, slot >> 8; mov rbp, G; jmp vm_ffi_callback. With 32-bit
 * references mov ebp, G. Its native step.
 */
static __always_inline bool lb_callback_step(struct lb_state *s, bool gc64)
{
	__u64 at[2] = {}, end = 0;
	__u64 pc = s->pc, tail = pc;

	if (bpf_probe_read_user(at, sizeof(at), (void *)pc))
		return false;
	if ((at[0] & 0xff) == 0xb0)
		tail = (at[0] >> 16 & 0xff) == 0xeb
			       ? pc + 4 + (at[0] >> 24 & 0xff)
			       : pc + 2;
	else if ((at[0] & 0xff) == 0xeb)
		tail = pc + 2 + (at[0] >> 8 & 0xff);
	if (bpf_probe_read_user(&end, sizeof(end), (void *)tail))
		return false;
	/* without a branch for each: the verifier follows all of them */
	__u64 whole, push_1, push_2, push_3;

	if (gc64) {
		whole = lb_differs(end, 0xffff00ffff, 0xbd4800b455);
		push_1 = lb_differs(at[0], 0xffff00ff, 0xbd4800b4);
		push_2 = lb_differs(at[0], 0xffff, 0xbd48) |
			 lb_differs(at[1], 0xff0000, 0xe90000);
	} else {
		whole = lb_differs(end, 0xff00ffff, 0xbd00b455);
		push_1 = lb_differs(at[0], 0xff00ff, 0xbd00b4);
		push_2 = lb_differs(at[0], 0xff00000000ff, 0xe900000000bd);
	}
	push_3 = lb_differs(at[0], 0xff, 0xe9) |
		 lb_differs(s->bp, ~0ULL, lb_tid_g_get(s->tid));
	if (whole & push_1 & push_2 & push_3)
		return false;
	if (lb_stack_window(s, s->sp, 16))
		return false;
	if (!whole) {
		s->pc = LB_STACK_WORD(s, s->sp);
		s->sp += 8;
	} else {
		s->bp = LB_STACK_WORD(s, s->sp);
		s->pc = LB_STACK_WORD(s, s->sp + 8);
		s->sp += 16;
	}
	s->leaf = 0;
	return true;
}

/* Code without a table: a trace, or another JIT's code. */
static __always_inline int lb_unknown_step(struct lb_state *s,
					   struct lb_proc_entry *p, __u8 stop,
					   bool gc64)
{
	__u64 pc = s->pc;

	if (s->leaf && s->rec.head.n_frames == s->rec.head.n_kernel &&
	    !(pc >= s->area_lo && pc < s->area_hi) && lb_callback_step(s, gc64))
		return 0;
	lb_push(s, LB_FRAME_MCODE, s->leaf ? LB_FF_EXACT_PC : 0, pc, 0, 0);
	if (s->mode == LB_MODE_DONE)
		return 0;
	if (!p->n_vms) {
		lb_stop(s, stop);
		return 0;
	}
	s->kind = LB_RULE_NONE;
	s->miss_stop = stop;
	s->n_tries = 0;
	s->g_try = 0;
	s->mode = LB_MODE_ENTER;
	return 0;
}

/*
 * Enter the VM: s->kind is the rule of its code, or LB_RULE_NONE for code
 * without a table, where each build is tried by r14 first; what the thread did
 * last counts only then. A mode of its own, since the verifier's work grows
 * with each place that lb_vm_enter() is called from.
 */
static __always_inline int lb_enter_step(struct lb_state *s,
					 struct lb_proc_entry *p, bool gc64)
{
	struct lj_offsets *lj = &p->lj[s->vm & (LB_VMS_MAX - 1)];

	if (lj->gc64 != gc64) {
		s->mode = LB_MODE_OTHER;
		return 0;
	}
	if (!gc64)
		s->g_candidate = lb_g_candidate(s, lj, p);
	s->last_try = s->n_tries + 1 >= p->n_vms;
	int miss = lb_vm_enter(s, lj, s->kind, gc64);

	if (!miss)
		return 0;
	if (!gc64 && s->g_try < LB_G_TRIES - 1 &&
	    (s->kind == LB_RULE_NONE || s->kind == LB_RULE_VM_EXIT)) {
		s->g_try++;
		return 0;
	}
	if (s->kind != LB_RULE_NONE)
		return lb_vm_skip(s, lj, miss, gc64);
	if (s->last_try) {
		lb_stop(s, s->miss_stop);
		return 0;
	}
	s->n_tries++;
	s->g_try = 0;
	s->vm = s->vm + 1 < p->n_vms ? s->vm + 1 : 0;
	return 0;
}

/* One native frame: emit it, then move to its caller. */
static __always_inline int lb_native_step(struct lb_state *s,
					  struct lb_proc_entry *p, bool gc64)
{
	__u64 pc = s->pc - (s->leaf ? 0 : 1);

	if (!s->pc || s->pc >> LB_USER_PC_BITS) {
		lb_stop(s, LB_STOP_BAD_PC);
		return 0;
	}
	struct lb_mapping *m = lb_mapping_find(s, p, pc);

	if (!m)
		return lb_unknown_step(s, p, LB_STOP_NO_MAP, gc64);
	if (!m->has_rows)
		return lb_unknown_step(s, p, LB_STOP_NO_ROW, gc64);
	struct lb_rule *rule = lb_rule_find(s, m, pc);

	if (!rule || rule->kind == LB_RULE_NONE)
		return lb_unknown_step(s, p, LB_STOP_NO_ROW, gc64);
	if (rule->kind == LB_RULE_BAD)
		return lb_unknown_step(s, p, LB_STOP_BAD_ROW, gc64);
	if (rule->kind >= LB_RULE_VM &&
	    !(rule->kind == LB_RULE_VM_CALLBACK && s->leaf)) {
		if (!m->vm) {
			lb_stop(s, LB_STOP_NO_VM);
			return 0;
		}
		s->vm = m->vm - 1;
		s->kind = rule->kind;
		s->g_try = 0;
		s->mode = LB_MODE_ENTER;
		return 0;
	}
	if (!(rule->flags & LB_RULE_F_VM) && rule->kind < LB_RULE_VM)
		lb_push(s, LB_FRAME_NATIVE, s->leaf ? LB_FF_EXACT_PC : 0, s->pc,
			0, 0);
	if (s->mode == LB_MODE_DONE)
		return 0;
	if (rule->kind == LB_RULE_END) {
		lb_stop(s, LB_STOP_ROOT);
		return 0;
	}
	return lb_rule_step(s, rule);
}

#endif
