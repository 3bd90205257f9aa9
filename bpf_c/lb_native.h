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
	__u32 lo = 0, hi = p->n_mappings;

	for (int i = 0; i < LB_MAPPING_STEPS; i++) {
		if (lo >= hi)
			break;
		__u32 mid = (lo + hi) >> 1;

		if (p->mappings[mid & (LB_MAPPINGS_MAX - 1)].start <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	s->mapping = (lo - 1) & (LB_MAPPINGS_MAX - 1);
	m = &p->mappings[s->mapping & (LB_MAPPINGS_MAX - 1)];
	if (pc >= m->start && pc < m->end)
		return m;
	return 0;
}

/* The rule for @pc in a mapping with rows, or NULL. */
static __always_inline struct lb_rule *lb_rule_find(struct lb_mapping *m,
						    __u64 pc)
{
	__u32 vaddr = pc - m->bias;
	__u32 b = m->block + (vaddr >> LB_BLOCK_SHIFT);
	__u32 *first = lb_block_at(b), *last = lb_block_at(b + 1);

	if (!first || !last)
		return 0;
	/* the last row with row.vaddr <= vaddr is in [lo, hi) */
	__u32 lo = *first, hi = *last + 1;

	for (int i = 0; i < LB_ROW_STEPS; i++) {
		if (hi - lo <= 1)
			break;
		__u32 mid = (lo + hi) >> 1;
		struct lb_row *row = lb_row_at(mid);

		if (!row)
			break;
		if (row->vaddr <= vaddr)
			lo = mid;
		else
			hi = mid;
	}
	struct lb_row *row = lb_row_at(lo);

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
				      int miss)
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
		return 0;
	}
	if (lb_cframe_read(s, lj, s->sp)) {
		lb_stop(s, LB_STOP_READ);
		return 0;
	}
	s->up_cframe = s->cframe; /* of another frame: leave it alone */
	__u32 seen = s->l_seen;

	lb_vm_leave(s);
	s->l_seen = seen;
	return 0;
}

/*
 * The code that an FFI callback begins with (callback_mcode_init() in LuaJIT's
 * lj_ccallback.c): mov al, slot; jmp to the end of its group of 32; there push
 * rbp; mov ah, slot >> 8; mov rbp, G; jmp vm_ffi_callback. Its native step.
 */
static __always_inline bool lb_callback_step(struct lb_state *s)
{
	__u8 at[16] = {}, end[16] = {};
	__u64 pc = s->pc, tail;

	if (bpf_probe_read_user(at, sizeof(at), (void *)pc))
		return false;
	tail = pc;
	if (at[0] == 0xb0)
		tail = at[2] == 0xeb ? pc + 4 + at[3] : pc + 2;
	else if (at[0] == 0xeb)
		tail = pc + 2 + at[1];
	if (bpf_probe_read_user(end, sizeof(end), (void *)tail))
		return false;
	bool whole = end[0] == 0x55 && end[1] == 0xb4 && end[3] == 0x48 &&
		     end[4] == 0xbd;
	bool pushed = (at[0] == 0xb4 && at[2] == 0x48 && at[3] == 0xbd) ||
		      (at[0] == 0x48 && at[1] == 0xbd && at[10] == 0xe9) ||
		      (at[0] == 0xe9 && s->bp == lb_tid_g_get(s->tid));

	if (!whole && !pushed)
		return false;
	if (lb_stack_window(s, s->sp, 16))
		return false;
	if (whole) {
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
					   struct lb_proc_entry *p, __u8 stop)
{
	__u64 pc = s->pc;

	if (s->leaf && s->rec.head.n_frames == s->rec.head.n_kernel &&
	    !(pc >= s->area_lo && pc < s->area_hi) && lb_callback_step(s))
		return 0;
	if (s->tmp != pc) { /* not when trying the next LuaJIT build */
		lb_push(s, LB_FRAME_MCODE, s->leaf ? LB_FF_EXACT_PC : 0, pc, 0,
			0);
		if (s->mode == LB_MODE_DONE)
			return 0;
	}
	/* each build by r14 first; what the thread did last only then */
	s->last_try = s->n_tries + 1 >= p->n_vms;
	if (p->n_vms &&
	    !lb_vm_enter(s, &p->lj[s->vm & (LB_VMS_MAX - 1)], LB_RULE_NONE)) {
		s->n_tries = 0;
		return 0;
	}
	if (!s->last_try) {
		s->n_tries++;
		s->vm = s->vm + 1 < p->n_vms ? s->vm + 1 : 0;
		s->tmp = pc;
		return 0;
	}
	lb_stop(s, stop);
	return 0;
}

/* One native frame: emit it, then move to its caller. */
static __always_inline int lb_native_step(struct lb_state *s,
					  struct lb_proc_entry *p)
{
	__u64 pc = s->pc - (s->leaf ? 0 : 1);

	if (!s->pc || s->pc >> LB_USER_PC_BITS) {
		lb_stop(s, LB_STOP_BAD_PC);
		return 0;
	}
	struct lb_mapping *m = lb_mapping_find(s, p, pc);

	if (!m)
		return lb_unknown_step(s, p, LB_STOP_NO_MAP);
	if (!m->has_rows)
		return lb_unknown_step(s, p, LB_STOP_NO_ROW);
	struct lb_rule *rule = lb_rule_find(m, pc);

	if (!rule || rule->kind == LB_RULE_NONE)
		return lb_unknown_step(s, p, LB_STOP_NO_ROW);
	if (rule->kind == LB_RULE_BAD)
		return lb_unknown_step(s, p, LB_STOP_BAD_ROW);
	if (rule->kind >= LB_RULE_VM &&
	    !(rule->kind == LB_RULE_VM_CALLBACK && s->leaf)) {
		__u32 kind = rule->kind;

		if (!m->vm) {
			lb_stop(s, LB_STOP_NO_VM);
			return 0;
		}
		s->vm = m->vm - 1;
		struct lj_offsets *lj = &p->lj[s->vm & (LB_VMS_MAX - 1)];
		int miss = lb_vm_enter(s, lj, kind);

		return miss ? lb_vm_skip(s, lj, miss) : 0;
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
