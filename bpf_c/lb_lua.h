/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lua frames of one lua_State, from a C boundary down to the next.
 *
 * A frame on the Lua stack has a function and a link: either the return address
 * in the caller's bytecode (type 0), or the distance to the previous frame with
 * a type in its low bits (lj_frame.h). f is base - 8. With 64-bit references
 * the function is in [f - 8] and the link in [f]; with 32-bit references they
 * share [f], the function in the low half.
 *
 * @gc64 is a constant where these functions are inlined: the walker is compiled
 * once for each size of references.
 *
 * A return address must lie inside the bytecode of the function it returns
 * to, and must be absent where that is a C function: each step proves the one
 * before. The top frame may be half built or half torn down, so it is tried in
 * several ways; see lb_lua_retry().
 */
#ifndef LB_LUA_H
#define LB_LUA_H

#define LB_TAG_SHIFT  47
#define LB_TAG_FUNC   0x1fff7 /* LJ_TFUNC */
#define LB_TAG_THREAD 0x1fff9 /* LJ_TTHREAD: dummy frame */
#define LB_GC_MASK    ((1ULL << 47) - 1)
#define LB_GCT_FUNC   8
#define LB_BC_MAX     (1 << 26) /* LJ_MAX_BCINS */

enum lb_frame_type { /* FRAME_* of lj_frame.h */
		     LB_LINK_LUA = 0,
		     LB_LINK_C = 1,
		     LB_LINK_CONT = 2,
		     LB_LINK_VARG = 3,
		     LB_LINK_CP = 5,
};

#define LB_CONT_FFI_CALLBACK 1 /* LJ_CONT_FFI_CALLBACK */

#define LB_RETRY_WAYS 4 /* for each of three candidates; a power of two */
#define LB_RETRY_LAST (3 * LB_RETRY_WAYS - 1)
#define LB_RETRY_NONE (LB_RETRY_LAST + 1)

/* A reference: a word, or the half of one that @off is in. */
#define LB_REF(word, off, gc64) \
	((gc64) ? (word) : (__u64)(__u32)((word) >> (8 * ((off)&4))))

#define LB_LUA_WORD(s, a) \
	((s)->lua_win[(((a) - (s)->lua_lo) >> 3) & (LB_WINDOW_WORDS - 1)])

/* Make [f - 24, f + 8) readable; the window grows towards older frames. */
static __always_inline int lb_lua_window(struct lb_state *s, __u64 f)
{
	if (f - 24 >= s->lua_lo && f + 8 <= s->lua_hi)
		return 0;
	__u64 lo = f + 8 - sizeof(s->lua_win);

	if (lo < s->l_stack)
		lo = s->l_stack;
	s->lua_hi = lo + sizeof(s->lua_win);
	if (bpf_probe_read_user(s->lua_win, sizeof(s->lua_win), (void *)lo)) {
		lo = f - 24;
		s->lua_hi = f + 8;
		if (bpf_probe_read_user(s->lua_win, 32, (void *)lo)) {
			s->lua_lo = s->lua_hi = 0;
			return 1;
		}
	}
	s->lua_lo = lo;
	return 0;
}

/* Function and link of the frame at @f, which the window holds. */
static __always_inline __u64 lb_frame_func(struct lb_state *s, __u64 f,
					   bool gc64)
{
	return gc64 ? LB_LUA_WORD(s, f - 8) : (__u32)LB_LUA_WORD(s, f);
}

static __always_inline __u64 lb_frame_link(struct lb_state *s, __u64 f,
					   bool gc64)
{
	return gc64 ? LB_LUA_WORD(s, f) : LB_LUA_WORD(s, f) >> 32;
}

/*
 * The call instruction before return address @pc, and as much of the bytecode
 * before it as one read gives: the header of the prototype is often in it.
 */
static __always_inline int lb_code_before(struct lb_state *s, __u64 pc,
					  __u32 *ins_ret)
{
	s->code_lo = pc - sizeof(s->code_win);
	s->code_hi = pc;
	if (bpf_probe_read_user(s->code_win, sizeof(s->code_win),
				(void *)s->code_lo)) {
		s->code_lo = s->code_hi = 0;
		if (bpf_probe_read_user(ins_ret, 4, (void *)(pc - 4)))
			return 1;
		return 0;
	}
	*ins_ret = s->code_win[LB_CODE_WORDS - 1];
	return 0;
}

/*
 * Number of a chunk name. Strings are freed and their addresses used again, so
 * the address alone does not tell which; neighbours mostly share one.
 */
static __always_inline __u32 lb_chunk_id(struct lb_state *s,
					 struct lj_offsets *lj,
					 __u64 chunk_addr)
{
	if (chunk_addr != s->chunk_addr) {
		s->chunk_addr = chunk_addr;
		s->chunk_id = 0;
		bpf_probe_read_user(&s->chunk_id, 4,
				    (void *)(chunk_addr + lj->str_id));
	}
	return s->chunk_id;
}

/* Chunk name and lines: with the address they identify a prototype. */
static __always_inline __u64 lb_proto_identity(struct lb_state *s,
					       struct lj_offsets *lj,
					       __u64 proto_addr, bool gc64)
{
	__u64 at = proto_addr + lj->pt_chunkname;

	if (!(at & 3) && at >= s->code_lo && at + 16 <= s->code_hi) {
		__u32 i = (at - s->code_lo) >> 2;

		s->id[0] = s->code_win[i & (LB_CODE_WORDS - 1)] |
			   (__u64)s->code_win[(i + 1) & (LB_CODE_WORDS - 1)]
				   << 32;
		s->id[1] = s->code_win[(i + 2) & (LB_CODE_WORDS - 1)] |
			   (__u64)s->code_win[(i + 3) & (LB_CODE_WORDS - 1)]
				   << 32;
	} else {
		s->id[0] = s->id[1] = 0;
		bpf_probe_read_user(s->id, 16, (void *)at);
	}
	if (!gc64) { /* name, first line, lines: half a word each */
		s->id[1] = s->id[0] >> 32 | s->id[1] << 32;
		s->id[0] = (__u32)s->id[0];
	}
	return (s->id[0] << 8) ^ s->id[1] ^ lb_chunk_id(s, lj, s->id[0]);
}

/* Native registers := those above the C frame of this segment. */
static __always_inline int lb_vm_leave(struct lb_state *s)
{
	s->cframe = s->up_cframe & ~3ULL;
	s->l_seen = 1;
	s->r14 = s->up_r14;
	s->bx = s->up_bx;
	s->bp = s->up_bp;
	s->pc = s->up_pc;
	s->sp = s->up_sp;
	s->leaf = 0;
	s->mode = LB_MODE_NATIVE;
	return 0;
}

/*
 * From the frame at @f along its @link to the one below. Return: 0, or a
 * detail; s->mode is LB_MODE_NATIVE when the link is a C boundary.
 */
static __always_inline __u8 lb_lua_link(struct lb_state *s, __u64 f, __u64 link,
					bool gc64)
{
	__u32 type = link & 7;

	if ((type & 3) == LB_LINK_LUA) {
		__u32 ins = 0;

		if (lb_code_before(s, link, &ins))
			return LB_DETAIL_CALL_READ;
		s->f = f - 8 * ((gc64 ? 2 : 1) + ((ins >> 8) & 0xff));
		s->lua_pc = link;
		return LB_DETAIL_NONE;
	}
	s->code_lo = s->code_hi = 0;
	s->f = f - (link & ~7ULL);
	if (s->f > f)
		return LB_DETAIL_DELTA;
	if (type == LB_LINK_VARG) {
		s->vararg = 1;
		return LB_DETAIL_NONE;
	}
	s->lua_pc = 0;
	if (type == LB_LINK_C || type == LB_LINK_CP) {
		lb_vm_leave(s);
	} else if (type == LB_LINK_CONT) {
		if (lb_lua_window(s, f))
			return LB_DETAIL_STACK_READ;
		__u64 cont = gc64 ? LB_LUA_WORD(s, f - 24)
				  : (__u32)LB_LUA_WORD(s, f - 8);

		if (cont == LB_CONT_FFI_CALLBACK)
			lb_vm_leave(s);
		else
			s->lua_pc = gc64 ? LB_LUA_WORD(s, f - 16)
					 : LB_LUA_WORD(s, f - 8) >> 32;
	}
	return LB_DETAIL_NONE;
}

/*
 * Start again at the top frame with the next candidate for BASE: rdx (leaf in
 * the VM), rbp (the VM keeps BASE there across some C calls), L->base. Each is
 * tried in four ways: as it stands; as if the function slot were overwritten
 * by results already (returning), the link being in rbx; the same with the
 * link in the C frame (SAVE_PC), where coroutine.resume keeps it; and with the
 * link in its place.
 */
static __always_inline int lb_lua_retry(struct lb_state *s, bool gc64)
{
	__u32 t = s->retry, way = t & (LB_RETRY_WAYS - 1);
	__u64 base = s->cand[(t / LB_RETRY_WAYS) & 3];
	__u64 link = way == 1 ? s->bx0 : s->save_pc;
	__u64 f = base - 8;

	s->rec.head.n_frames = s->n_frames0;
	s->hash = s->hash0;
	s->n_walked = 0;
	s->vararg = 0;
	s->strict = 0;
	s->f = f;
	s->lua_pc = s->bx0;
	s->code_lo = s->code_hi = 0;
	if (way == 0 && base)
		return 0;
	s->f = 0; /* fails at once: next candidate */
	if (!base)
		return 0;
	if (way == 1 && !(link & 3) && link <= f - s->l_stack) {
		/* no address but a distance whose type has been flipped to 0:
		 * on the way out through a C boundary */
		s->f = f - link;
		s->lua_pc = 0;
		return lb_vm_leave(s);
	}
	/* the VM flips bit 0 of rbx while it looks at the type; the link in
	 * memory is whole unless a second result has overwritten it */
	if (lb_lua_window(s, f))
		return 0;
	if (way == 3 ||
	    (link & 3 && !((lb_frame_link(s, f, gc64) ^ link) & ~7ULL)))
		link = lb_frame_link(s, f, gc64);
	if (link & 3 && (link & ~7ULL) > f - s->l_stack)
		return 0;
	s->strict = 1;
	if (lb_lua_link(s, f, link, gc64))
		s->f = 0;
	return 0;
}

static __always_inline int lb_lua_bad(struct lb_state *s, __u8 detail,
				      bool gc64)
{
	if (!s->detail)
		s->detail = detail;
	if (s->n_walked <= 1 && s->retry < LB_RETRY_LAST) {
		s->retry++;
		return lb_lua_retry(s, gc64);
	}
	s->l_done = 1;
	s->rec.head.detail = s->detail;
	lb_push(s, LB_FRAME_BREAK, 0, 0, s->detail, s->detail);
	return lb_vm_leave(s);
}

/* The function of the frame at s->f. Return: 0, or a detail. */
static __always_inline __u8 lb_lua_function(struct lb_state *s,
					    struct lj_offsets *lj, __u64 func,
					    bool gc64)
{
	if (bpf_probe_read_user(s->fn, 48, (void *)func))
		return LB_DETAIL_FUNC_READ;
	__u32 gct = s->fn[(lj->fn_gct >> 3) & 7] >> (8 * (lj->fn_gct & 7));
	__u32 ffid = s->fn[(lj->fn_ffid >> 3) & 7] >> (8 * (lj->fn_ffid & 7));
	__u64 code = LB_REF(s->fn[(lj->fn_pc >> 3) & 7], lj->fn_pc, gc64);
	bool proven = s->n_walked || s->strict;

	ffid &= 0xff;
	if ((gct & 0xff) != LB_GCT_FUNC)
		return LB_DETAIL_FUNC_TYPE;
	if (s->vararg)
		return LB_DETAIL_NONE;
	if (ffid == 0) {
		__u64 d = s->lua_pc - code;
		__u32 pos = LB_POS_UNKNOWN;

		if (s->lua_pc) {
			if (d < LB_BC_MAX * 4 && !(d & 3))
				pos = (d >> 2) - 1;
			else if (proven)
				return LB_DETAIL_FOREIGN_PC;
		}
		__u64 proto_addr = code - lj->pt_size;
		__u64 id = lb_proto_identity(s, lj, proto_addr, gc64);

		if (s->flags & LB_CONFIG_LINES)
			id ^= (__u64)pos << 8;
		lb_push(s, LB_FRAME_LUA, s->jit ? LB_FF_JIT : 0, proto_addr,
			pos, id);
	} else {
		if (s->lua_pc && proven)
			return LB_DETAIL_C_WITH_PC;
		/* a C function shows as its native frames */
		if (ffid > 1)
			lb_push(s, LB_FRAME_FAST, 0, 0, ffid, ffid);
	}
	s->jit = 0;
	s->n_lua++;
	return LB_DETAIL_NONE;
}

/* Emit the frame at s->f and move to the one below. Return: 0, or a detail. */
static __always_inline __u8 lb_lua_frame(struct lb_state *s,
					 struct lj_offsets *lj, bool gc64)
{
	__u64 f = s->f;

	if (f > s->l_maxstack)
		return LB_DETAIL_ABOVE;
	if (lb_lua_window(s, f))
		return LB_DETAIL_STACK_READ;
	__u64 func = lb_frame_func(s, f, gc64);
	__u64 link = lb_frame_link(s, f, gc64), tag = func >> LB_TAG_SHIFT;
	bool dummy = gc64 ? tag == LB_TAG_THREAD : func == s->l;

	if (gc64 && tag != LB_TAG_FUNC && !dummy)
		return LB_DETAIL_FUNC_TAG;
	if (!dummy) {
		__u8 detail = lb_lua_function(s, lj, func & LB_GC_MASK, gc64);

		if (detail)
			return detail;
		s->vararg = 0;
	}
	s->n_walked++;
	s->strict = 0;
	return lb_lua_link(s, f, link, gc64);
}

/* One Lua frame, or the end of this L, or another try at its top. */
static __always_inline int lb_lua_step(struct lb_state *s,
				       struct lj_offsets *lj, bool gc64)
{
	__u64 bottom = s->l_stack + (gc64 ? 8 : 0);
	__u8 detail = LB_DETAIL_BOTTOM;

	if (s->f == bottom && !s->strict) {
		s->l_done = 1;
		return lb_vm_leave(s);
	}
	if (s->f > bottom)
		detail = lb_lua_frame(s, lj, gc64);
	return detail ? lb_lua_bad(s, detail, gc64) : 0;
}

#endif
