/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind table of one file: rows of .eh_frame, merged where the rule stays the
 * same, with gaps marked and an index of blocks of text.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>

#include "ehframe.h"
#include "unwind.h"
#include "vmrows.h"

#define GAP_MIN 16 /* bytes; a smaller gap is padding behind a function */

struct build {
	const struct lb_elf *elf;
	const struct lb_luajit *luajit;
	struct lb_unwind *unwind;
	const struct lb_segment *segment; /* the one found last */
	size_t room_rows;
	size_t room_rules;
	size_t room_fdes;
	uint32_t *hash;	      /* 1 + index of a rule, 0: free */
	size_t hash_size;     /* a power of two */
	uint64_t begin_vaddr; /* of what the FDE adds to the table */
	uint64_t end_vaddr;   /* of what all FDEs before it cover */
	/* .plt without an FDE, until it is passed; size 0: none */
	struct lb_fde plt;
	bool have_fde;
	bool skip_rules; /* of this FDE: made elsewhere, or not wanted */
};

static void *grow(void *array, size_t *room, size_t item_size)
{
	size_t want = *room ? 2 * *room : 256;
	void *more = reallocarray(array, want, item_size);

	if (more)
		*room = want;
	return more;
}

/* ---- rules without repeats ---- */

static size_t hash_of(const struct lb_rule *rule)
{
	uint64_t words[2];

	memcpy(words, rule, sizeof(words));
	words[0] ^= words[1] * UINT64_C(0x9e3779b97f4a7c15);
	words[0] *= UINT64_C(0xff51afd7ed558ccd);
	return (size_t)(words[0] >> 32);
}

static uint32_t *hash_slot(const struct build *build,
			   const struct lb_rule *rule)
{
	size_t i = hash_of(rule) & (build->hash_size - 1);

	while (build->hash[i] &&
	       memcmp(&build->unwind->rules[build->hash[i] - 1], rule,
		      sizeof(*rule)))
		i = (i + 1) & (build->hash_size - 1);
	return &build->hash[i];
}

static int grow_hash(struct build *build)
{
	const struct lb_unwind *unwind = build->unwind;
	size_t size = build->hash_size ? 2 * build->hash_size : 1024;
	uint32_t *hash = calloc(size, sizeof(*hash));

	if (!hash)
		return -ENOMEM;
	free(build->hash);
	build->hash = hash;
	build->hash_size = size;
	for (uint32_t i = 0; i < unwind->n_rules; i++)
		*hash_slot(build, &unwind->rules[i]) = i + 1;
	return 0;
}

static int add_rule(struct build *build, const struct lb_rule *rule,
		    uint32_t *index_ret)
{
	struct lb_unwind *unwind = build->unwind;

	if (2 * (size_t)unwind->n_rules >= build->hash_size) {
		int err = grow_hash(build);

		if (err)
			return err;
	}

	uint32_t *slot = hash_slot(build, rule);

	if (!*slot) {
		if (unwind->n_rules == build->room_rules) {
			void *more = grow(unwind->rules, &build->room_rules,
					  sizeof(*unwind->rules));

			if (!more)
				return -ENOMEM;
			unwind->rules = more;
		}
		unwind->rules[unwind->n_rules++] = *rule;
		*slot = unwind->n_rules;
	}
	*index_ret = *slot - 1;
	return 0;
}

/* ---- rows ---- */

static int add_row(struct build *build, uint64_t vaddr,
		   const struct lb_rule *rule)
{
	struct lb_unwind *unwind = build->unwind;
	uint32_t off = (uint32_t)(vaddr - unwind->vaddr_lo);
	uint32_t index;
	int err = add_rule(build, rule, &index);

	if (err)
		return err;
	/* a row of no length, where a program does not advance */
	if (unwind->n_rows && unwind->rows[unwind->n_rows - 1].vaddr == off)
		unwind->n_rows--;
	if (unwind->n_rows && unwind->rows[unwind->n_rows - 1].rule == index)
		return 0;
	if (unwind->n_rows == build->room_rows) {
		void *more = grow(unwind->rows, &build->room_rows,
				  sizeof(*unwind->rows));

		if (!more)
			return -ENOMEM;
		unwind->rows = more;
	}
	unwind->rows[unwind->n_rows++] =
		(struct lb_row){ .vaddr = off, .rule = index };
	return 0;
}

static int on_rule(void *arg, uint64_t vaddr, const struct lb_rule *rule)
{
	struct build *build = arg;

	if (build->skip_rules)
		return 0;
	if (vaddr < build->begin_vaddr)
		vaddr = build->begin_vaddr;
	return add_row(build, vaddr, rule);
}

/* ---- FDEs ---- */

static bool segment_has(const struct build *build,
			const struct lb_segment *segment,
			const struct lb_fde *fde)
{
	uint64_t file_size = lb_elf_size(build->elf);

	return segment->flags & PF_X && fde->vaddr >= segment->vaddr &&
	       segment->off <= file_size &&
	       segment->filesz <= file_size - segment->off &&
	       fde->vaddr - segment->vaddr <= segment->filesz &&
	       fde->size <= segment->filesz - (fde->vaddr - segment->vaddr);
}

/* Text is as long as the file has it: this bounds the table. */
static bool is_text(struct build *build, const struct lb_fde *fde)
{
	const struct lb_segment *segments;
	size_t n = lb_elf_segments(build->elf, &segments);

	if (build->segment && segment_has(build, build->segment, fde))
		return true;
	for (size_t i = 0; i < n; i++) {
		if (segment_has(build, &segments[i], fde)) {
			build->segment = &segments[i];
			return true;
		}
	}
	return false;
}

static int add_fde(struct build *build)
{
	struct lb_unwind *unwind = build->unwind;

	if (unwind->n_fdes == build->room_fdes) {
		void *more = grow(unwind->fdes, &build->room_fdes,
				  sizeof(*unwind->fdes));

		if (!more)
			return -ENOMEM;
		unwind->fdes = more;
	}

	uint32_t *range = unwind->fdes[unwind->n_fdes++];

	range[0] = (uint32_t)(build->begin_vaddr - unwind->vaddr_lo);
	range[1] = (uint32_t)(build->end_vaddr - unwind->vaddr_lo);
	return 0;
}

/* Rules of the VM's two FDEs, made from its code. */
static int add_vm_rows(struct build *build, const struct lb_fde *fde)
{
	const struct lb_luajit *luajit = build->luajit;
	int ret = -ENODATA;

	build->skip_rules = false;
	if (fde->vaddr == luajit->vm_vaddr)
		ret = lb_vmrows_vm(build->elf, luajit, on_rule, build);
	else if (fde->vaddr == luajit->ffi_call_vaddr)
		ret = lb_vmrows_ffi_call(build->elf, luajit, on_rule, build);
	build->skip_rules = !ret;
	return ret == -ENODATA ? 0 : ret;
}

static int start_fde(struct build *build, const struct lb_fde *fde)
{
	static const struct lb_rule none = { .kind = LB_RULE_NONE };
	struct lb_unwind *unwind = build->unwind;
	uint64_t end_vaddr = fde->vaddr + fde->size;

	/* where two FDEs overlap, the first one holds */
	build->skip_rules = true;
	if (!is_text(build, fde)) {
		unwind->n_bad_records++;
		return 0;
	}
	if (build->have_fde && end_vaddr <= build->end_vaddr)
		return 0;
	if (!build->have_fde)
		unwind->vaddr_lo = build->end_vaddr = fde->vaddr;
	build->have_fde = true;
	if (end_vaddr - unwind->vaddr_lo > UINT32_MAX)
		return -ERANGE;
	build->begin_vaddr = fde->vaddr;
	if (build->begin_vaddr < build->end_vaddr)
		build->begin_vaddr = build->end_vaddr;
	if (fde->vaddr > build->end_vaddr &&
	    fde->vaddr - build->end_vaddr >= GAP_MIN) {
		int err = add_row(build, build->end_vaddr, &none);

		if (err)
			return err;
	}
	build->end_vaddr = end_vaddr;

	int err = add_fde(build);

	if (err)
		return err;
	build->skip_rules = false;
	return build->luajit ? add_vm_rows(build, fde) : 0;
}

/*
 * The stubs of a static program (for IFUNCs) have no FDE. Without lazy binding
 * such an entry is a jump: the return address stays on top.
 */
static int add_plt(struct build *build)
{
	static const struct lb_rule entry = { .kind = LB_RULE_RSP,
					      .cfa_off = 8 };
	struct lb_fde plt = build->plt;
	int err = start_fde(build, &plt);

	if (!err && !build->skip_rules)
		err = add_row(build, plt.vaddr, &entry);
	return err;
}

static int on_fde(void *arg, const struct lb_fde *fde)
{
	struct build *build = arg;

	if (build->plt.size && fde->vaddr + fde->size > build->plt.vaddr) {
		int err = 0;

		if (fde->vaddr >= build->plt.vaddr + build->plt.size)
			err = add_plt(build);
		build->plt.size = 0; /* passed, or covered by this one */
		if (err)
			return err;
	}
	return start_fde(build, fde);
}

static void find_plt(struct build *build)
{
	struct lb_section section;

	if (lb_elf_type(build->elf) == ET_EXEC &&
	    !lb_elf_section(build->elf, ".plt", &section) && section.data) {
		build->plt.vaddr = section.vaddr;
		build->plt.size = section.size;
	}
}

/* ---- the whole table ---- */

static int finish_rows(struct build *build)
{
	static const struct lb_rule none = { .kind = LB_RULE_NONE };
	struct lb_unwind *unwind = build->unwind;

	if (!build->have_fde)
		return -EBADMSG;
	unwind->vaddr_hi = build->end_vaddr;
	for (uint32_t i = 0; i < unwind->n_rows; i++) {
		if (unwind->rules[unwind->rows[i].rule].kind == LB_RULE_BAD)
			unwind->n_bad_rows++;
	}
	return add_row(build, unwind->vaddr_hi, &none);
}

static int add_blocks(struct lb_unwind *unwind)
{
	uint64_t size = unwind->vaddr_hi - unwind->vaddr_lo;
	uint32_t row = 0;

	unwind->n_blocks = (uint32_t)(size >> LB_BLOCK_SHIFT) + 2;
	unwind->blocks = calloc(unwind->n_blocks, sizeof(*unwind->blocks));
	if (!unwind->blocks)
		return -ENOMEM;
	for (uint32_t i = 0; i < unwind->n_blocks; i++) {
		uint64_t vaddr = (uint64_t)i << LB_BLOCK_SHIFT;

		while (row + 1 < unwind->n_rows &&
		       unwind->rows[row + 1].vaddr <= vaddr)
			row++;
		unwind->blocks[i] = row;
	}
	return 0;
}

int lb_unwind_build(const struct lb_elf *elf, const struct lb_luajit *luajit,
		    struct lb_unwind **unwind_ret)
{
	struct build build = { .elf = elf, .luajit = luajit };
	uint64_t n_bad = 0;

	build.unwind = calloc(1, sizeof(*build.unwind));
	if (!build.unwind)
		return -ENOMEM;

	find_plt(&build);

	int err = lb_ehframe_each(elf, on_fde, on_rule, &build, &n_bad);

	build.unwind->n_bad_records += n_bad;
	if (!err)
		err = finish_rows(&build);
	if (!err)
		err = add_blocks(build.unwind);
	free(build.hash);
	if (err) {
		lb_unwind_free(build.unwind);
		return err;
	}
	*unwind_ret = build.unwind;
	return 0;
}

void lb_unwind_free(struct lb_unwind *unwind)
{
	if (!unwind)
		return;
	free(unwind->rows);
	free(unwind->rules);
	free(unwind->blocks);
	free(unwind->fdes);
	free(unwind);
}

const struct lb_rule *lb_unwind_rule(const struct lb_unwind *unwind,
				     uint64_t vaddr)
{
	if (vaddr < unwind->vaddr_lo || vaddr >= unwind->vaddr_hi)
		return NULL;

	uint32_t off = (uint32_t)(vaddr - unwind->vaddr_lo);
	uint32_t lo = unwind->blocks[off >> LB_BLOCK_SHIFT];
	uint32_t hi = unwind->blocks[(off >> LB_BLOCK_SHIFT) + 1];

	while (lo < hi) { /* the last row at or before off */
		uint32_t mid = lo + (hi - lo + 1) / 2;

		if (unwind->rows[mid].vaddr <= off)
			lo = mid;
		else
			hi = mid - 1;
	}
	return &unwind->rules[unwind->rows[lo].rule];
}

uint64_t lb_unwind_function(const struct lb_unwind *unwind, uint64_t vaddr)
{
	uint32_t lo = 0, hi = unwind->n_fdes;
	uint64_t off = vaddr - unwind->vaddr_lo;

	if (vaddr < unwind->vaddr_lo)
		return 0;
	while (lo < hi) { /* the first FDE that begins behind off */
		uint32_t mid = lo + (hi - lo) / 2;

		if (unwind->fdes[mid][0] <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || off >= unwind->fdes[lo - 1][1])
		return 0;
	return unwind->vaddr_lo + unwind->fdes[lo - 1][0];
}
