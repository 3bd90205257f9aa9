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

#define LB_G_REF(s, lj, off, gc64) \
	LB_REF(LB_G_WORD(s, lj, off), (off) - (lj)->g_vmstate, gc64)
#define LB_L_REF(s, off, gc64)	 LB_REF(LB_L_WORD(s, off), off, gc64)
#define LB_STACK_REF(s, a, gc64) LB_REF(LB_STACK_WORD(s, a), (__u32)(a), gc64)

#define LB_G_TRIES (4 + LB_G_HINTS)

#define LB_AREAS   10		/* of 64 KiB in 512 KiB, the defaults */
#define LB_AREA_NS 100000000ULL /* for how long a found area is believed */

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

/* A register of the VM: with 32-bit references, its low half. */
static __always_inline __u64 lb_vm_reg(__u64 value, bool gc64)
{
	return gc64 ? value : (__u32)value;
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

/*
 * The lua_State that runs, of the G that was read. LuaJIT 2.0 knows it in
 * traces only (jit_L), else it is 0.
 */
static __always_inline __u64 lb_g_cur_l(struct lb_state *s,
					struct lj_offsets *lj, bool gc64)
{
	__u32 off = lj->g_cur_l;

	if (!gc64 && off == LJ_OFFSETS_NONE)
		off = lj->g_jit_l;
	return LB_G_REF(s, lj, off, gc64);
}

/* L->glref of the lua_State at @l_addr; 0 if it cannot be read. */
static __always_inline __u64 lb_l_glref(struct lj_offsets *lj, __u64 l_addr,
					bool gc64)
{
	__u64 ref = 0;

	bpf_probe_read_user(&ref, gc64 ? 8 : 4, (void *)(l_addr + lj->l_glref));
	return ref;
}

/* G read, and its cur_L read and closing the circle. */
static __always_inline bool
lb_g_verify(struct lb_state *s, struct lj_offsets *lj, __u64 g_addr, bool gc64)
{
	return g_addr && !lb_g_read(s, lj, g_addr) &&
	       !lb_l_read(s, lb_g_cur_l(s, lj, gc64)) &&
	       LB_L_REF(s, lj->l_glref, gc64) == g_addr;
}

/* The C frame at @cf: owner, and what the VM saved of its caller. */
static __always_inline int
lb_cframe_read(struct lb_state *s, struct lj_offsets *lj, __u64 cf, bool gc64)
{
	if (lb_stack_window(s, cf, LB_CFRAME_READ))
		return 1;
	s->nres = LB_STACK_WORD(s, cf + lj->cf_nres);
	s->up_cframe = LB_STACK_WORD(s, cf + lj->cf_prev);
	s->save_pc = LB_STACK_REF(s, cf + lj->cf_pc, gc64);
	s->up_r14 = LB_STACK_WORD(s, cf + lj->cf_r14);
	s->up_bx = LB_STACK_WORD(s, cf + lj->cf_rbx);
	s->up_bp = LB_STACK_WORD(s, cf + lj->cf_rbp);
	s->up_pc = LB_STACK_WORD(s, cf + lj->cf_ra);
	s->up_sp = cf + lj->cframe_size;
	return 0;
}

/* Go on with @l_addr: from where its walk stands, if it was begun before. */
static __always_inline void lb_l_switch(struct lb_state *s, __u64 l_addr)
{
	if (l_addr == s->l)
		return;
	if (s->l) {
		struct lb_l_context *c =
			&s->contexts[s->context_at & (LB_L_CONTEXTS - 1)];

		s->context_at++;
		c->l = s->l;
		c->cframe = s->cframe;
		c->f = s->f;
		c->l_stack = s->l_stack;
		c->l_maxstack = s->l_maxstack;
		c->l_seen = s->l_seen;
		c->l_known = s->l_known;
		c->l_done = s->l_done;
	}
	s->l = l_addr;
	s->lua_lo = s->lua_hi = 0;
	s->l_seen = s->l_known = s->l_done = 0;
	s->context_hit = LB_L_CONTEXTS;
#pragma unroll
	for (int i = 0; i < LB_L_CONTEXTS; i++)
		if (s->contexts[i].l == l_addr)
			s->context_hit = i;
	if (s->context_hit >= LB_L_CONTEXTS)
		return;
	struct lb_l_context *c =
		&s->contexts[s->context_hit & (LB_L_CONTEXTS - 1)];

	c->l = 0;
	s->cframe = c->cframe;
	s->f = c->f;
	s->l_stack = c->l_stack;
	s->l_maxstack = c->l_maxstack;
	s->l_seen = c->l_seen;
	s->l_known = c->l_known;
	s->l_done = c->l_done;
}

/* The next C frame of s->l, innermost first. */
static __always_inline __u64 lb_cframe_next(struct lb_state *s,
					    struct lj_offsets *lj)
{
	return s->l_seen ? s->cframe : LB_L_WORD(s, lj->l_cframe) & ~3ULL;
}

/*
 * SP is the C frame (interpreter, or returned to from a C function).
 * On success s->l_found etc. are in s->tmp (L) and s->gw, s->lw are read.
 */
static __always_inline bool lb_vm_at_sp(struct lb_state *s,
					struct lj_offsets *lj, __u64 *g_addr,
					bool exact, bool gc64)
{
	__u64 cf = s->sp;

	if (lb_cframe_read(s, lj, cf, gc64))
		return false;
	__u64 l_addr = LB_STACK_REF(s, cf + lj->cf_l, gc64);

	if (lb_l_read(s, l_addr))
		return false;
	s->tmp = l_addr;
	/* at the leaf no L has been seen yet */
	if (exact && (LB_L_WORD(s, lj->l_cframe) & ~3ULL) != cf)
		return false;
	__u64 g = LB_L_REF(s, lj->l_glref, gc64);

	if (g == *g_addr)
		return true;
	/* r14 was lost on the way: the circle must close without it */
	if (!g || lb_g_read(s, lj, g) ||
	    lb_l_glref(lj, lb_g_cur_l(s, lj, gc64), gc64) != g)
		return false;
	*g_addr = g;
	return true;
}

/*
 * Is s->pc in a machine code area of G? jit_State has the newest area and its
 * size, each area begins with the address and the size of the one before
 * (MCLink). The last area that was found stays valid for a moment: a flush can
 * free it, but what is mapped there so soon is an area again.
 */
static __always_inline bool lb_in_mcode(struct lb_state *s,
					struct lj_offsets *lj)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 head[4] = {}; /* mcarea, mctop, mcbot, szmcarea */

	if (s->pc >= s->area_lo && s->pc < s->area_hi && s->area_g == s->g &&
	    s->area_tgid == s->tgid && now < s->area_until)
		return true;
	if (bpf_probe_read_user(head, sizeof(head),
				(void *)(s->g + lj->g_to_j + lj->j_mcarea)))
		return false;
	head[1] = head[3];
#pragma unroll
	for (int i = 0; i < LB_AREAS; i++) {
		__u64 lo = head[0];

		if (!lo)
			return false;
		if (s->pc - lo < head[1]) {
			s->area_lo = lo;
			s->area_hi = lo + head[1];
			s->area_g = s->g;
			s->area_tgid = s->tgid;
			s->area_until = now + LB_AREA_NS;
			return true;
		}
		if (bpf_probe_read_user(head, 16, (void *)lo))
			return false;
	}
	return false;
}

/* A field of a GCtrace whose first words are in s->tw. */
#define LB_T_WORD(s, off) \
	((s)->tw[((off) >> 3) & (LB_T_WORDS - 1)] >> (8 * ((off)&7)))
#define LB_T_REF(s, lj, off) \
	((lj)->gc64 ? LB_T_WORD(s, off) : (__u32)LB_T_WORD(s, off))

/*
 * Which trace holds s->pc? The number of the one that was entered last is in
 * vmstate. Return: what tells it from others, 0 if it does not hold s->pc.
 */
static __always_inline __u32 lb_trace_id(struct lb_state *s,
					 struct lj_offsets *lj)
{
	__u64 pc = s->pc - (s->leaf ? 0 : 1);
	__u64 j = s->g + lj->g_to_j, at = 0, trace = 0;
	__s32 no = s->gw[0];
	__u32 size = 0, ref = lj->gc64 ? 8 : 4;

	if (!(s->flags & LB_CONFIG_TRACES) || no <= 0 ||
	    lj->j_trace == LJ_OFFSETS_NONE)
		return 0;
	if (bpf_probe_read_user(&size, 4, (void *)(j + lj->j_sizetrace)) ||
	    (__u32)no >= size)
		return 0;
	if (bpf_probe_read_user(&at, ref, (void *)(j + lj->j_trace)) ||
	    bpf_probe_read_user(&trace, ref, (void *)(at + (__u64)no * ref)) ||
	    bpf_probe_read_user(s->tw, sizeof(s->tw), (void *)trace))
		return 0;
	__u64 mcode = LB_T_WORD(s, lj->tr_mcode);

	size = LB_T_WORD(s, lj->tr_szmcode);
	if (pc - mcode >= size)
		return 0;
	return LB_TRACE_ID(trace, mcode, size, LB_T_REF(s, lj, lj->tr_startpt),
			   LB_T_REF(s, lj, lj->tr_startpc),
			   (__u16)LB_T_WORD(s, lj->tr_nins));
}

/*
 * Is the code without a table at s->pc machine code of G? Sets s->trace_id and
 * s->in_mcode. G has been read.
 */
static __always_inline void lb_mcode_find(struct lb_state *s,
					  struct lj_offsets *lj, __u64 g_addr)
{
	s->g = g_addr;
	s->trace_id = lb_trace_id(s, lj);
	s->in_mcode = s->trace_id || lb_in_mcode(s, lj);
}

/*
 * With 32-bit references the compiler uses r14 itself: what else may be G. Each
 * is tried, and one that is in no trace at the end.
 */
static __always_inline __u64 lb_g_candidate(struct lb_state *s,
					    struct lj_offsets *lj,
					    struct lb_proc_entry *p)
{
	__u32 i = s->g_try;

	if (i == 0 || i == LB_G_TRIES - 2)
		return lb_vm_reg(s->r14, false) - lj->g2disp;
	if (i == 1 || i == LB_G_TRIES - 1)
		return lb_tid_g_get(s->tid);
	i = (i - 2) & (LB_G_HINTS - 1);
	return p->hints_vm[i] == s->vm ? p->hints[i] : 0;
}

/*
 * L when SP is not its C frame: rbp or G->cur_L. On success s->tmp is L, and
 * s->gw, s->lw are read.
 */
static __always_inline bool lb_vm_find_l(struct lb_state *s,
					 struct lj_offsets *lj, __u64 *g_addr,
					 bool unknown, bool gc64)
{
	if (!lb_g_verify(s, lj, *g_addr, gc64)) {
		if (!gc64 || !unknown)
			return false;
		*g_addr = lb_tid_g_get(s->tid);
		if (!lb_g_verify(s, lj, *g_addr, gc64))
			return false;
		s->unknown_code = 2; /* r14 is lost: no trace on top */
	}
	if (s->unknown_code) {
		bool in_trace = LB_G_REF(s, lj, lj->g_jit_base, gc64);

		lb_mcode_find(s, lj, *g_addr);
		if (!gc64 &&
		    (s->g_try < LB_G_TRIES - 2 ? !in_trace || !s->in_mcode
					       : in_trace))
			return false;
	}
	s->tmp = lb_g_cur_l(s, lj, gc64);
	/* across its calls the VM keeps L in rbp; cur_L may be another thread,
	 * since finalizers may run on one of their own */
	__u64 bp = lb_vm_reg(s->bp, gc64);

	if (!s->leaf && bp != s->tmp && !(bp & 7) &&
	    lb_l_glref(lj, bp, gc64) == *g_addr) {
		s->tmp = bp;
		return !lb_l_read(s, bp);
	}
	return true;
}

/*
 * The C frame of s->l when SP is somewhere below it (VM-internal call, exit
 * handler, trace).
 */
static __always_inline int lb_vm_find_cframe(struct lb_state *s,
					     struct lj_offsets *lj, bool gc64)
{
	__u64 cf = lb_cframe_next(s, lj);

	if (cf < s->sp && cf) {
		/* the innermost C frame has just been left */
		__u64 prev = 0;

		bpf_probe_read_user(&prev, 8, (void *)(cf + lj->cf_prev));
		cf = prev & ~3ULL;
	}
	if (cf < s->sp || cf - s->sp > LB_CFRAME_DIST)
		return LB_VM_NO_CFRAME;
	if (lb_cframe_read(s, lj, cf, gc64) ||
	    LB_STACK_REF(s, cf + lj->cf_l, gc64) != s->l)
		return LB_VM_FOREIGN;
	return LB_VM_OK;
}

static __always_inline bool lb_is_base(struct lb_state *s, __u64 v)
{
	return !(v & 7) && v > s->l_stack && v <= s->l_maxstack;
}

/*
 * The leaf is in the VM between two C frames, and the Lua frames that L has
 * belong to the one below: then s->f is the first of them.
 */
static __always_inline bool lb_at_boundary(struct lb_state *s, __u64 base,
					   bool gc64)
{
	/* continuation, its PC, function, link; or two of them in a word */
	__u64 slots[4] = {};
	__u64 bp = lb_vm_reg(s->bp, gc64), dx = lb_vm_reg(s->dx, gc64);
	__u64 cont, link;

	if (!lb_is_base(s, dx))
		return false;
	if ((s->bx0 & 3) == LB_LINK_C && s->bx0 > (gc64 ? 16 : 8)) {
		/* rbx is a link that is still to be stored: entering from C.
		 * A frame has a slot more than that; coroutine.resume counts
		 * its results in rbx */
		bpf_probe_read_user(&slots[3], 8, (void *)(dx - 8));
		s->f = base - 8;
		s->lua_pc = 0;
		return (gc64 ? slots[3] : slots[3] >> 32) != s->bx0;
	}
	if (bp > dx && lb_is_base(s, bp) &&
	    !bpf_probe_read_user(slots, sizeof(slots), (void *)(bp - 32))) {
		/* rbp is the base of an FFI callback that has returned, rdx
		 * that of the frame before it */
		s->f = dx - 8;
		s->lua_pc = 0;
		cont = gc64 ? slots[0] : (__u32)slots[2];
		link = gc64 ? slots[3] : slots[3] >> 32;
		return cont == LB_CONT_FFI_CALLBACK &&
		       (link & 7) == LB_LINK_CONT && (link & ~7ULL) == bp - dx;
	}
	return false;
}

/* A new L: choose the frame to begin with. Return: 1 when L has none here. */
static __always_inline int
lb_lua_begin(struct lb_state *s, struct lj_offsets *lj, __u32 kind, bool gc64)
{
	__u64 jit_base = LB_G_REF(s, lj, lj->g_jit_base, gc64);
	__u64 dx = lb_vm_reg(s->dx, gc64), bp = lb_vm_reg(s->bp, gc64);
	__u64 base = LB_L_WORD(s, lj->l_base);

	s->l_known = 1;
	s->l_done = 0;
	s->l_stack = LB_L_REF(s, lj->l_stack, gc64);
	s->l_maxstack = LB_L_REF(s, lj->l_maxstack, gc64);
	s->lua_lo = s->lua_hi = 0;
	s->code_lo = s->code_hi = 0;
	s->vararg = 0;
	s->strict = 0;
	s->jit = 0;
	s->bx0 = lb_vm_reg(s->bx, gc64);
	s->lua_pc = s->bx0;
	s->retry = LB_RETRY_NONE;
	if (jit_base && lb_g_cur_l(s, lj, gc64) == s->l) {
		s->f = jit_base - 8;
		s->lua_pc = 0;
		s->jit = 1;
		return 0;
	}
	if (kind == LB_RULE_VM_RETURN) {
		/* BASE and L->base are in motion, rbx holds the previous base
		 */
		if (lb_is_base(s, s->bx0))
			base = s->bx0;
		s->f = base - 8;
		s->lua_pc = 0;
		return 1;
	}
	if (kind == LB_RULE_VM_CALLBACK) {
		/* L->base is the callback's frame when it is linked so */
		__u64 link = 0, cont = 0;

		bpf_probe_read_user(&link, 8, (void *)(base - 8));
		bpf_probe_read_user(&cont, 8,
				    (void *)(base - (gc64 ? 32 : 16)));
		if (!gc64) {
			link >>= 32;
			cont = (__u32)cont;
		}
		s->f = base - 8;
		s->lua_pc = 0;
		return (link & 7) != LB_LINK_CONT ||
		       cont != LB_CONT_FFI_CALLBACK;
	}
	if (kind == LB_RULE_VM && s->leaf && lb_at_boundary(s, base, gc64))
		return 1;
	s->lua_pc = s->bx0;
	if (kind == LB_RULE_VM) {
		s->cand[0] = s->leaf && lb_is_base(s, dx) ? dx : 0;
		s->cand[1] = lb_is_base(s, bp) ? bp : 0;
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

/* The code without a table on top is machine code of a trace: say so. */
static __always_inline void lb_mcode_mark(struct lb_state *s)
{
	__u32 n = s->rec.head.n_frames - 1;

	if (n >= LB_FRAMES_MAX)
		return;
	struct lb_frame *f = &s->rec.frames[n & (LB_FRAMES_MAX - 1)];

	if (s->trace_id) {
		f->pos = s->trace_id;
		f->line = s->gw[0];
		lb_hash_add(s, s->trace_id);
	}
	if (s->in_mcode)
		f->flags |= LB_FF_MCODE;
}

/*
 * Enter a VM segment. @kind: LB_RULE_VM*, or LB_RULE_NONE for code without a
 * table. On success s->mode is set and s->up_* hold the registers above.
 */
static __always_inline int
lb_vm_enter(struct lb_state *s, struct lj_offsets *lj, __u32 kind, bool gc64)
{
	bool at_sp = kind == LB_RULE_VM || kind == LB_RULE_VM_RETURN ||
		     kind == LB_RULE_VM_CALLBACK;
	__u64 g_addr = lb_vm_reg(s->r14, gc64) - lj->g2disp;
	bool exact = s->leaf && kind == LB_RULE_VM;

	s->unknown_code = kind == LB_RULE_NONE;
	at_sp = at_sp && lb_vm_at_sp(s, lj, &g_addr, exact, gc64);
	if (!at_sp) {
		if (kind == LB_RULE_VM_CALLBACK)
			return LB_VM_NO_CFRAME; /* not one of L's yet */
		g_addr = gc64 ? s->r14 - lj->g2disp : s->g_candidate;
		if (!lb_vm_find_l(s, lj, &g_addr,
				  kind == LB_RULE_NONE && s->last_try, gc64))
			return LB_VM_NO_G;
	} else if (!s->n_segments || s->tmp != s->l) {
		lb_g_read(s, lj, g_addr);
	}
	lb_l_switch(s, s->tmp);
	if (!at_sp) {
		int miss = lb_vm_find_cframe(s, lj, gc64);

		if (miss)
			return miss;
	}
	if (!s->n_segments) {
		lb_tid_g_set(s->tid, g_addr);
		s->rec.head.vmstate = s->gw[0];
		if (s->flags & LB_CONFIG_VMSTATE && (__s32)s->gw[0] < 0)
			lb_hash_add(s, s->gw[0]);
		s->rec.head.g_addr = g_addr;
		s->rec.head.vm = s->vm;
	}
	s->n_segments++;
	s->g = g_addr;
	if (s->unknown_code == 2 ||
	    (s->unknown_code && !LB_G_REF(s, lj, lj->g_jit_base, gc64))) {
		lb_push(s, LB_FRAME_SKIPPED, 0, 0, 0, 0);
	} else if (s->unknown_code) {
		lb_mcode_mark(s);
	}
	if (at_sp && !s->l_seen && !s->leaf &&
	    s->sp < (LB_L_WORD(s, lj->l_cframe) & ~3ULL)) {
		/* not L's any more (an error has unwound it) or not yet (an FFI
		 * callback): L->base belongs to a C frame below */
		lb_vm_leave(s);
		s->l_seen = 0;
		return 0;
	}
	if (s->nres < 0) { /* lua_cpcall: a C frame without a Lua frame */
		s->leaf = 0;
		return lb_vm_leave(s);
	}
	if (!s->l_known) {
		if (lb_lua_begin(s, lj, kind, gc64))
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
