/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VM segments: where the native walk meets the VM's assembler or the machine
 * code of a trace. Find L and its C frame, choose BASE, and know the native
 * registers above the C frame.
 *
 * L->cframe & ~3 is the SP that the VM had when L entered it, whatever SP is
 * now (VM-internal calls, traces and their spill slots, exit handler). Each L
 * and G is verified before use: L->glref == G, G == r14 - G2DISP or
 * G->cur_L->glref == G, and [cframe + SAVE_L] == L.
 */
#ifndef LB_VM_H
#define LB_VM_H

#define LB_CFRAME_READ 96	    /* bytes; covers the C frame of all forks */
#define LB_CFRAME_DIST (256 * 1024) /* SP to C frame, at most */

#define LB_STACK_WORD(s, a) \
	((s)->stack_win[(((a) - (s)->stack_lo) >> 3) & (LB_WINDOW_WORDS - 1)])
#define LB_L_WORD(s, off) ((s)->lw[((off) >> 3) & (LB_L_WORDS - 1)])
#define LB_G_WORD(s, lj, off) \
	((s)->gw[(((off) - (lj)->g_vmstate) >> 3) & (LB_G_WORDS - 1)])

enum lb_vm_miss {
	LB_VM_OK = 0,
	LB_VM_NO_G,	 /* no global_State verified */
	LB_VM_NO_CFRAME, /* its C frame is not on this stack */
	LB_VM_FOREIGN,	 /* the C frame belongs to another lua_State */
};

/* Make [addr, addr + size) of the native stack readable; size <= 128. */
static __always_inline int lb_stack_window(struct lb_state *s, __u64 addr,
					   __u32 size)
{
	if (addr >= s->stack_lo && addr + size <= s->stack_hi)
		return 0;
	s->stack_hi = addr + sizeof(s->stack_win);
	if (bpf_probe_read_user(s->stack_win, sizeof(s->stack_win),
				(void *)addr)) {
		s->stack_hi = addr + LB_CFRAME_READ;
		if (bpf_probe_read_user(s->stack_win, LB_CFRAME_READ,
					(void *)addr)) {
			s->stack_hi = addr + size;
			if (bpf_probe_read_user(s->stack_win, size & 127,
						(void *)addr)) {
				s->stack_lo = s->stack_hi = 0;
				return 1;
			}
		}
	}
	s->stack_lo = addr;
	return 0;
}

static __always_inline int lb_l_read(struct lb_state *s, __u64 l_addr)
{
	return bpf_probe_read_user(s->lw, 96, (void *)l_addr);
}

static __always_inline int lb_g_read(struct lb_state *s, struct lj_offsets *lj,
				     __u64 g_addr)
{
	return bpf_probe_read_user(s->gw, sizeof(s->gw),
				   (void *)(g_addr + lj->g_vmstate));
}

/* G read, and its cur_L read and closing the circle. */
static __always_inline bool lb_g_verify(struct lb_state *s,
					struct lj_offsets *lj, __u64 g_addr)
{
	return !lb_g_read(s, lj, g_addr) &&
	       !lb_l_read(s, LB_G_WORD(s, lj, lj->g_cur_l)) &&
	       LB_L_WORD(s, lj->l_glref) == g_addr;
}

/* The C frame at @cf: owner, and what the VM saved of its caller. */
static __always_inline int lb_cframe_read(struct lb_state *s,
					  struct lj_offsets *lj, __u64 cf)
{
	if (lb_stack_window(s, cf, LB_CFRAME_READ))
		return 1;
	s->nres = LB_STACK_WORD(s, cf + lj->cf_nres);
	s->up_cframe = LB_STACK_WORD(s, cf + lj->cf_prev);
	s->save_pc = LB_STACK_WORD(s, cf + lj->cf_pc);
	s->up_r14 = LB_STACK_WORD(s, cf + lj->cf_r14);
	s->up_bx = LB_STACK_WORD(s, cf + lj->cf_rbx);
	s->up_bp = LB_STACK_WORD(s, cf + lj->cf_rbp);
	s->up_pc = LB_STACK_WORD(s, cf + lj->cf_ra);
	s->up_sp = cf + lj->cframe_size;
	return 0;
}

static __always_inline __u64 lb_cframe_of(struct lb_state *s,
					  struct lj_offsets *lj, __u64 l_addr)
{
	/* inner C frames of this L are behind us already */
	if (l_addr == s->l)
		return s->cframe;
	return LB_L_WORD(s, lj->l_cframe) & ~3ULL;
}

/*
 * SP is the C frame (interpreter, or returned to from a C function).
 * On success s->l_found etc. are in s->tmp (L) and s->gw, s->lw are read.
 */
static __always_inline bool lb_vm_at_sp(struct lb_state *s,
					struct lj_offsets *lj, __u64 *g_addr,
					bool exact)
{
	__u64 cf = s->sp;

	if (lb_cframe_read(s, lj, cf))
		return false;
	__u64 l_addr = LB_STACK_WORD(s, cf + lj->cf_l);

	if (lb_l_read(s, l_addr))
		return false;
	s->tmp = l_addr;
	if (exact && lb_cframe_of(s, lj, l_addr) != cf)
		return false;
	__u64 g = LB_L_WORD(s, lj->l_glref);

	if (g == *g_addr)
		return true;
	/* r14 was lost on the way: the circle must close without it */
	if (lb_g_read(s, lj, g))
		return false;
	__u64 ref = 0;

	if (bpf_probe_read_user(
		    &ref, 8,
		    (void *)(LB_G_WORD(s, lj, lj->g_cur_l) + lj->l_glref)) ||
	    ref != g || !g)
		return false;
	*g_addr = g;
	return true;
}

/*
 * SP is somewhere below the C frame (VM-internal call, exit handler, trace):
 * the C frame is found from L, and L from rbp or G->cur_L.
 */
static __always_inline int lb_vm_below_cframe(struct lb_state *s,
					      struct lj_offsets *lj,
					      __u64 *g_addr, bool unknown)
{
	if (!lb_g_verify(s, lj, *g_addr)) {
		if (!unknown)
			return LB_VM_NO_G;
		*g_addr = lb_tid_g_get(s->tid);
		if (!*g_addr || !lb_g_verify(s, lj, *g_addr))
			return LB_VM_NO_G;
		s->unknown_code = 2; /* r14 is lost: no trace on top */
	}
	__u64 l_addr = LB_G_WORD(s, lj, lj->g_cur_l);

	/* across its calls the VM keeps L in rbp; cur_L may be another thread,
	 * since finalizers may run on one of their own */
	if (!s->leaf && s->bp != l_addr && !(s->bp & 7)) {
		__u64 ref = 0;

		bpf_probe_read_user(&ref, 8, (void *)(s->bp + lj->l_glref));
		if (ref == *g_addr) {
			l_addr = s->bp;
			if (lb_l_read(s, l_addr))
				return LB_VM_NO_G;
		}
	}
	__u64 cf = lb_cframe_of(s, lj, l_addr);

	if (cf < s->sp && cf) {
		/* the innermost C frame has just been left */
		__u64 prev = 0;

		bpf_probe_read_user(&prev, 8, (void *)(cf + lj->cf_prev));
		cf = prev & ~3ULL;
	}
	if (cf < s->sp || cf - s->sp > LB_CFRAME_DIST)
		return LB_VM_NO_CFRAME;
	if (lb_cframe_read(s, lj, cf) ||
	    LB_STACK_WORD(s, cf + lj->cf_l) != l_addr)
		return LB_VM_FOREIGN;
	s->tmp = l_addr;
	return LB_VM_OK;
}

static __always_inline bool lb_is_base(struct lb_state *s, __u64 v)
{
	return !(v & 7) && v > s->l_stack && v <= s->l_maxstack;
}

/* A new L: choose the frame to begin with. Return: 1 when L has none here. */
static __always_inline int lb_lua_begin(struct lb_state *s,
					struct lj_offsets *lj, __u32 kind)
{
	__u64 jit_base = LB_G_WORD(s, lj, lj->g_jit_base);
	__u64 base = LB_L_WORD(s, lj->l_base);

	s->l_known = 1;
	s->l_done = 0;
	s->l_stack = LB_L_WORD(s, lj->l_stack);
	s->l_maxstack = LB_L_WORD(s, lj->l_maxstack);
	s->lua_lo = s->lua_hi = 0;
	s->code_lo = s->code_hi = 0;
	s->vararg = 0;
	s->strict = 0;
	s->jit = 0;
	s->bx0 = s->bx;
	s->lua_pc = s->bx;
	s->retry = LB_RETRY_NONE;
	if (jit_base && LB_G_WORD(s, lj, lj->g_cur_l) == s->l) {
		s->f = jit_base - 8;
		s->lua_pc = 0;
		s->jit = 1;
		return 0;
	}
	if (kind == LB_RULE_VM_RETURN) {
		/* BASE and L->base are in motion, rbx holds the previous base
		 */
		if (lb_is_base(s, s->bx))
			base = s->bx;
		s->f = base - 8;
		s->lua_pc = 0;
		return 1;
	}
	if (kind == LB_RULE_VM) {
		s->cand[0] = s->leaf && lb_is_base(s, s->dx) ? s->dx : 0;
		s->cand[1] = lb_is_base(s, s->bp) ? s->bp : 0;
		s->cand[2] = base;
		s->cand[3] = 0;
		s->retry = s->cand[0]	? 0
			   : s->cand[1] ? LB_RETRY_WAYS
					: 2 * LB_RETRY_WAYS;
		base = s->cand[0] ? s->cand[0] : s->cand[1] ? s->cand[1] : base;
	}
	s->f = base - 8;
	return 0;
}

/*
 * Enter a VM segment. @kind: LB_RULE_VM*, or LB_RULE_NONE for code without a
 * table. On success s->mode is set and s->up_* hold the registers above.
 */
static __always_inline int lb_vm_enter(struct lb_state *s,
				       struct lj_offsets *lj, __u32 kind)
{
	bool at_sp = kind == LB_RULE_VM || kind == LB_RULE_VM_RETURN;
	__u64 g_addr = s->r14 - lj->g2disp;
	bool have_g = false;

	s->unknown_code = kind == LB_RULE_NONE;
	if (!at_sp ||
	    !lb_vm_at_sp(s, lj, &g_addr, s->leaf && kind == LB_RULE_VM)) {
		g_addr = s->r14 - lj->g2disp;
		int miss = lb_vm_below_cframe(s, lj, &g_addr,
					      kind == LB_RULE_NONE);

		if (miss)
			return miss;
		have_g = true;
	}
	__u64 l_addr = s->tmp;

	if (!have_g && (!s->n_segments || l_addr != s->l))
		lb_g_read(s, lj, g_addr);
	if (!s->n_segments) {
		lb_tid_g_set(s->tid, g_addr);
		s->rec.head.vmstate = s->gw[0];
		s->rec.head.g_addr = g_addr;
		s->rec.head.vm = s->vm;
	}
	s->n_segments++;
	s->g = g_addr;
	if (l_addr != s->l) {
		s->l = l_addr;
		s->l_known = 0;
	}
	if (s->unknown_code == 2 ||
	    (s->unknown_code && !LB_G_WORD(s, lj, lj->g_jit_base))) {
		lb_push(s, LB_FRAME_SKIPPED, 0, 0, 0, 0);
		lb_count(LB_CNT_SKIPPED);
	}
	if (s->nres < 0) { /* lua_cpcall: a C frame without a Lua frame */
		s->leaf = 0;
		return lb_vm_leave(s);
	}
	if (!s->l_known) {
		if (lb_lua_begin(s, lj, kind))
			return lb_vm_leave(s);
	} else {
		s->lua_pc = 0;
		s->jit = 0;
	}
	if (s->l_done)
		return lb_vm_leave(s);
	s->leaf = 0;
	s->detail = LB_DETAIL_NONE;
	s->n_frames0 = s->rec.head.n_frames;
	s->hash0 = s->hash;
	s->n_walked = 0;
	s->mode = LB_MODE_LUA;
	return 0;
}

#endif
