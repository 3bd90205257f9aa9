/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of one stack: collect, hash, and send when first seen.
 */
#ifndef LB_RECORD_H
#define LB_RECORD_H

#define LB_HASH_MUL 0x9e3779b97f4a7c15ULL /* 2^64 / golden ratio */

static __always_inline void lb_hash_add(struct lb_state *s, __u64 v)
{
	__u64 h = (s->hash ^ v) * LB_HASH_MUL;

	s->hash = h ^ (h >> 32);
}

static __always_inline void lb_stop(struct lb_state *s, __u8 stop)
{
	s->rec.head.stop = stop;
	s->mode = LB_MODE_DONE;
}

#define LB_MCODE_PAGE_SHIFT 12

/* The part of an address that tells stacks apart; see struct lb_count_key. */
static __always_inline __u64 lb_hashed_addr(struct lb_state *s, __u8 kind,
					    __u64 addr)
{
	if (s->rec.head.n_frames ||
	    (kind != LB_FRAME_KERNEL && kind != LB_FRAME_NATIVE &&
	     kind != LB_FRAME_MCODE))
		return addr;
	s->count_key.leaf = addr;
	/* user space finds out once for a page whose machine code it is */
	return kind == LB_FRAME_MCODE ? addr >> LB_MCODE_PAGE_SHIFT : 0;
}

/*
 * Add one frame. @id: what tells this frame from others with the same kind,
 * address and position; goes into the hash only.
 */
static __always_inline void lb_push(struct lb_state *s, __u8 kind, __u8 flags,
				    __u64 addr, __u32 pos, __u64 id)
{
	__u32 n = s->rec.head.n_frames;

	if (n >= LB_FRAMES_MAX) {
		lb_stop(s, LB_STOP_TRUNCATED);
		return;
	}
	struct lb_frame *f = &s->rec.frames[n & (LB_FRAMES_MAX - 1)];

	lb_hash_add(s, lb_hashed_addr(s, kind, addr));
	f->addr = addr;
	f->pos = pos;
	f->line = LB_LINE_UNKNOWN;
	f->proto_id = 0;
	f->kind = kind;
	f->flags = flags;
	f->vm = s->vm;
	s->rec.head.n_frames = n + 1;
	lb_hash_add(s, id ^ ((__u64)kind << 56) ^ ((__u64)flags << 48));
}

static __always_inline void lb_send_proto(struct lb_state *s,
					  struct lj_offsets *lj,
					  struct lb_proto_key *key, __u32 vm)
{
	struct lb_proto_rec *r = &s->proto_rec;
	struct lb_proto_val *v = &s->proto_val;

	r->type = LB_REC_PROTO;
	r->tgid = s->tgid;
	r->proto_addr = key->addr;
	r->chunk_addr = v->chunk_addr;
	r->g_addr = s->g;
	r->first_line = v->first_line;
	r->num_line = v->num_line;
	r->size_bc = v->size_bc;
	r->vm = vm;
	r->chunk_id = v->chunk_id;
	r->pad = 0;
	r->chunk_len = 0;
	r->chunk_got = 0;
	bpf_probe_read_user(&r->chunk_len, 4,
			    (void *)(v->chunk_addr + lj->str_len));
	__u32 n = r->chunk_len;

	if (n > LB_CHUNK_MAX)
		n = LB_CHUNK_MAX;
	if (n > 0 &&
	    !bpf_probe_read_user(r->chunk, n & (2 * LB_CHUNK_MAX - 1),
				 (void *)(v->chunk_addr + lj->str_size)))
		r->chunk_got = n;
	if (!lb_ring_send(r, sizeof(*r)))
		lb_proto_remember(key, v);
}

/* Source line of bytecode index @pos; the rule of lj_debug_line(). */
static __always_inline __u32 lb_line_at(struct lb_proto_val *v, __u32 pos)
{
	__u32 d = 0;

	if (pos == 0)
		return v->first_line;
	if (pos > v->size_bc || !v->lineinfo)
		return LB_LINE_UNKNOWN;
	if (pos == v->size_bc)
		return v->first_line + v->num_line;
	pos--;
	if (v->num_line < 256) {
		if (bpf_probe_read_user(&d, 1, (void *)(v->lineinfo + pos)))
			return LB_LINE_UNKNOWN;
	} else if (v->num_line < 65536) {
		if (bpf_probe_read_user(&d, 2, (void *)(v->lineinfo + 2 * pos)))
			return LB_LINE_UNKNOWN;
	} else {
		if (bpf_probe_read_user(&d, 4, (void *)(v->lineinfo + 4 * pos)))
			return LB_LINE_UNKNOWN;
	}
	return v->first_line + d;
}

/* A field @off bytes into the part of a prototype in @head: 64 or 32 bits. */
static __always_inline __u64 lb_proto_field(__u64 *head, __u32 off, bool wide)
{
	__u64 word = head[(off >> 3) & 3];

	return wide ? word : (__u32)(word >> (8 * (off & 4)));
}

/*
 * Names of one Lua frame, read while its prototype is alive: a record if the
 * prototype is new here, and the line.
 */
static __always_inline void
lb_name_frame(struct lb_state *s, struct lj_offsets *lj, struct lb_frame *f)
{
	struct lb_proto_key key = { .addr = f->addr, .tgid = s->tgid };
	struct lb_proto_val *v = &s->proto_val;
	__u64 head[4] = {};

	if (bpf_probe_read_user(head, sizeof(head),
				(void *)(f->addr + lj->pt_chunkname)))
		return;
	v->chunk_addr = lb_proto_field(head, 0, lj->gc64);
	v->first_line = lb_proto_field(
		head, lj->pt_firstline - lj->pt_chunkname, false);
	v->num_line =
		lb_proto_field(head, lj->pt_numline - lj->pt_chunkname, false);
	v->lineinfo = lb_proto_field(head, lj->pt_lineinfo - lj->pt_chunkname,
				     lj->gc64);
	v->chunk_id = 0;
	bpf_probe_read_user(&v->chunk_id, 4,
			    (void *)(v->chunk_addr + lj->str_id));
	v->size_bc = 0;
	bpf_probe_read_user(&v->size_bc, 4, (void *)(f->addr + lj->pt_sizebc));

	struct lb_proto_val *known = lb_proto_known(&key);

	if (!known || known->chunk_addr != v->chunk_addr ||
	    known->first_line != v->first_line ||
	    known->num_line != v->num_line || known->size_bc != v->size_bc ||
	    known->chunk_id != v->chunk_id)
		lb_send_proto(s, lj, &key, f->vm);
	if (s->flags & LB_CONFIG_LINES)
		f->line = lb_line_at(v, f->pos);
}

static __always_inline void lb_send_stack(struct lb_state *s)
{
	__u32 n = s->rec.head.n_frames;

	if (n > LB_FRAMES_MAX)
		n = LB_FRAMES_MAX;
	if (!lb_ring_send(&s->rec,
			  sizeof(s->rec.head) + n * sizeof(struct lb_frame)))
		return;

	/* the record is lost, and the samples that it stands for with it */
	lb_count(LB_CNT_LOST_RING);
	lb_stack_forget(s->count_key.stack);
	lb_count_forget(&s->count_key);
}

#endif
